"""Tokens in paths, `/eventbus/v1/token/TOKEN/ping/…`: for clients that cannot set a header. They are never logged."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import unquote

from aiohttp import web

_PING: Final = re.compile(r"/eventbus/v1/(?:token/([^/]+)/)?ping/.")


def is_ping(request: web.BaseRequest) -> bool:
    """Return True if the request records an event, although it may be a GET."""
    return _PING.match(request.rel_url.raw_path) is not None


def path_token(request: web.BaseRequest) -> str | None:
    """Return the token in the path of a ping; None: there is none."""
    found = _PING.match(request.rel_url.raw_path)
    return unquote(found[1], errors="surrogateescape") if found and found[1] else None


def loggable_path(request: web.BaseRequest, *, known: bool) -> str:
    """Return the path as it was sent, without tokens. *known*: the user is; else a wrong part may be the token."""
    parts = request.rel_url.raw_path.split("/")
    words = [unquote(part).lower() for part in parts]
    if not known and "ping" in words:
        del parts[words.index("ping") + 1 :]
        parts.append("…")
    after_token = [bool(part) and "token" in words[:place] for place, part in enumerate(parts)]
    if True in after_token:
        parts[after_token.index(True)] = "…"
    return "/".join(parts)
