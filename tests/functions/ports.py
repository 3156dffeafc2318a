"""Ports for servers of tests."""

from __future__ import annotations

import random
import socket
from contextlib import ExitStack, suppress

#: Below the range of outgoing connections, where a client could take it first.
LOWEST, HIGHEST = 11_000, 31_999


def free_ports(count: int) -> list[int]:
    """So many ports on loopback that nobody listens on."""
    found: list[int] = []
    with ExitStack() as held:
        while len(found) < count:
            probe = held.enter_context(socket.socket())
            with suppress(OSError):
                port = random.randint(LOWEST, HIGHEST)
                probe.bind(("127.0.0.1", port))
                found.append(port)
    return found
