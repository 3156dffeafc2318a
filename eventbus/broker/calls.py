"""Sends commands without waiting, calls functions, and logs the corrupt values that their replies name."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from eventbus.broker.build import function_command
from eventbus.broker.connection.connect import Client
from eventbus.broker.redis_errors import redis_errors
from eventbus.util.log import log


class PendingCalls:
    """Commands that were sent together, on a connection of their own.

    End them by one of `answers`, `replies`, `drain` and `abandon`.

    *after*: earlier calls; these are sent on their connection, so that the server executes them in this order. End
    those first. If they fail, these are abandoned as well.
    """

    def __init__(self, client: Client, *commands: tuple[Any, ...], after: PendingCalls | None = None) -> None:
        self._commands = commands
        self._followed = False  #: later calls use this connection, and release it
        self._pool: Any = getattr(client, "connection_pool", None)
        self._connection: Any = None
        if self._pool is None:  # the client of a cluster finds the node and waits for the reply
            with redis_errors():
                self._answers = [client.execute_command(*command) for command in commands]
            return
        with redis_errors():
            self._connection = after._connection if after else self._pool.get_connection()
            if after:
                _check_connected(self._connection)
                after._followed = True
            try:
                self._connection.send_packed_command(_packed(commands))
            except BaseException:
                if after:
                    after._followed = False
                self._followed = after is not None
                self.abandon()
                raise

    def answers(self) -> list[Any]:
        """Wait for the answers, one a command; a refused command has the error of redis-py. Raises: as any call."""
        if self._pool is None:
            return self._answers
        try:
            with redis_errors():  # read all, or the next user of the connection would read the rest
                return [self._answer() for _ in self._commands]
        finally:
            self._release()

    def replies(self) -> list[Any]:
        """Wait for the answers, one a command. Raises: as any call, also if one command was refused."""
        answers = self.answers()
        if refused := next((each for each in answers if isinstance(each, Exception)), None):
            with redis_errors():
                raise refused
        return answers

    def drain(self) -> None:
        """Read and drop the answers. Raises nothing."""
        with suppress(Exception):
            self.replies()

    def abandon(self) -> None:
        """Close the connection: whether the commands had their effect stays unknown."""
        if self._pool is not None:
            self._connection.disconnect()  # or the next user of the connection would read this answer
            self._release()

    def _answer(self) -> Any:
        from redis.exceptions import ResponseError  # imported here, so that `--help` does not import redis

        try:
            return self._connection.read_response()
        except ResponseError as error:
            return error

    def _release(self) -> None:
        if not self._followed:
            self._pool.release(self._connection)


def _packed(commands: Sequence[tuple[Any, ...]]) -> list[bytes]:
    """Pack *commands* as redis-py does, in half of the time: without its checks of each argument."""
    from hiredis import pack_command

    return [b"".join(map(pack_command, commands))]


def _check_connected(connection: Any) -> None:
    """Refuse a lost connection: sending would reconnect, and the earlier call would read our answer."""
    if not connection.is_connected:
        from redis.exceptions import ConnectionError

        raise ConnectionError("closed while a call was under way")


def call_function(client: Client, verb: str, keys: Sequence[bytes], *args: Any) -> Any:
    """Call a function of the library, and wait for its reply. Raises: as `redis_errors`."""
    with redis_errors():
        reply: Any = client.execute_command(*function_command(verb, keys, *args))
    return unwrap_reply(reply)


def unwrap_reply(reply: Any) -> Any:
    """Return the reply of a function without the keys of corrupt values that it names, and log those."""
    if not (isinstance(reply, list) and reply and reply[0] == b"!"):
        return reply
    for key in reply[2:]:
        name = key.decode("utf-8", "replace")
        log.error("%s held a corrupt value, which counted as missing; see `eventbus doctor`", name)
    return reply[1]
