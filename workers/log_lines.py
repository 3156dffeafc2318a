"""Formats an event as one line of the fleet's log, and parses the uid of such a line.

Lines are safe for terminals and parsers: any event becomes exactly one line with one uid.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import UTC, datetime
from enum import StrEnum
from urllib.parse import quote

from eventbus.cli.printers.output import core_of
from eventbus.model.event import Event
from eventbus.util.text import printable


class Format(StrEnum):
    """The formats of a line, as `--format` names them."""

    TEXT = "text"
    JSON = "json"
    LOGFMT = "logfmt"


#: logfmt: values that need no quotes.
_BARE = re.compile(r"[!#-<>-~]+\Z")
#: Characters of our own uids. Other uids are percent-encoded in text and logfmt.
_PLAIN_UID = re.compile(r"[A-Za-z0-9._:-]+\Z")

_UID_OF_LOGFMT = re.compile(rb"uid=([^ ]*)(?: |\Z)")
_UID_OF_TEXT = re.compile(rb" uid=([^ ]*)\Z")
#: The first match is the uid in metadata: only name and namespace precede it, and their quotes are escaped.
_UID_OF_JSON = re.compile(rb'\A\{"kind":"Event",.*?"uid":"((?:[^"\\]|\\.)*)"')


def formatter(form: Format) -> Callable[[Event], str]:
    """Return the function from an event to its line, which ends with a newline."""
    return {Format.TEXT: _text_line, Format.JSON: json_line, Format.LOGFMT: _logfmt_line}[form]


def _text_line(event: Event) -> str:
    """Format for people: time, namespace, type, reason, object, source, message, uid, separated by two spaces."""
    about, source = event.involved_object, event.source
    who = f"{source.component}, {source.host}" if source.host else source.component
    cells = (
        _time(event.last_seen),
        event.metadata.namespace,
        f"{event.type:<7}",
        event.reason,
        f"{about.kind.lower()}/{about.name}",
        who,
        event.message.strip(),
    )
    return "  ".join(map(printable, cells)) + f"  uid={_bare_uid(event)}\n"


def json_line(event: Event) -> str:
    """Format as core/v1 JSON in ASCII; the uid is metadata.uid."""
    return json.dumps(core_of(event), ensure_ascii=True, allow_nan=False, separators=(",", ":")) + "\n"


def _logfmt_line(event: Event) -> str:
    """Format as key=value, the uid first; values are quoted as in JSON if necessary."""
    about, source = event.involved_object, event.source
    pairs = {
        "uid": _bare_uid(event),
        "time": _time(event.last_seen),
        "type": event.type,
        "reason": event.reason,
        "namespace": event.metadata.namespace,
        "kind": about.kind,
        "name": about.name,
        "component": source.component,
        "host": source.host,
        "message": event.message,
    }
    return " ".join(f"{key}={_logfmt(value)}" for key, value in pairs.items()) + "\n"


def uid_of_line(line: bytes) -> str | None:
    """Return the uid in a line of any format, given without its newline; None if it is not such a line."""
    if match := _UID_OF_JSON.match(line):
        uid: str = json.loads(b'"' + match[1] + b'"')
        return uid
    if match := _UID_OF_LOGFMT.match(line) or _UID_OF_TEXT.search(line):
        return match[1].decode("ascii", "replace")
    return None


def line_uid(event: Event, form: Format) -> str:
    """Return the uid that `uid_of_line` finds in the line of *event*."""
    return event.metadata.uid if form is Format.JSON else _bare_uid(event)


def begins_like_ours(torn: bytes) -> bool:
    """Return True if *torn* may be the start of such a line, cut off by a crash."""
    marks = (b'{"kind":"Event",', b"uid=")
    return any(torn.startswith(mark) or mark.startswith(torn) for mark in marks) or _begins_with_time(torn)


def _begins_with_time(torn: bytes) -> bool:
    shape = b"0000-00-00T00:00:00."
    digits = bytes.maketrans(b"123456789", b"000000000")
    match = torn[: len(shape)].translate(digits)
    return shape.startswith(match) or torn.startswith(b"-  ")


def _time(moment: datetime | None) -> str:
    if moment is None:
        return "-"
    return moment.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="milliseconds") + "Z"


def _bare_uid(event: Event) -> str:
    uid = event.metadata.uid
    return uid if _PLAIN_UID.match(uid) else quote(uid, safe=":", errors="replace")


def _logfmt(value: str) -> str:
    return value if _BARE.match(value) else json.dumps(value, ensure_ascii=True)
