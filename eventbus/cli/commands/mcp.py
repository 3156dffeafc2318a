"""`eventbus mcp`: a server of the Model Context Protocol on standard input and output."""

from __future__ import annotations

import signal

import click

from eventbus.cli.session import open_session
from eventbus.util.extras import extra_needed


@click.command()
def mcp() -> None:
    """Answer the questions of an assistant over the Model Context Protocol (MCP), on standard input and output.

    An assistant starts this command itself: add it to the configuration of the assistant. All tools are read-only. The
    assistant has the rights of this user. Texts of events are in fields named untrustedMessage.

    An API worker also serves MCP, at /mcp. It needs eventbus[mcp].

    \b
    Examples:
      eventbus mcp
      eventbus --context prod mcp
      claude mcp add eventbus -- eventbus --context prod mcp

    \b
    Exit codes:
      0  the assistant has closed the input
      1  the bus does not answer
      2  wrong usage, or eventbus[mcp] is missing
    """
    with extra_needed("mcp"):
        from eventbus.mcp.server import serve_stdio
    # A thread waits in a read of standard input, which a KeyboardInterrupt would not end. There is nothing to finish.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    with open_session() as session:
        serve_stdio(session)
