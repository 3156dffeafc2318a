"""The doctor's check of notifiers: does one act, and do all have its rules?"""

from __future__ import annotations

from eventbus.broker.health.bus_checks import check_notifier
from eventbus.broker.health.findings import Severity
from eventbus.broker.notifications import NotifierFile, NotifierStatus

NOW_MS = 10_000_000


def file(worker: str, hash_: str = "aa", *, rejected: bool = False, seen_ms: int = NOW_MS) -> NotifierFile:
    return NotifierFile(worker, hash_, rejected, seen_ms)


def findings(status: NotifierStatus | None) -> list[tuple[Severity, str]]:
    return [(finding.severity, finding.message) for finding in check_notifier(status, 3, NOW_MS)]


def test_a_bus_that_never_had_a_notifier_needs_none() -> None:
    assert findings(None) == []


def test_one_that_acts_is_enough() -> None:
    status = NotifierStatus("one", {}, (file("one"), file("two"), file("gone", "bb", seen_ms=1)))
    assert findings(status) == [(Severity.OK, "one sends notifications")]


def test_without_a_worker_that_acts_there_is_a_warning() -> None:
    text = "no worker sends notifications, with a lag of 3 changes"
    assert findings(NotifierStatus("", {}, (file("two"),))) == [(Severity.WARNING, text)]
    assert findings(NotifierStatus("one", {}, (file("one", seen_ms=1),))) == [(Severity.WARNING, text)]


def test_workers_with_other_rules_or_rejected_ones_are_named() -> None:
    status = NotifierStatus("one", {}, (file("one"), file("two", "bb"), file("three", rejected=True)))
    assert findings(status) == [
        (Severity.WARNING, "two has another rules file than one, which acts"),
        (Severity.WARNING, "three has rejected its rules file, and uses the former rules"),
    ]
