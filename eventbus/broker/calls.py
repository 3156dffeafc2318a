"""Sends function calls and commands without waiting, and decodes the replies of functions."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from eventbus.broker.build import function_command
from eventbus.broker.connection.connect import Client
from eventbus.broker.redis_errors import redis_errors
from eventbus.util.log import log


class PendingCalls:
    """Commands under way together, on a connection of their own. End them by one of `answers`, `replies`, `drain` and
    `abandon`.

    *behind*: those under way whose connection these are sent on, so that the server takes them in this order. They have
    to be ended first; if they fail, these are abandoned as well.
    """

    def __init__(self, client: Client, *commands: tuple[Any, ...], behind: PendingCalls | None = None) -> None:
        self._client: Any = client
        self._commands = commands
        self._followed = False  #: other commands follow on this connection, and release it
        self._pool: Any = getattr(client, "connection_pool", None)
        self._connection: Any = None
        if self._pool is None:  # a cluster's client finds the node itself and waits for the reply
            with redis_errors():
                self._answers = [self._client.execute_command(*command) for command in commands]
            return
        with redis_errors():
            self._connection = behind._connection if behind else self._pool.get_connection()
            if behind:
                _check_connected(self._connection)
                behind._followed = True
            try:
                self._connection.send_packed_command(self._connection.pack_commands(commands))
            except BaseException:
                if behind:
                    behind._followed = False
                self._followed = behind is not None
                self.abandon()
                raise

    def answers(self) -> list[Any]:
        """Wait for the answers, one a command; a refused command has redis-py's error. Raises: as any call."""
        if self._pool is None:
            return self._answers
        try:
            with redis_errors():  # read all, or the next user of the connection would read the rest
                return [self._answer() for _ in self._commands]
        finally:
            self._release()

    def replies(self) -> list[Any]:
        """Wait for the answers, one a command. Raises: as any call."""
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
        """Leave it: whether it had its effect stays unknown."""
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


class PendingCall:
    """One command under way, sent on the connection of *behind*, if given; see `PendingCalls`.

    End it by exactly one of `reply` and `abandon`."""

    def __init__(self, client: Client, *command: Any, behind: PendingCall | None = None) -> None:
        self._calls: PendingCalls = PendingCalls(client, command, behind=behind._calls if behind else None)

    def reply(self) -> Any:
        """Wait for the answer. Raises: as any call."""
        return self._calls.replies()[0]

    def abandon(self) -> None:
        """Leave it: whether it had its effect stays unknown."""
        self._calls.abandon()


def _check_connected(connection: Any) -> None:
    """Refuse a lost connection: sending would reconnect, and the call before would read our answer."""
    if not connection.is_connected:
        from redis.exceptions import ConnectionError

        raise ConnectionError("closed while a call was under way")


def asked_for_members(reply: Any) -> list[bytes]:
    """Return the keys whose members in the indexes `correlate_and_store` asks for; [] if it has done its work."""
    if isinstance(reply, list) and reply[:2] == [b"!", b"members"]:
        return reply[2:]
    return []


def decode_correlate_reply(reply: Any) -> list[str]:
    """Decode the reply of `correlate_and_store`: one string a batch."""
    return [each.decode() for each in proper(reply)]


def call_function(client: Client, verb: str, keys: Sequence[bytes], *args: Any) -> Any:
    """Call a function of the library, and wait for its reply. Raises: as `redis_errors`."""
    with redis_errors():
        reply: Any = client.execute_command(*function_command(verb, keys, *args))
    return proper(reply)


def proper(reply: Any) -> Any:
    """Return the reply of a function, and log the keys with corrupt values that it names."""
    if not (isinstance(reply, list) and reply and reply[0] == b"!"):
        return reply
    for key in reply[2:]:
        name = key.decode("utf-8", "replace")
        log.error("%s held something that is not ours: it counted as missing; `eventbus doctor` says more", name)
    return reply[1]
