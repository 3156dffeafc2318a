"""The console command itself, whichever command it is asked for."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from tests.acceptance.programs import environment, run
from workers import entry

ROOT = Path(__file__).parents[2]

#: SIGINT comes while $name is about to be imported.
INTERRUPT = """
import os, signal, sys
class Interrupt:
    def find_spec(self, name, path=None, target=None):
        if name == "{name}":
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Interrupt())
"""


def test_it_tells_its_version() -> None:
    done = run("--version", env=environment("none", "eb"))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert (done.returncode, done.stdout) == (0, f"eventbus {project['version']}\n")


@pytest.mark.parametrize("name", ["eventbus", "click", "eventbus.cli.exec", "eventbus.cli.command"])
def test_ctrl_c_during_the_imports_ends_it_without_a_word(name: str, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(INTERRUPT.format(name=name))
    env = environment("none", "eb") | {"PYTHONPATH": str(tmp_path)}
    done = run("exec", "echo", "ran", env=env)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def test_the_console_script_begins_where_that_is_so() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert project["scripts"] == {"eventbus": f"{entry.__name__}:{entry.main.__name__}"}
