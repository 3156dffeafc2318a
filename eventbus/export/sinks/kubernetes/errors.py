"""Translates answers of the API server, or their absence, for the export loop (reference: Status of the API)."""

from __future__ import annotations

from typing import Any, Final

import httpx2
import msgspec
from lightkube.core.exceptions import ConfigError as ClientConfigError

from eventbus.errors import (
    AlreadyExists,
    EventBusError,
    EventRejected,
    NotFound,
    SinkError,
    SinkUnreachable,
    Throttled,
    UnexpectedReply,
)
from eventbus.export.sinks.retry_after import retry_after_s
from eventbus.util.text import cut_bytes, printable

#: No event can be written: missing or wrong credentials, no permission, a timeout, or an error of a proxy.
_UNREACHABLE: Final = frozenset({401, 403, 408, 502, 503, 504})
#: The event itself is invalid; a retry cannot succeed.
_REJECTED: Final = frozenset({400, 404, 405, 406, 410, 413, 415, 422})
#: The API server sends these with a Status. Without one, a proxy has answered or the URL is wrong: all events fail.
_ABOUT_THE_PATH: Final = frozenset({404, 405, 406})
_TERMINATING: Final = "NamespaceTerminating"


class Conflict(SinkError):
    """Another client changed it since it was read. Cure: read it again; it never leaves the sink."""


def translate(error: BaseException, *, create: bool) -> EventBusError | None:
    """Return the error to raise; None: it is not one of the client's.

    Args:     create: a 409 then means that it exists, a 404 that its namespace does not.
    """
    answered = _answer(error)
    if answered is not None:
        return _of_answer(answered.response, create=create)
    if isinstance(error, httpx2.HTTPError | httpx2.InvalidURL | httpx2.StreamError | ClientConfigError | OSError):
        return SinkUnreachable(_short(f"{type(error).__name__}: {error}"))
    if isinstance(error, msgspec.MsgspecError | ValueError | KeyError | TypeError):
        return UnexpectedReply(_short(f"the reply cannot be read: {error!r}"))
    return None


def _answer(error: BaseException | None) -> httpx2.HTTPStatusError | None:
    # lightkube raises another exception if an error reply has no JSON or no type. The reply is then its context.
    while error is not None and not isinstance(error, httpx2.HTTPStatusError):
        error = error.__context__
    return error


def _of_answer(response: httpx2.Response, *, create: bool) -> EventBusError:
    status = _status(response)
    text = _short(f"{response.status_code} {status.get('message') or response.reason_phrase}")
    code = response.status_code
    if code == 403 and _is_terminating(status):
        return EventRejected(text)
    pause_s = retry_after_s(response.headers.get("retry-after"))
    if code == 429 or (code == 503 and pause_s is not None):
        return Throttled(text, pause_s)
    if code in _UNREACHABLE or (code in _ABOUT_THE_PATH and status.get("kind") != "Status"):
        return SinkUnreachable(text, status=code)
    if code == 404 and not create:
        return NotFound(text)
    if code == 409:
        return AlreadyExists(text) if create else Conflict(text)
    return EventRejected(text) if code in _REJECTED else UnexpectedReply(text, status=code)


def _is_terminating(status: dict[str, Any]) -> bool:
    """Return True if the namespace is being deleted: no event will ever get in, while all others do."""
    details = status.get("details")
    causes = details.get("causes") if isinstance(details, dict) else None
    return any(isinstance(cause, dict) and cause.get("reason") == _TERMINATING for cause in causes or ())


def _status(response: httpx2.Response) -> dict[str, Any]:
    try:
        found = msgspec.json.decode(response.content)
    except (msgspec.MsgspecError, httpx2.StreamError):
        return {}
    return found if isinstance(found, dict) else {}


def _short(text: str) -> str:
    return cut_bytes(printable(text), 300)
