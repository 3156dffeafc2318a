"""Answers one HTTP request of the protocol (streamable HTTP, without sessions), for a server that is not ASGI."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import NamedTuple

from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from starlette.types import Message

from eventbus.mcp.server import CallTool, make_server


class Reply(NamedTuple):
    """The answer to a request: status, headers and body."""

    status: int
    headers: list[tuple[str, str]]
    body: bytes


async def answer_post(call: CallTool, path: str, headers: Iterable[tuple[str, str]], body: bytes) -> Reply:
    """Answer a POST. The caller has checked its user, Host and Origin, and the size of *body*."""
    manager = StreamableHTTPSessionManager(make_server(call), json_response=True, stateless=True)
    scope = {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "scheme": "http",
        "method": "POST",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "root_path": "",
        "headers": [(name.lower().encode("latin-1"), value.encode("utf-8", "replace")) for name, value in headers],
        "client": None,
        "server": None,
    }
    requests: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]
    replies: list[Message] = []

    async def receive() -> Message:
        if requests:
            return requests.pop()
        # The next message would be a disconnect, which cancels this task.
        never: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        return await never

    async def send(message: Message) -> None:
        replies.append(message)

    # It has only state of its requests, so it lives for one: no task outlives the request.
    async with manager.run():
        await manager.handle_request(scope, receive, send)
    start, *parts = replies
    answered = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in start["headers"]]
    return Reply(start["status"], answered, b"".join(part.get("body", b"") for part in parts))
