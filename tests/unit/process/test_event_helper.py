"""event_helper.py: what it counts as lost where the process that records dies."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from eventbus.process import event_helper
from eventbus.process.event_helper import EventHelper
from tests.waiting import eventually


def recorded_by(
    program: str, monkeypatch: pytest.MonkeyPatch, *, about: str = "", last: str = "Completed it"
) -> tuple[int, str]:
    """Record two events with helpers that are *program*."""
    monkeypatch.setattr(event_helper, "_PROGRAM", ("-I", "-S", "-c", program))
    helper = EventHelper({"about": about})
    helper.record("Normal", "Started", "Started it")
    helper.record("Normal", "Completed", last)
    return helper.close()


def test_events_that_no_helper_lives_long_enough_to_be_told_are_each_lost_once(monkeypatch: pytest.MonkeyPatch) -> None:
    # More than a socket holds, so that it dies before the first event can be sent to it.
    unsent = recorded_by("raise SystemExit(3)", monkeypatch, about="x" * 2_000_000)
    assert unsent == (2, "the process that records them ended with code 3")


def test_what_was_confirmed_is_not_lost_with_the_helper(monkeypatch: pytest.MonkeyPatch) -> None:
    reads = "import os; line = os.fdopen(0)\nfor _ in range(3): line.readline()\nos.write(0, b'sent 2\\n')"
    assert recorded_by(reads, monkeypatch) == (0, "")


def first_and_then(first: str, folder: Path) -> str:
    """A program that is *first* where it is run first; later it writes down what it is told, and confirms it."""
    return f"""
import json, os
line, folder = os.fdopen(0), {str(folder)!r}
if not os.path.exists(folder + "/begun"):
    open(folder + "/begun", "w").close()
    {first}
    raise SystemExit(3)
with open(folder + "/told", "a") as told:
    told.writelines(json.loads(said)["reason"] + " " for said in list(line)[1:])
os.write(0, b'{{"unsent": 0, "why": ""}}\\n')
"""


@pytest.mark.parametrize(
    ("first", "unsent", "told"),
    [
        ("pass", 0, "Started Completed "),
        ("line.readline(), line.readline()", 0, "Started Completed "),
        ("line.readline(), line.readline(), os.write(0, b'taken 1\\n')", 1, "Completed "),
        ("line.readline(), line.readline(), os.write(0, b'taken 1\\nsent 1\\n')", 0, "Completed "),
        ("line.readline(), line.readline(), os.write(0, b'taken 1\\nsent 1\\ntak')", 0, "Completed "),
    ],
    ids=["nothing read", "nothing said to be taken", "one taken", "one sent", "dead in the middle of a line"],
)
def test_what_a_helper_that_died_had_not_taken_is_given_to_the_next(
    first: str, unsent: int, told: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    lost, why = recorded_by(first_and_then(first, tmp_path), monkeypatch)
    assert (lost, (tmp_path / "told").read_text()) == (unsent, told)
    assert why == ("the process that records them ended with code 3" if unsent else "")


def test_what_a_helper_has_taken_is_not_given_to_the_next_though_it_died_while_it_was_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    takes_one = "line.readline(), line.readline(), os.write(0, b'taken 1\\n')"
    lost, _ = recorded_by(first_and_then(takes_one, tmp_path), monkeypatch, last="x" * 2_000_000)
    assert (lost, (tmp_path / "told").read_text()) == (1, "Completed ")


def test_a_helper_outlives_what_the_terminal_sent_while_it_was_started(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    program = tmp_path / "python"
    program.write_text(
        f"#!{sys.executable} -IS\nimport os, signal, sys\n"
        "for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGTSTP): os.kill(os.getpid(), number)\n"
        f"os.execv({sys.executable!r}, [{sys.executable!r}, *sys.argv[1:]])\n"
    )
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))
    monkeypatch.setenv("EVENTBUS_REDIS_URL", "none")
    helper = EventHelper({"about": None, "namespace": "default", "command": "it"})
    helper.record("Normal", "Started", "Started it")
    assert helper.close() == (0, "")


def test_an_event_has_a_second_try_though_an_earlier_helper_died_too(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """One dies, one takes what there is and ends well, one dies: no two in a row have taken nothing."""
    program = f"""
import json, os
line, folder = os.fdopen(0), {str(tmp_path)!r}
run = len(os.listdir(folder))
open(f"{{folder}}/{{run}}", "w").close()
if run in (0, 2):
    raise SystemExit(3)
line.readline()
told = line.readline() if run == 1 else ""
if run == 1:
    os.write(0, b"sent 1\\n")
told += line.read()  # until it is let go
os.write(0, b'{{"unsent": 0, "why": ""}}\\n')
open(f"{{folder}}/{{run}}", "w").write(told)
"""
    monkeypatch.setattr(event_helper, "_PROGRAM", ("-I", "-S", "-c", program))
    helper = EventHelper({})
    helper.record("Normal", "Started", "Started it")
    eventually(lambda: (tmp_path / "1").exists() and "Started" in (tmp_path / "1").read_text())
    helper.record("Normal", "Completed", "Completed it")
    assert helper.close() == (0, "")
    assert "Completed" in (tmp_path / "3").read_text()
