"""Blocking reads on connections of their own, so that one thread can wait for many streams.

One blocking command cannot span the slots of a cluster, and a command for several streams fails for all if one is gone.
So each stream has a read of its own, and the caller waits for the sockets.
"""

from __future__ import annotations

from typing import Any

from eventbus.broker.connection.connect import Client, is_cluster
from eventbus.broker.redis_errors import redis_errors


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
