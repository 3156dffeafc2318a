"""The doctor's findings: one a check, with its severity and, if something is wrong, its cure."""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum

import msgspec

from eventbus.errors import EventBusError

_UNKNOWN = "eventbus does not know this answer: look into the server's log"


class Severity(IntEnum):
    """The severity of a finding; the number is the exit code of `eventbus doctor`."""

    OK = 0
    WARNING = 1  #: it works, and something is or will be lost, slow or unsafe
    ERROR = 2  #: it does not work, or will lose events


class Finding(msgspec.Struct, frozen=True):
    """The result of one check."""

    check: str
    severity: Severity
    message: str
    cure: str = ""  #: empty where nothing is wrong


def ok(check: str, message: str) -> Finding:
    """Make a finding: nothing is wrong."""
    return Finding(check, Severity.OK, message)


def warning(check: str, message: str, cure: str) -> Finding:
    """Make a finding: it works, but something should be changed."""
    return Finding(check, Severity.WARNING, message, cure)


def error(check: str, message: str, cure: str) -> Finding:
    """Make a finding: it does not work."""
    return Finding(check, Severity.ERROR, message, cure)


def failed(check: str, problem: EventBusError, cure: str = "") -> Finding:
    """Make a finding: the check could not be made, or met *problem*; *cure* is used if that has none of its own."""
    text = str(problem)
    if problem.cure:
        text = text.replace(f": {problem.cure}", "", 1)
    return error(check, text, problem.cure or cure or _UNKNOWN)


def worst(findings: Iterable[Finding]) -> Severity:
    """Return the worst severity of *findings*."""
    return max((finding.severity for finding in findings), default=Severity.OK)
