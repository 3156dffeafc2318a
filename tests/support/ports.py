"""Ports for servers of tests: no two tests of a run are given the same one."""

from __future__ import annotations

import os
import random
import socket
from contextlib import suppress
from itertools import cycle

#: Below the range of outgoing connections, where a client could take it first.
_LOWEST, _HIGHEST = 11_000, 31_999
#: Each process of a run has a share, since to look whether a port is free is to take it for a moment.
_SHARES = 16


def _my_ports() -> list[int]:
    mine = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw") or 0) % _SHARES
    ports = list(range(_LOWEST + mine, _HIGHEST + 1, _SHARES))
    first = random.randrange(len(ports))  # another run of this machine begins elsewhere
    return ports[first:] + ports[:first]


_ports = cycle(_my_ports())


def free_port() -> int:
    """A port on loopback that nobody listens on, and that nobody else is given."""
    for port in _ports:
        with suppress(OSError), socket.socket() as probe:
            probe.bind(("127.0.0.1", port))
            return port
    raise AssertionError


def free_ports(count: int) -> list[int]:
    """So many of them."""
    return [free_port() for _ in range(count)]
