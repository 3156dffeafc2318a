"""Refusals as the API server words them: `Status` objects, and what each error of ours is in HTTP."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec
from aiohttp import web

from eventbus.api.numbering import MadeAnew
from eventbus.errors import (
    AlreadyExists,
    BusFull,
    BusRefused,
    BusUnavailable,
    Conflict,
    EventBusError,
    Expired,
    InvalidEvent,
    InvalidObject,
    NotFound,
    Throttled,
)
from eventbus.selectors.labels import InvalidSelector
from eventbus.store.changes import AheadOfStore

#: Seconds after which a client comes again where nobody knows better; the API server's own.
RETRY_AFTER_S: Final = 1

_NAMED: Final = re.compile(r'(?:on )?(?P<resource>[a-z0-9-]+(?:\.[a-z0-9.-]+)?) "(?P<name>[^"]*)"')


class Cause(NamedTuple):
    """One field that is wrong."""

    reason: str
    message: str
    field: str


class Refusal(Exception):
    """A request that is answered with a Status of failure.

    Args: details: of the Status; None leaves them out, as the API server does for a plain bad request.
          retry_after_s: whole seconds, for the header and the details.
    """

    def __init__(
        self,
        code: int,
        reason: str,
        message: str,
        *,
        details: Mapping[str, Any] | None = None,
        retry_after_s: int | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        self.details = None if details is None else dict(details)
        self.headers = dict(headers or {})
        if retry_after_s is not None:
            self.details = (self.details or {}) | {"retryAfterSeconds": retry_after_s}
            self.headers["Retry-After"] = str(retry_after_s)

    def to_json(self) -> dict[str, Any]:
        """The Status, as a plain dict in Go's order."""
        plain: dict[str, Any] = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure"}
        if self.message:
            plain["message"] = self.message
        plain["reason"] = self.reason
        if self.details is not None:
            plain["details"] = self.details
        return plain | {"code": self.code}


def named(resource: str, name: str = "", **more: Any) -> dict[str, Any]:
    """The details of a Status about *resource*, as `leases.coordination.k8s.io`."""
    plural, _, group = resource.partition(".")
    details: dict[str, Any] = {"name": name} if name else {}
    if group:
        details["group"] = group
    return details | {"kind": plural} | more


def bad_request(message: str) -> Refusal:
    """400: what was sent cannot be read."""
    return Refusal(400, "BadRequest", message)


def unauthorized() -> Refusal:
    """401: nobody is known by that."""
    return Refusal(401, "Unauthorized", "Unauthorized")


def forbidden(resource: str, name: str, why: str) -> Refusal:
    """403. *resource* as `events`, `leases.coordination.k8s.io`; *why* names the user, the verb and the place."""
    about = f'{resource} "{name}"' if name else resource
    return Refusal(403, "Forbidden", f"{about} is forbidden: {why}", details=named(resource, name))


def forbidden_path(user: str, path: str) -> Refusal:
    """403 of what is no resource."""
    return Refusal(403, "Forbidden", f'forbidden: User "{user}" cannot get path "{path}"', details={})


def not_found(resource: str, name: str) -> Refusal:
    """404 of an object. *resource* as `events`."""
    return Refusal(404, "NotFound", f'{resource} "{name}" not found', details=named(resource, name))


def no_such_path(message: str = "the server could not find the requested resource") -> Refusal:
    """404 of a path under which nothing is served."""
    return Refusal(404, "NotFound", message, details={})


def method_not_allowed() -> Refusal:
    """405: it is served, and not that way."""
    message = "the server does not allow this method on the requested resource"
    return Refusal(405, "MethodNotAllowed", message, details={})


def not_acceptable(accepted: Sequence[str]) -> Refusal:
    """406, with the media types that could be answered."""
    message = f"only the following media types are accepted: {', '.join(accepted)}"
    return Refusal(406, "NotAcceptable", message, details={})


def already_exists(resource: str, name: str) -> Refusal:
    """409: create finds the name taken."""
    return Refusal(409, "AlreadyExists", f'{resource} "{name}" already exists', details=named(resource, name))


def too_large(limit: int) -> Refusal:
    """413. *limit* in bytes of the body."""
    return too_much(f"limit is {limit} bytes")


def too_much(problem: str) -> Refusal:
    """413. *problem*: the bound, and what is beyond it."""
    return Refusal(413, "RequestEntityTooLarge", f"Request entity too large: {problem}", details={})


def unsupported_media_type(accepted: Sequence[str]) -> Refusal:
    """415, with the media types that can be read."""
    message = f"the body of the request was in an unknown format - accepted media types include: {', '.join(accepted)}"
    return Refusal(415, "UnsupportedMediaType", message, details={})


def invalid(kind: str, name: str, causes: Sequence[Cause], *, group: str = "") -> Refusal:
    """422 with all that is wrong. *kind* as `Event`; *group* that of the kind."""
    said = [f"{cause.field}: {cause.message}" for cause in causes]
    text = said[0] if len(said) == 1 else f"[{', '.join(said)}]"
    details: dict[str, Any] = {"name": name} if name else {}
    if group:
        details["group"] = group
    if kind:
        details["kind"] = kind
    details["causes"] = [cause._asdict() for cause in causes]
    about = f"{kind}.{group}" if group else kind
    return Refusal(422, "Invalid", f'{about} "{name}" is invalid: {text}', details=details)


def too_many(message: str, retry_after_s: float = RETRY_AFTER_S) -> Refusal:
    """429; clients of Kubernetes come again only because of the header."""
    return Refusal(429, "TooManyRequests", message, retry_after_s=max(1, math.ceil(retry_after_s)))


def unavailable(message: str) -> Refusal:
    """503, and when to come again: Redis does not answer, or has lost it meanwhile."""
    return Refusal(503, "ServiceUnavailable", message, retry_after_s=RETRY_AFTER_S)


def internal() -> Refusal:
    """Answer 500. What went wrong stands in the log, not here."""
    return Refusal(500, "InternalError", "Internal error occurred; the log of the API worker says more", details={})


def refusal_of(error: EventBusError) -> Refusal:
    """Translate an error of the store into its answer to a client."""
    message = str(error)
    details = _details(message)
    match error:
        case NotFound():
            return Refusal(404, "NotFound", message, details=details)
        case AlreadyExists():
            return Refusal(409, "AlreadyExists", message, details=details)
        case Conflict():
            return Refusal(409, "Conflict", message, details=details)
        case AheadOfStore():
            return _too_large_version(message)
        case MadeAnew():  # nobody has asked for what is lost
            return unavailable(message)
        case Expired():
            return Refusal(410, "Expired", message)
        case InvalidSelector():
            return bad_request(message)
        case InvalidObject() | InvalidEvent():
            return _invalid(message)
        case BusFull():
            return too_many(message)
        case Throttled():
            return too_many(message, error.retry_after_s or RETRY_AFTER_S)
        case BusUnavailable():
            return unavailable(f"Redis cannot do it now: {message}")
        case BusRefused():
            return Refusal(403, "Forbidden", f"the API worker's Redis user may not do that: {message}", details={})
    return bad_request(message)


def refusal_of_http(error: web.HTTPException) -> Refusal:
    """Translate what aiohttp refuses by itself."""
    match error.status:
        case 404:
            return no_such_path()
        case 405:
            return method_not_allowed()
        case 413:
            return Refusal(413, "RequestEntityTooLarge", "the body of the request is too large", details={})
        case code if code >= 500:
            return internal()
    return Refusal(error.status, "BadRequest", error.reason or "bad request", details={})


def response(refusal: Refusal) -> web.Response:
    """The answer. `Content-Type` is exactly application/json: lightkube understands no other."""
    body = msgspec.json.encode(refusal.to_json()) + b"\n"
    answer = web.Response(status=refusal.code, body=body, headers=refusal.headers, content_type="application/json")
    protect(answer)  # here, too: some are sent where no application is asked
    return answer


def protect(answer: web.StreamResponse) -> None:
    """Let no browser guess the type of *answer*, and no cache store it; documents with a tag are revalidated."""
    headers = answer.headers
    headers.setdefault("X-Content-Type-Options", "nosniff")
    headers.setdefault("Cache-Control", "no-cache" if "ETag" in headers else "no-store")


def _too_large_version(message: str) -> Refusal:
    cause = {"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}
    headers = {"Retry-After": str(RETRY_AFTER_S)}
    return Refusal(504, "Timeout", f"Timeout: {message}", details={"causes": [cause]}, headers=headers)


def _details(message: str) -> dict[str, Any]:
    found = _NAMED.search(message)
    return {} if found is None else named(found["resource"], found["name"])


def _invalid(message: str) -> Refusal:
    """The store says `Kind "name" is invalid: field: problem`, or only `field: problem`."""
    about, said, rest = message.partition(" is invalid: ")
    kind, _, name = about.partition(" ") if said else ("", "", "")
    kind, _, group = kind.partition(".")
    field, _, problem = (rest if said else message).partition(": ")
    cause = Cause(reason_of(problem), problem or message, field if problem else "")
    return Refusal(
        422,
        "Invalid",
        message,
        details=({"name": name.strip('"')} if name.strip('"') else {})
        | ({"group": group} if group else {})
        | ({"kind": kind} if said else {})
        | {"causes": [cause._asdict()]},
    )


def reason_of(problem: str) -> str:
    """The reason of a cause, by how its text begins."""
    reasons = {
        "Required value": "FieldValueRequired",
        "Forbidden": "FieldValueForbidden",
        "Unsupported value": "FieldValueNotSupported",
    }
    return next((reason for start, reason in reasons.items() if problem.startswith(start)), "FieldValueInvalid")
