"""Translates an API's refusal, a Status or the text of a proxy, into one of our errors."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from eventbus.errors import (
    AlreadyExists,
    BusRefused,
    BusUnavailable,
    Conflict,
    EventBusError,
    Expired,
    InvalidObject,
    NotFound,
)
from eventbus.model.decodable import decodable
from eventbus.util.text import cut_bytes, printable

#: Longest quote of a body that is not a Status.
QUOTE_BYTES = 200


class Cause(msgspec.Struct, frozen=True):
    """A cause in a Status."""

    reason: str = ""


class Details(msgspec.Struct, frozen=True, rename="camel"):
    """The fields of a Status' details that we use."""

    retry_after_seconds: int = 0
    causes: tuple[Cause, ...] | None = None


class Status(msgspec.Struct, frozen=True, rename="camel"):
    """Kubernetes' metav1.Status. *kind* is "" if the body was not a Status."""

    kind: str = ""
    message: str = ""
    reason: str = ""
    code: int = 0
    details: Details | None = None


def read_status(body: bytes) -> Status:
    """Return the Status in *body*; any other body becomes its message."""
    try:
        found = _DECODE(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        found = Status()
    if found.kind == "Status":
        return found
    return Status(message=cut_bytes(printable(body[:QUOTE_BYTES].decode("utf-8", "replace")), QUOTE_BYTES))


def error_of_reply(code: int, headers: Mapping[str, str], body: bytes, *, where: str) -> EventBusError:
    """Return the error for a response with this *code*, which is not 2xx. *where* names the server in messages."""
    pause = headers.get("retry-after") or ""
    pause_s = float(pause) if pause.isascii() and pause.isdecimal() else None
    return error_of_status(code, read_status(body), pause_s, where=where)


def error_of_status(code: int, status: Status, pause_s: float | None = None, *, where: str) -> EventBusError:
    """Return the error for a Status that came in another way, as in an event of a watch."""
    said = status.message or status.reason or f"HTTP {code}"
    if pause_s is None and status.details and status.details.retry_after_seconds > 0:
        pause_s = float(status.details.retry_after_seconds)
    match code:
        case 401:
            return BusRefused(
                f"{where} does not accept our credentials ({said}): set EVENTBUS_TOKEN_FILE or EVENTBUS_CLIENT_CERT"
            )
        case 404 if not status.kind:
            return BusRefused(f"{where} is no API of eventbus: correct EVENTBUS_URL ({said})")
        case 404:
            return NotFound(said)
        case 409:
            return AlreadyExists(said) if status.reason == "AlreadyExists" else Conflict(said)
        case 410:
            return Expired(said)
        case 504 if _names_version(status):  # a version from the future: the store has lost its latest changes
            return Expired(said)
        case 400 | 413 | 422:
            return InvalidObject(said)
        case 408 | 429:
            return BusUnavailable(f"{where} accepts no more requests now: {said}", retry_after_s=pause_s)
    if code >= 500:
        return BusUnavailable(f"{where} cannot do it now ({code}): {said}", retry_after_s=pause_s)
    return BusRefused(f"{where} refused ({code}): {said}")


def _names_version(status: Status) -> bool:
    causes = (status.details and status.details.causes) or ()
    return any(cause.reason == "ResourceVersionTooLarge" for cause in causes)


_DECODE = msgspec.json.Decoder(decodable(Status)).decode
