"""What the doctor says: one finding a check, with its severity and, where something is wrong, its cure."""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum

import msgspec

from eventbus.errors import EventBusError

_UNKNOWN = "eventbus does not know this answer: look into the server's log"


class Severity(IntEnum):
    """How bad it is; the number is the exit code of `eventbus doctor`."""

    OK = 0
    WARNING = 1  #: it works, and something is or will be lost, slow or unsafe
    ERROR = 2  #: it does not work, or will lose events


class Finding(msgspec.Struct, frozen=True):
    """The answer of one check."""

    check: str
    severity: Severity
    message: str
    cure: str = ""  #: empty where nothing is wrong


def ok(check: str, message: str) -> Finding:
    """Nothing is wrong."""
    return Finding(check, Severity.OK, message)


def warning(check: str, message: str, cure: str) -> Finding:
    """It works, but."""
    return Finding(check, Severity.WARNING, message, cure)


def error(check: str, message: str, cure: str) -> Finding:
    """It does not work."""
    return Finding(check, Severity.ERROR, message, cure)


def failed(check: str, problem: EventBusError, cure: str = "") -> Finding:
    """The check could not be made, or met *problem*; *cure* where that has none of its own."""
    text = str(problem)
    if problem.cure:
        text = text.replace(f": {problem.cure}", "", 1)
    return error(check, text, problem.cure or cure or _UNKNOWN)


def worst(findings: Iterable[Finding]) -> Severity:
    """The severity of all of them together."""
    return max((finding.severity for finding in findings), default=Severity.OK)
