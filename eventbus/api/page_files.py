"""Serves the page for people: files that never change while the worker runs, read once, under a strict policy.

They hold nothing of the bus, so whoever reaches the worker may have them; what they show they ask for as any client
does.
"""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Iterator
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
#: Nothing inline, nothing from elsewhere, in nobody's frame.
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
    # Asked again each time, which costs a short answer, so that page and worker are of one build.
    "Cache-Control": "no-cache",
    "Vary": "Accept-Encoding",
}


class _PageFile(msgspec.Struct, frozen=True):
    """One file, as it goes over the wire."""

    content_type: str
    plain: bytes
    packed: bytes
    tag: str

    def answer(self, request: web.Request) -> web.Response:
        """Answer the file, packed for those that take gzip; 304 if the client has it."""
        headers = dict(_HEADERS, ETag=self.tag)
        if self.tag in request.headers.get("If-None-Match", ""):
            return web.Response(status=304, headers=headers)
        body = self.plain
        if "gzip" in request.headers.get("Accept-Encoding", "").lower() and len(self.packed) < len(self.plain):
            body, headers["Content-Encoding"] = self.packed, "gzip"
        return web.Response(body=body, headers=headers, content_type=self.content_type, charset="utf-8")


class PageFiles:
    """All files of the package `eventbus.page`, and the way there."""

    def __init__(self) -> None:
        folder = files("eventbus.page")
        self.files = {name: _read(name, found) for name, found in _found_in(folder)}

    def add_routes(self, router: web.UrlDispatcher) -> None:
        router.add_get("/", self.way_here)
        router.add_get(ROOT.rstrip("/"), self.way_here)
        router.add_get(ROOT + "{name:.*}", self.file)

    async def way_here(self, request: web.Request) -> web.Response:
        """Whoever types the bare address in a browser is shown the page."""
        if request.path == "/" and "text/html" not in request.headers.get("Accept", ""):
            raise status.no_such_path()
        return web.Response(status=302, headers={"Location": ROOT})

    async def file(self, request: web.Request) -> web.Response:
        found = self.files.get(request.match_info["name"] or _INDEX)
        if found is None:
            raise status.no_such_path()
        return found.answer(request)


def is_page(request: web.Request) -> bool:
    """Return True if *request* asks for the page itself, which anybody may have."""
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
    return _PageFile(_TYPES["." + name.rpartition(".")[2]], plain, gzip.compress(plain, 9, mtime=0), tag)
