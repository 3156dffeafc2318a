"""`make install` says what it does, and why it failed. The Python here only pretends to install."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

#: Makes an environment whose Python is itself; as pip it says thirty lines, and fails where $FAILS is among its words.
PYTHON = """#!/bin/sh
case "$*" in
  "-m venv .venv") mkdir -p .venv/bin && cp "$0" .venv/bin/python ;;
  "-m pip"*) seq 1 30; case "$*" in *"$FAILS"*) echo "ERROR: no such package" >&2; exit 1 ;; esac ;;
esac
"""


def make_install(folder: Path, *, fails: str) -> subprocess.CompletedProcess[str]:
    for name in ("Makefile", "constraints.txt", "pyproject.toml"):
        shutil.copy(ROOT / name, folder)
    (python := folder / "python").write_text(PYTHON)
    python.chmod(0o755)
    # A `make test` above hands its own flags on.
    env = {name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "MAKELEVEL", "MFLAGS")}
    words = ["make", "--no-print-directory", "install", f"PYTHON={python}"]
    return subprocess.run(
        words, cwd=folder, env=env | {"FAILS": fails}, capture_output=True, text=True, timeout=50, check=False
    )


def test_it_says_what_it_does_before_each_step(tmp_path: Path) -> None:
    done = make_install(tmp_path, fails="nothing")
    assert (done.returncode, done.stderr) == (0, "")
    _venv, packages, itself = done.stdout.splitlines()
    assert "constraints.txt" in packages
    assert "may take a minute" in packages
    assert "eventbus itself" in itself
    assert len((tmp_path / ".venv" / "install.log").read_text().splitlines()) == 60


@pytest.mark.parametrize(("fails", "logged"), [("-r constraints.txt", 31), ("-e .", 61)])
def test_a_step_that_fails_shows_the_end_of_its_log_and_where_it_is(tmp_path: Path, fails: str, logged: int) -> None:
    done = make_install(tmp_path, fails=fails)
    assert done.returncode != 0
    *end, where, _make = done.stderr.splitlines()
    assert end == [*map(str, range(12, 31)), "ERROR: no such package"]
    assert where == "make: pip failed; all it said is in .venv/install.log"
    assert len((tmp_path / ".venv" / "install.log").read_text().splitlines()) == logged
    assert not (tmp_path / ".venv" / "installed").exists()
