"""Serves the web page: static files, read once at start, under a strict content security policy.

The files contain no data of the bus, so they need no authentication. The page requests its data like any client.
"""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Iterator
from functools import cached_property
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Final

import msgspec
from aiohttp import web

from eventbus.api import status

ROOT: Final = "/page/"
_INDEX: Final = "index.html"
_TYPES: Final = {
    ".html": "text/html",
    ".js": "text/javascript",
    ".css": "text/css",
    ".svg": "image/svg+xml",
    ".txt": "text/plain",
    ".json": "application/json",
}
#: No inline content, no other origins, no framing.
POLICY: Final = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "connect-src 'self'",
        "img-src 'self'",
        "base-uri 'none'",
        "form-action 'self'",
        "frame-ancestors 'none'",
    )
)
_HEADERS: Final = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    # Browsers revalidate each time, at the cost of a short answer, so that page and worker are of one build.
    "Cache-Control": "no-cache",
    "Vary": "Accept-Encoding",
}


class _PageFile(msgspec.Struct, frozen=True, dict=True):
    """One file, plain and compressed."""

    content_type: str
    plain: bytes
    tag: str

    @cached_property
    def packed(self) -> bytes:
        """Return the file compressed; that is done for the first request."""
        return gzip.compress(self.plain, 9, mtime=0)

    def answer(self, request: web.Request) -> web.Response:
        """Answer with the file, compressed for clients that accept gzip; 304 if the client has it."""
        headers = dict(_HEADERS, ETag=self.tag)
        if self.tag in request.headers.get("If-None-Match", ""):
            return web.Response(status=304, headers=headers)
        body = self.plain
        if "gzip" in request.headers.get("Accept-Encoding", "").lower() and len(self.packed) < len(self.plain):
            body, headers["Content-Encoding"] = self.packed, "gzip"
        return web.Response(body=body, headers=headers, content_type=self.content_type, charset="utf-8")


class PageFiles:
    """All files of the package `eventbus.page`, and redirects to them."""

    def __init__(self) -> None:
        folder = files("eventbus.page")
        self.files = {name: _read(name, found) for name, found in _found_in(folder)}

    def add_routes(self, router: web.UrlDispatcher) -> None:
        router.add_get("/", self.way_here)
        router.add_get(ROOT.rstrip("/"), self.way_here)
        router.add_get(ROOT + "{name:.*}", self.file)

    async def way_here(self, request: web.Request) -> web.Response:
        """Redirect a browser from the bare address to the page."""
        if request.path == "/" and "text/html" not in request.headers.get("Accept", ""):
            raise status.no_such_path()
        return web.Response(status=302, headers={"Location": ROOT})

    async def file(self, request: web.Request) -> web.Response:
        found = self.files.get(request.match_info["name"] or _INDEX)
        if found is None:
            raise status.no_such_path()
        return found.answer(request)


def is_page(request: web.Request) -> bool:
    """Return True if *request* is for the page's files, which need no authentication."""
    path = request.path
    return request.method in ("GET", "HEAD") and (path in ("/", ROOT.rstrip("/")) or path.startswith(ROOT))


def _found_in(folder: Traversable, above: str = "") -> Iterator[tuple[str, Traversable]]:
    for found in folder.iterdir():
        if found.is_dir():
            yield from _found_in(found, f"{above}{found.name}/")
        elif "." + found.name.rpartition(".")[2] in _TYPES:
            yield above + found.name, found


def _read(name: str, found: Traversable) -> _PageFile:
    plain = found.read_bytes()
    tag = f'"{hashlib.sha256(plain).hexdigest()[:32]}"'
    return _PageFile(_TYPES["." + name.rpartition(".")[2]], plain, tag)
