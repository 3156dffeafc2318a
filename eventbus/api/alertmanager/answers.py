"""Answers and errors in Alertmanager's form.

Source: alertmanager `api/v2/openapi.yaml` and `api/v2/api.go`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from functools import wraps
from typing import Any, Final

import msgspec
from aiohttp import web

from eventbus.api import status
from eventbus.api.kube.negotiation import JSON
from eventbus.api.token_path import loggable_path
from eventbus.errors import EventBusError, InvalidObject
from eventbus.model.matchers import Matcher, parse_matchers
from eventbus.model.silence_rules import MAX_TIME, MIN_TIME
from eventbus.util.log import log

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

#: Codes with a string as body; the others have an object.
_TEXTS: Final = (400, 404, 500)
#: Words that mean true, as go-openapi reads them.
_TRUE: Final = frozenset({"true", "1", "yes", "ok", "y", "on", "selected", "checked", "t", "enabled"})


def in_its_form(handler: Handler) -> Handler:
    """Answer the errors of *handler* in Alertmanager's form."""

    @wraps(handler)
    async def answering(request: web.Request) -> web.StreamResponse:
        try:
            return await handler(request)
        except InvalidObject as error:
            return _refusal(status.bad_request(f"silence invalid: {error.field}: {error.problem}"))
        except EventBusError as error:
            return _refusal(status.api_error_of(error))
        except status.ApiError as error:
            return _refusal(error)
        except (web.HTTPException, ConnectionError):
            raise
        except Exception as error:
            log.error("%s %s failed", request.method, loggable_path(request, known=True), exc_info=error)
            return _refusal(status.internal())

    return answering


def _refusal(error: status.ApiError) -> web.Response:
    code = error.code
    body: Any = error.message if code in _TEXTS else {"code": code, "message": error.message}
    answer = web.Response(status=code, body=msgspec.json.encode(body) + b"\n", headers=error.headers, content_type=JSON)
    status.protect(answer)
    return answer


def filters_of(request: web.Request) -> tuple[Matcher, ...]:
    """Return the matchers of `filter=`, which may be repeated. Raises: ConfigError."""
    return tuple(matcher for text in request.query.getall("filter", []) for matcher in parse_matchers(text))


def is_wanted(request: web.Request, name: str) -> bool:
    """Return a flag of the query; it is true if it is missing."""
    return request.query.get(name, "true").lower() in _TRUE


def time_text(ms: int) -> str:
    """Return a time as Alertmanager writes it, limited to years that `datetime` has: one time must not fail a list."""
    seconds = max(MIN_TIME.timestamp(), min(ms / 1000, MAX_TIME.timestamp()))
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
