"""The words of `eventbus exec` about events that were not sent."""

from __future__ import annotations

import logging
import os
import signal
import sys

import pytest

from eventbus.cli.commands import exec_events
from eventbus.cli.commands.exec_events import CommandEvents, RecordingProcess, Unsent
from eventbus.cli.commands.exec_recording import LastProblem
from eventbus.model.event import ObjectReference
from eventbus.record.losses import Losses
from eventbus.testing.clock import FakeClock


def test_an_unexpected_error_is_named() -> None:
    logger, problem = logging.Logger("outbox"), LastProblem()
    logger.addHandler(problem)
    try:
        raise PermissionError(13, "Permission denied")
    except PermissionError:
        logger.exception("the outbox goes on after an unexpected error")
    assert problem.text == (
        "the outbox goes on after an unexpected error (PermissionError: [Errno 13] Permission denied)"
    )


def test_the_count_of_what_is_left_does_not_hide_what_was_in_the_way(caplog: pytest.LogCaptureFixture) -> None:
    problem = LastProblem()
    losses = Losses(FakeClock())
    logger = logging.getLogger("eventbus")
    logger.addHandler(problem)
    try:
        losses.log("waits", "redis://there: nothing listens there (events waiting: 2)")
        losses.count("unsent", 2, "closed before Redis had them")
    finally:
        logger.removeHandler(problem)
    assert problem.text == "redis://there: nothing listens there"
    assert caplog.messages[-1] == "2 events unsent: closed before Redis had them"


def test_a_recording_process_that_cannot_be_started_costs_only_the_events(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/no/such/python")
    events = CommandEvents(ObjectReference("Job", "default", "x"), "x")
    events.started()
    events.backing_off()
    problem = "the recording process cannot be started: No such file or directory"
    assert events.close() == f"2 events not sent: {problem}"


def test_a_stopped_recording_process_does_not_hold_up_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exec_events, "START_S", 0.1)
    monkeypatch.setenv("EVENTBUS_FLUSH_S", "0.1")
    process = RecordingProcess()
    os.kill(process.pid, signal.SIGSTOP)
    assert process.end() == Unsent(0, "the recording process was ended by SIGKILL, and may have sent them")
