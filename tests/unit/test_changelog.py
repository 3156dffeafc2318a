"""The lines of changelog.d: their form, and how a release moves them to CHANGELOG.md."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROGRAM = ROOT / ".ci" / "changelog"
# an sdist has no .ci
pytestmark = pytest.mark.skipif(not PROGRAM.exists(), reason="this is no clone of the repository")

OLDER = "## 0.1.0 / 2026-01-02\n\nThe first release.\n\n* [FEATURE] record: Record events.\n"


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    (tmp_path / ".ci").mkdir()
    (tmp_path / "changelog.d").mkdir()
    (tmp_path / "changelog.d" / "README.md").write_text("How to.\n")
    shutil.copy(PROGRAM, tmp_path / ".ci")
    return tmp_path


def release(tree: Path, version: str, *, code: int = 0) -> str:
    env = {**os.environ, "SOURCE_DATE_EPOCH": "1790000000"}
    words = [sys.executable, str(tree / ".ci" / "changelog"), version]
    ran = subprocess.run(words, env=env, capture_output=True, text=True, check=False)
    assert ran.returncode == code, ran.stderr
    return ran.stderr


def test_the_fragments_of_this_tree_can_be_released(tree: Path) -> None:
    shutil.rmtree(tree / "changelog.d")
    shutil.copytree(ROOT / "changelog.d", tree / "changelog.d")
    shutil.copy(ROOT / "CHANGELOG.md", tree)
    release(tree, "999.0.0")


def test_a_release_has_its_lines_by_kind_above_older_releases_and_deletes_the_fragments(tree: Path) -> None:
    (tree / "CHANGELOG.md").write_text(f"# Changelog\n\n{OLDER}")
    (tree / "changelog.d" / "8.fix.md").write_text("[BUGFIX] api: Mend it (#8)\n")
    (tree / "changelog.d" / "9.new.md").write_text("[FEATURE] api: Add it (#9)\n[CHANGE] api: Move it (#9)\n")
    release(tree, "0.2.0")
    assert (tree / "CHANGELOG.md").read_text() == (
        "# Changelog\n\n## 0.2.0 / 2026-09-21\n\n"
        "* [CHANGE] api: Move it (#9)\n* [FEATURE] api: Add it (#9)\n* [BUGFIX] api: Mend it (#8)\n\n" + OLDER
    )
    assert [file.name for file in (tree / "changelog.d").iterdir()] == ["README.md"]


def test_an_unreleased_section_keeps_its_words_and_gets_the_lines_and_the_date(tree: Path) -> None:
    unreleased = OLDER.replace("/ 2026-01-02", "(unreleased)")
    (tree / "CHANGELOG.md").write_text(f"# Changelog\n\n{unreleased}")
    (tree / "changelog.d" / "8.change.md").write_text("[CHANGE] api: Rename it (#8)\n")
    release(tree, "0.1.0")
    assert (tree / "CHANGELOG.md").read_text() == (
        "# Changelog\n\n## 0.1.0 / 2026-09-21\n\nThe first release.\n\n"
        "* [CHANGE] api: Rename it (#8)\n* [FEATURE] record: Record events.\n"
    )


@pytest.mark.parametrize("text", ["Fixed it (#8)\n", "[BUGFIX] api: Mend it\n", "[BUGFIX] a (#8)\nand b (#9)\n"])
def test_a_fragment_of_another_form_stops_the_release(tree: Path, text: str) -> None:
    (tree / "CHANGELOG.md").write_text(f"# Changelog\n\n{OLDER}")
    (tree / "changelog.d" / "8.fix.md").write_text(text)
    assert "8.fix.md" in release(tree, "0.2.0", code=1)
    assert (tree / "CHANGELOG.md").read_text() == f"# Changelog\n\n{OLDER}"
