"""Several servers that are one system: they begin and end together, and each can be killed or frozen by itself."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from typing import Any, Self

from redis import Redis
from redis.backoff import NoBackoff
from redis.exceptions import RedisError
from redis.retry import Retry

from eventbus.broker.embedded.server import EmbeddedServer

READY_S = 60.0


class Nodes:
    """*servers* on *ports* of loopback, by number; `start` of whoever inherits makes one system of them."""

    def __init__(self, servers: Sequence[EmbeddedServer], ports: Sequence[int]) -> None:
        self._servers = servers
        self.ports = ports
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> str:
        """Start every server. Returns: the url of the first."""
        for server in self._servers:
            server.start()
            self._stack.callback(server.stop)
        return f"redis://127.0.0.1:{self.ports[0]}"

    def stop(self) -> None:
        """Stop all servers. Idempotent."""
        self._stack.close()

    def running(self) -> bool:
        return any(server.running() for server in self._servers)

    @property
    def pid(self) -> int | None:
        """Of the first server."""
        return self._servers[0].pid

    def node(self, number: int) -> Any:
        """A plain client for one server."""
        return client_of(self.ports[number])

    def kill(self, number: int) -> None:
        """As the power does; the server stays away."""
        os.kill(self._servers[number].pid or 0, signal.SIGKILL)
        wait_for(lambda: not self._servers[number].running())

    def freeze(self, number: int) -> None:
        """Stop its clock; it goes on with `thaw`, or in the end."""
        os.kill(self._servers[number].pid or 0, signal.SIGSTOP)
        self._stack.callback(self.thaw, number)

    def thaw(self, number: int) -> None:
        with suppress(ProcessLookupError):
            os.kill(self._servers[number].pid or 0, signal.SIGCONT)

    def restart(self, number: int) -> None:
        """Start a killed server again on its own files."""
        self._servers[number].start()


def client_of(port: int, **options: Any) -> Any:
    """A client that tries nothing twice."""
    return Redis(port=port, socket_timeout=60, retry=Retry(NoBackoff(), 0), **options)


def wait_for(condition: Callable[[], object], within_s: float = READY_S) -> None:
    """Wait for it, also while servers do not answer; fail if it does not come."""
    deadline = time.monotonic() + within_s
    while not _holds(condition):
        assert time.monotonic() < deadline, "the servers never came to that"
        time.sleep(0.02)


def _holds(condition: Callable[[], object]) -> bool:
    try:
        return bool(condition())
    except (RedisError, OSError):
        return False
