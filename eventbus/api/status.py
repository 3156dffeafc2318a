"""Maps errors to HTTP: `Status` objects with the API server's messages."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec
from aiohttp import web

from eventbus.api.versions.numbering import MadeAnew
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
    ObjectError,
    PasswordRefused,
    Throttled,
)
from eventbus.model.selectors import InvalidSelector
from eventbus.store.changes import AheadOfStore

#: Default seconds before a client retries, as in the API server.
RETRY_AFTER_S: Final = 1


class Cause(NamedTuple):
    """One invalid field."""

    reason: str
    message: str
    field: str


class ApiError(Exception):
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


def bad_request(message: str) -> ApiError:
    """400: the request cannot be read."""
    return ApiError(400, "BadRequest", message)


def unauthorized() -> ApiError:
    """401: the credentials are missing or unknown."""
    return ApiError(401, "Unauthorized", "Unauthorized")


def forbidden(resource: str, name: str, why: str) -> ApiError:
    """403. *resource*: such as `events`, `leases.coordination.k8s.io`; *why* names user, verb and namespace."""
    about = f'{resource} "{name}"' if name else resource
    return ApiError(403, "Forbidden", f"{about} is forbidden: {why}", details=named(resource, name))


def forbidden_path(user: str, path: str) -> ApiError:
    """403 for a path that is not a resource."""
    return ApiError(403, "Forbidden", f'forbidden: User "{user}" cannot get path "{path}"', details={})


def not_found(resource: str, name: str) -> ApiError:
    """404 for an object. *resource*: such as `events`."""
    return ApiError(404, "NotFound", f'{resource} "{name}" not found', details=named(resource, name))


def no_such_path(message: str = "the server could not find the requested resource") -> ApiError:
    """404 for an unknown path."""
    return ApiError(404, "NotFound", message, details={})


def method_not_allowed() -> ApiError:
    """405: the path is served, but not with this method."""
    message = "the server does not allow this method on the requested resource"
    return ApiError(405, "MethodNotAllowed", message, details={})


def not_acceptable(accepted: Sequence[str]) -> ApiError:
    """406, with the media types that can be answered."""
    message = f"only the following media types are accepted: {', '.join(accepted)}"
    return ApiError(406, "NotAcceptable", message, details={})


def already_exists(resource: str, name: str) -> ApiError:
    """409: a create uses a name that exists."""
    return ApiError(409, "AlreadyExists", f'{resource} "{name}" already exists', details=named(resource, name))


def too_large(limit: int) -> ApiError:
    """413. *limit*: maximum bytes of the body."""
    return too_much(f"limit is {limit} bytes")


def too_much(problem: str) -> ApiError:
    """413. *problem*: the limit, and the actual size."""
    return ApiError(413, "RequestEntityTooLarge", f"Request entity too large: {problem}", details={})


def unsupported_media_type(accepted: Sequence[str]) -> ApiError:
    """415, with the media types that can be read."""
    message = f"the body of the request was in an unknown format - accepted media types include: {', '.join(accepted)}"
    return ApiError(415, "UnsupportedMediaType", message, details={})


def invalid(kind: str, name: str, causes: Sequence[Cause], *, group: str = "") -> ApiError:
    """422 with all causes. *kind*: such as `Event`; *group*: the kind's."""
    problems = [f"{cause.field}: {cause.message}" for cause in causes]
    text = problems[0] if len(problems) == 1 else f"[{', '.join(problems)}]"
    details: dict[str, Any] = {"name": name} if name else {}
    if group:
        details["group"] = group
    if kind:
        details["kind"] = kind
    details["causes"] = [cause._asdict() for cause in causes]
    about = f"{kind}.{group}" if group else kind
    return ApiError(422, "Invalid", f'{about} "{name}" is invalid: {text}', details=details)


def too_many(message: str, retry_after_s: float = RETRY_AFTER_S) -> ApiError:
    """429. Kubernetes clients retry only because of the header."""
    return ApiError(429, "TooManyRequests", message, retry_after_s=max(1, math.ceil(retry_after_s)))


def unavailable(message: str) -> ApiError:
    """503, with a time to retry: Redis does not answer, or has lost the data."""
    return ApiError(503, "ServiceUnavailable", message, retry_after_s=RETRY_AFTER_S)


def internal() -> ApiError:
    """500. The cause is in the log only."""
    return ApiError(500, "InternalError", "Internal error occurred; the log of the API worker says more", details={})


def api_error_of(error: EventBusError) -> ApiError:
    """Convert an error of the store to a error."""
    message = str(error)
    details = named(error.resource, error.name) if isinstance(error, ObjectError) and error.resource else {}
    match error:
        case NotFound():
            return ApiError(404, "NotFound", message, details=details)
        case AlreadyExists():
            return ApiError(409, "AlreadyExists", message, details=details)
        case Conflict():
            return ApiError(409, "Conflict", message, details=details)
        case AheadOfStore():
            return _too_large_version(message)
        case MadeAnew():  # the client did not request the lost version
            return unavailable(message)
        case Expired():
            return ApiError(410, "Expired", message)
        case InvalidSelector():
            return bad_request(message)
        case InvalidObject() | InvalidEvent():
            return _invalid(message, error)
        case BusFull():
            return too_many(message)
        case Throttled():
            return too_many(message, error.retry_after_s or RETRY_AFTER_S)
        case BusUnavailable() | PasswordRefused():  # no fault of the client: it may retry
            return unavailable(f"Redis cannot do it now: {message}")
        case BusRefused():
            return ApiError(403, "Forbidden", f"the API worker's Redis user may not do that: {message}", details={})
    return bad_request(message)


def api_error_of_http(error: web.HTTPException) -> ApiError:
    """Convert an HTTP error of aiohttp."""
    match error.status:
        case 404:
            return no_such_path()
        case 405:
            return method_not_allowed()
        case 413:
            return ApiError(413, "RequestEntityTooLarge", "the body of the request is too large", details={})
        case code if code >= 500:
            return internal()
    return ApiError(error.status, "BadRequest", error.reason or "bad request", details={})


def response(error: ApiError) -> web.Response:
    """Make the response. `Content-Type` is exactly application/json, the only one that lightkube accepts."""
    body = msgspec.json.encode(error.to_json()) + b"\n"
    answer = web.Response(status=error.code, body=body, headers=error.headers, content_type="application/json")
    protect(answer)  # also here, because some responses bypass the application
    return answer


def protect(answer: web.StreamResponse) -> None:
    """Forbid browsers to guess the type of *answer*, and caches to store it; an answer with a tag is revalidated."""
    headers = answer.headers
    headers.setdefault("X-Content-Type-Options", "nosniff")
    headers.setdefault("Cache-Control", "no-cache" if "ETag" in headers else "no-store")


def _too_large_version(message: str) -> ApiError:
    cause = {"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}
    headers = {"Retry-After": str(RETRY_AFTER_S)}
    return ApiError(504, "Timeout", f"Timeout: {message}", details={"causes": [cause]}, headers=headers)


def _invalid(message: str, error: InvalidObject | InvalidEvent) -> ApiError:
    """Return 422 with the field of *error*."""
    cause = Cause(reason_of(error.problem), error.problem or message, error.field)
    details: dict[str, Any] = {"causes": [cause._asdict()]}
    if isinstance(error, InvalidObject):
        about = (("name", error.name), ("group", error.group), ("kind", error.kind))
        details = {key: value for key, value in about if value} | details
    return ApiError(422, "Invalid", message, details=details)


def reason_of(problem: str) -> str:
    """Return the reason of a cause, by the start of its text."""
    reasons = {
        "Required value": "FieldValueRequired",
        "Forbidden": "FieldValueForbidden",
        "Unsupported value": "FieldValueNotSupported",
    }
    return next((reason for start, reason in reasons.items() if problem.startswith(start)), "FieldValueInvalid")
