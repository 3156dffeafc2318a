"""Blocking reads on connections of their own, so that one thread can wait for many streams.

One blocking command cannot span the slots of a cluster, and a command for several streams fails for all if one is gone.
So each stream has a read of its own, and the caller waits for the sockets.
"""

from __future__ import annotations

import selectors
import socket
from collections.abc import Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

from eventbus.broker.connection.connect import Client, is_cluster
from eventbus.broker.redis_errors import redis_errors

if TYPE_CHECKING:
    from _typeshed import HasFileno


class BlockingRead:
    """Sends commands about *key*, one at a time: `send`, wait until `fileno` is readable, `reply`. One thread."""

    def __init__(self, client: Client, key: bytes) -> None:
        self._client = client
        self._slot = client.at(key) if is_cluster(client) else None
        self._pool: Any = None
        self._connection: Any = None

    def send(self, *command: Any) -> None:
        """Send *command*. Raises: BusUnavailable: the server may or may not have got it."""
        with redis_errors():
            try:
                if self._connection is None:
                    self._connect()
                self._connection.send_command(*command)
            except Exception as error:
                self._failed(error)
                raise

    def fileno(self) -> int:
        """Return the socket's descriptor: readable when a reply begins, or the connection is lost."""
        number: int = self._connection._sock.fileno()
        return number

    def reply(self) -> Any:
        """Read the whole reply. Raises: the command's error; BusUnavailable: it may have had its effect."""
        with redis_errors():
            try:
                return self._connection.read_response()
            except Exception as error:
                self._failed(error)
                raise

    def close(self) -> None:
        """Close the connection; the server may still execute an unanswered command. Idempotent."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.disconnect()
            self._pool.release(connection)

    def _connect(self) -> None:
        plain = self._client if self._slot is None else self._slot.plain()
        self._pool = plain.connection_pool
        self._connection = self._pool.get_connection()

    def _failed(self, error: Exception) -> None:
        """Close, and report the error to a cluster's map, so that the next command finds the right node."""
        self.close()
        if self._slot is not None:
            self._slot.met(error)


T = TypeVar("T", bound="HasFileno")

# `poll` needs no descriptor of its own; not every system has it.
_Selector = getattr(selectors, "PollSelector", selectors.SelectSelector)


class WakeableWait:
    """Waits until one of several reads has its reply, a time is over, or another thread calls `wake`."""

    def __init__(self) -> None:
        self._recv_sock, self._send_sock = socket.socketpair()
        self._recv_sock.setblocking(False)
        self._send_sock.setblocking(False)

    def wake(self) -> None:
        """End the current wait, or else the next one. Any thread; no effect after `close`."""
        with suppress(OSError):  # full: it will wake; closed: it has ended
            self._send_sock.send(b"\0")

    def wait(self, reads: Iterable[T], timeout_s: float | None) -> list[T]:
        """Wait for a reply; return those of *reads* that have one. *timeout_s* None: no limit."""
        with _Selector() as selector:
            selector.register(self._recv_sock, selectors.EVENT_READ)
            for read in reads:
                selector.register(read, selectors.EVENT_READ, read)
            ready = [key.data for key, _ in selector.select(timeout_s if timeout_s is None else max(0.0, timeout_s))]
        if None in ready:
            with suppress(BlockingIOError):
                self._recv_sock.recv(4096)
        return [read for read in ready if read is not None]

    def close(self) -> None:
        """Close its sockets."""
        self._recv_sock.close()
        self._send_sock.close()
