"""The console command itself, whichever command it is asked for."""

from __future__ import annotations

import tomllib
from importlib.metadata import version
from pathlib import Path

import pytest

from eventbus import __main__ as command
from tests.acceptance.programs import environment, run

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
    done = run("--version", env=environment("none", "eb"), afresh=True)
    assert (done.returncode, done.stdout) == (0, f"eventbus {version('eventbus')}\n")


KINDS = "acknowledgements, configmaps, events, expected, leases, nodes, pods, secrets, silences, suppressed"
HAS = f"it has {KINDS}. Events of"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("gt", "No such command 'gt'. Did you mean 'get'?"),
        ("get evnnts", "No such command 'evnnts'. Did you mean 'events'?"),
        ("worker snk", "No such command 'snk'. Did you mean 'sink'?"),
        ("options st", "No such command 'st'. Did you mean 'set'?"),
        ("get nothing-like-it", "No such command 'nothing-like-it'."),
        ("get services", f'the store has no "services"; {HAS} a service: eventbus get events --for service/NAME'),
        ("get svc/web", f'the store has no "svc"; {HAS} a service: eventbus get events --for service/web'),
        ("get orders", f'the store has no "orders"; {HAS} an object: eventbus get events --for KIND/NAME'),
        ("get order/7", f'the store has no "order"; {HAS} an object: eventbus get events --for KIND/7'),
    ],
)
def test_a_word_that_is_no_command_leads_on(words: str, said: str) -> None:
    done = run(*words.split(), env=environment("none", "eb"))
    assert (done.returncode, done.stderr.splitlines()[-1]) == (2, f"Error: {said}")


@pytest.mark.parametrize("name", ["click", "eventbus.cli.commands.exec", "eventbus.cli.process.command"])
def test_ctrl_c_during_the_imports_ends_it_without_a_word(name: str, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(INTERRUPT.format(name=name))
    env = environment("none", "eb") | {"PYTHONPATH": str(tmp_path)}
    done = run("exec", "echo", "ran", env=env)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def test_the_console_script_begins_where_that_is_so() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert project["scripts"] == {"eventbus": f"{command.__name__}:{command.main.__name__}"}
