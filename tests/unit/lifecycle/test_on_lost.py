"""The command of `--on-lost`."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from eventbus.lifecycle.on_lost import LostCommand
from eventbus.model.objects.cluster import WARNING, Transition
from tests.waiting import eventually

LOST = Transition(WARNING, "NodeNotReady", "Node status is now: NodeNotReady", None)


def test_a_stop_waits_for_the_running_command_and_starts_no_other(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "go")
    command = LostCommand(f"read line < {tmp_path}/go; echo $EVENTBUS_NODE >> {tmp_path}/lost")
    command.run_for("n1", LOST)
    with (tmp_path / "go").open("w") as go:  # opens when the command reads
        command.run_for("n2", LOST)
        command.stop(0)
        go.write("\n")
    command.stop(60)
    assert (tmp_path / "lost").read_text() == "n1\n"


def test_a_command_that_fails_is_logged_with_its_node(caplog: pytest.LogCaptureFixture) -> None:
    command = LostCommand("exit 3")
    command.run_for("n1", LOST)
    eventually(lambda: caplog.messages)
    command.stop(60)
    assert caplog.messages == ["--on-lost for node n1: ended with exit code 3"]
