"""The states of expected events, and the doctor's finding about missing ones."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from eventbus.broker.health.bus_checks import check_expected
from eventbus.broker.health.expected_status import ExpectedState, status_of
from eventbus.broker.notifications import ExpectedEvent
from eventbus.model.event import ObjectReference

NOW = datetime(2026, 11, 26, 12, tzinfo=UTC)


def ms(hours: float) -> int:
    return int((NOW + timedelta(hours=hours)).timestamp() * 1000)


def expected(name: str = "nightly", **more: Any) -> ExpectedEvent:
    about = ObjectReference(kind="Backup", namespace="shop", name="db")
    times = {"since_ms": ms(-50), "base_ms": ms(-20), "due_ms": ms(1), "deadline_ms": ms(2)} | more
    return ExpectedEvent(name=name, object=about, **times)


@pytest.mark.parametrize(
    ("event", "state"),
    [
        (expected(), ExpectedState.WAITING),
        (expected(last_ms=ms(-20)), ExpectedState.ARRIVED),
        (expected(last_ms=ms(-20), due_ms=ms(-1)), ExpectedState.LATE),
        (expected(due_ms=ms(-2), deadline_ms=ms(-1)), ExpectedState.LATE),  # the notifier has not decided yet
        (expected(last_ms=ms(-20), due_ms=ms(-2), missing_ms=ms(-1)), ExpectedState.MISSING),
    ],
)
def test_the_state_follows_from_arrival_due_time_and_the_notifier(event: ExpectedEvent, state: ExpectedState) -> None:
    assert status_of(event, NOW).state is state


def test_the_doctor_names_missing_events_and_no_others() -> None:
    assert list(check_expected([status_of(expected(due_ms=ms(-1)), NOW)])) == []
    missing = [status_of(expected(f"job-{number}", missing_ms=ms(-1)), NOW) for number in range(7)]
    (finding,) = check_expected(missing)
    assert finding.message == "expected events are missing: job-0, job-1, job-2, job-3, job-4 and 2 more"
