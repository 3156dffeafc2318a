"""A call of a function that is under way, and what is told of its answer."""

from __future__ import annotations

import logging
from typing import Any

from eventbus.broker.connection.client import Client
from eventbus.broker.redis_errors import redis_errors

log = logging.getLogger("eventbus")


class PendingCall:
    """A call under way on a connection of its own. Exactly one of `reply` and `abandon` ends it."""

    def __init__(self, client: Client, *command: Any) -> None:
        self._client: Any = client
        self._pool = getattr(client, "connection_pool", None)
        if self._pool is None:  # a cluster's client finds the node itself, and waits
            with redis_errors():
                self._answer = self._client.execute_command(*command)
            return
        with redis_errors():
            self._connection = self._pool.get_connection()
            try:
                self._connection.send_command(*command)
            except BaseException:
                self.abandon()
                raise

    def reply(self) -> Any:
        """Wait for the answer. Raises: as any call."""
        if self._pool is None:
            return self._answer
        try:
            with redis_errors():
                return self._connection.read_response()
        finally:
            self._pool.release(self._connection)

    def abandon(self) -> None:
        """Leave it: whether it had its effect stays unknown."""
        if self._pool is not None:
            self._connection.disconnect()  # or the next user of the connection would read this answer
            self._pool.release(self._connection)


def decode_record_reply(reply: Any) -> list[str]:
    """What record answered: one string a batch."""
    return [each.decode() for each in proper(reply)]


def proper(reply: Any) -> Any:
    """The reply itself; keys that a function has found to hold something that is not ours are told in the log."""
    if not (isinstance(reply, list) and reply and reply[0] == b"!"):
        return reply
    for key in reply[2:]:
        name = key.decode("utf-8", "replace")
        log.error("%s held something that is not ours: it counted as missing; `eventbus doctor` says more", name)
    return reply[1]


__all__ = ["PendingCall", "decode_record_reply", "proper"]
