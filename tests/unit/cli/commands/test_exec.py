"""Pauses between runs are the kubelet's, and `eventbus exec` runs a command again exactly when it should."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import pytest

from eventbus.agent.runtime.restart_backoff import RestartBackoff
from eventbus.cli.commands.exec import Restart, supervise
from eventbus.cli.commands.exec_events import CommandEvents
from eventbus.cli.process.command import CannotStart, Command
from eventbus.testing.clock import FakeClock
from eventbus.util.outcome import Outcome


class Script:
    """Plays runs on a fake clock, and notes what happens when: command, diary and pause in one."""

    def __init__(self, *runs: tuple[float, int] | OSError, signals: dict[int, int] | None = None) -> None:
        self.clock = FakeClock()
        self.said: list[tuple[float, str]] = []
        self.asked_to_end = False
        self._runs = list(runs)
        self._signals = signals or {}  # number of the pause → the signal that ends it
        self._pauses = 0
        self.pauses: list[float] = []

    def run(self, on_start: Callable[[], object]) -> Outcome:
        run = self._runs.pop(0)
        if isinstance(run, OSError):
            raise CannotStart(run)
        on_start()
        ran_s, code = run
        self.clock.advance(ran_s)
        return Outcome(code, ran_s=ran_s)

    def pause(self, seconds: float) -> int:
        self._pauses += 1
        self.pauses.append(round(seconds, 3))
        if number := self._signals.get(self._pauses):
            return number
        self.clock.advance(seconds)
        return 0

    def started(self) -> None:
        self._say("Started")

    def ended(self, outcome: Outcome) -> None:
        self._say(f"ended {outcome.code}")

    def cannot_start(self, outcome: Outcome) -> None:
        self._say(f"not there {outcome.code}")

    def backing_off(self) -> None:
        self._say("BackOff")

    def not_restarting(self, number: int) -> None:
        self._say(f"Killing {number}")

    def _say(self, text: str) -> None:
        self.said.append((self.clock.monotonic(), text))

    def play(self, restart: str) -> Outcome:
        return supervise(
            cast(Command, self),
            cast(CommandEvents, self),
            restart=Restart(restart),
            backoff=RestartBackoff(self.clock),
            pause=self.pause,
        )


def test_a_command_that_fails_is_run_again_after_each_pause_until_it_succeeds() -> None:
    script = Script((1, 3), (2, 3), (5, 0))
    assert script.play("on-failure").code == 0
    assert script.said == [
        (0, "Started"),
        (1, "ended 3"),
        (1, "Started"),
        (3, "ended 3"),
        (3, "BackOff"),
        (13, "Started"),
        (18, "ended 0"),
    ]


@pytest.mark.parametrize(
    ("restart", "code", "runs"), [("never", 1, 1), ("never", 0, 1), ("on-failure", 0, 1), ("always", 0, 2)]
)
def test_how_often_a_run_that_ended_is_followed_by_another(restart: str, code: int, runs: int) -> None:
    script = Script((1, code), (1, code), signals={2: 15})
    script.play(restart)
    assert [text for _, text in script.said].count("Started") == runs


def test_a_signal_during_a_pause_ends_it_all_as_that_signal() -> None:
    script = Script((1, 1), signals={1: 15})
    assert script.play("on-failure") == Outcome(128 + 15, 15)


def test_a_command_that_was_asked_to_end_is_not_run_again() -> None:
    script = Script((1, 143))
    script.asked_to_end = True
    assert script.play("always").code == 143
    assert [text for _, text in script.said] == ["Started", "ended 143"]


def test_a_command_that_is_not_there_at_first_is_not_tried_again() -> None:
    script = Script(FileNotFoundError(2, "No such file or directory"))
    with pytest.raises(CannotStart) as caught:
        script.play("on-failure")
    assert caught.value.outcome.code == 127
    assert script.said == [(0, "not there 127")]


def test_a_command_that_vanishes_between_runs_is_waited_for() -> None:
    script = Script((1, 1), FileNotFoundError(2, "No such file or directory"), (1, 0))
    assert script.play("on-failure").code == 0
    assert [text for _, text in script.said] == [
        "Started",
        "ended 1",
        "not there 127",
        "BackOff",
        "Started",
        "ended 0",
    ]
