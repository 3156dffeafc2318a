"""The server of the Model Context Protocol, with the official library: over stdio, or for one request over HTTP."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, TypeAlias

import anyio
import anyio.to_thread
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp_types import (
    CallToolRequestParams,
    CallToolResult,
    ListToolsResult,
    PaginatedRequestParams,
    TextContent,
    Tool,
    ToolAnnotations,
)

from eventbus.broker.build import package_version
from eventbus.errors import EventBusError
from eventbus.mcp.tools import INSTRUCTIONS, TOOLS, Readers, call_tool
from eventbus.util.log import log

#: Calls a tool: name and arguments → the JSON of its answer. Raises: EventBusError, ValueError: for the assistant.
CallTool: TypeAlias = Callable[[str, Mapping[str, Any] | None], Awaitable[bytes]]

_READ_ONLY: Final = ToolAnnotations(
    read_only_hint=True, destructive_hint=False, idempotent_hint=True, open_world_hint=False
)
_TOOLS: Final = [
    Tool(name=name, description=tool.description, input_schema=tool.input_schema, annotations=_READ_ONLY)
    for name, tool in TOOLS.items()
]


def make_server(call: CallTool) -> Server[Any]:
    """Make a server that calls its tools by *call*."""

    async def list_tools(
        _context: ServerRequestContext[Any], _params: PaginatedRequestParams | None
    ) -> ListToolsResult:
        return ListToolsResult(tools=_TOOLS)

    async def call_named(_: ServerRequestContext[Any], params: CallToolRequestParams) -> CallToolResult:
        try:
            answer = await call(params.name, params.arguments)
        except (EventBusError, ValueError) as error:
            return _result(str(error), is_error=True)
        except Exception:
            log.error("the tool %s failed", params.name, exc_info=True)
            return _result("the tool failed; the log of the server says why", is_error=True)
        return _result(answer.decode())

    return Server(
        "eventbus",
        version=package_version(),
        instructions=INSTRUCTIONS,
        on_list_tools=list_tools,
        on_call_tool=call_named,
    )


def _result(text: str, *, is_error: bool = False) -> CallToolResult:
    return CallToolResult(content=[TextContent(type="text", text=text)], is_error=is_error)


def serve_stdio(readers: Readers) -> None:
    """Serve one client on standard input and output, until it closes the input. *readers*: one call at a time."""

    async def serve() -> None:
        one = anyio.CapacityLimiter(1)

        async def call(name: str, arguments: Mapping[str, Any] | None) -> bytes:
            return await anyio.to_thread.run_sync(call_tool, readers, name, arguments, limiter=one)

        server = make_server(call)
        async with stdio_server() as (read, write):
            await server.run(read, write, server.create_initialization_options())

    anyio.run(serve)
