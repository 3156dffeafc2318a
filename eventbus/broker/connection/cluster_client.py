"""A client for all nodes of a cluster: each command goes to the node that has its key, and fails with that node alone.

The client and its pipeline have the methods of redis-py's. A command is sent again only if a node redirects it (MOVED,
ASK). Why not redis-py's RedisCluster: docs/decisions/0023.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple, Self

import redis
from redis.commands import CoreCommands
from redis.exceptions import (
    AskError,
    ClusterDownError,
    ClusterError,
    MasterDownError,
    MovedError,
    ReadOnlyError,
    RedisError,
    ResponseError,
)

from eventbus.broker.connection.address import Endpoint
from eventbus.broker.connection.cluster_map import ClusterMap, Node
from eventbus.broker.connection.cluster_slots import key_slot, slot_of

#: Redirections of one command at most: a slot that moves is found after one or two.
MOST_HOPS = 5


class Routed(NamedTuple):
    """A command and its slot. *slot* None: any node may run it."""

    slot: int | None
    args: tuple[Any, ...]
    options: dict[str, Any]


class _Commands(CoreCommands):
    """redis-py's methods, all of which end in `execute_command`."""

    _event_dispatcher: Any = None  #: of redis-py's own clients; looked up by type only


class ClusterClient(_Commands):
    """Plain clients, one a node, made when first needed. A thread uses one socket a node.

    Args: nodes: the map, shared with the whole process.  make: makes a client for one node.
    """

    def __init__(self, nodes: ClusterMap, make: Callable[[Node], redis.Redis]) -> None:
        self._nodes = nodes
        self._make = make
        self._clients: dict[Node, redis.Redis] = {}
        nodes.retain(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections to all nodes, also while a thread waits for a reply. Idempotent."""
        clients, self._clients = self._clients, {}
        for client in clients.values():
            client.close()
        self._nodes.release(self)

    def execute_command(self, *args: Any, **options: Any) -> Any:
        """Run one command at the node of its key. Raises: redis' errors, as a plain client."""
        return _only(self.exchange([Routed(slot_of(args), args, options)]))

    def pipeline(self, transaction: bool = False) -> ClusterPipeline:
        """Make a pipeline of commands for any nodes. For a transaction, which has one slot, see `at`."""
        if transaction:
            raise ValueError("a transaction has one slot: client.at(key).pipeline(transaction=True)")
        return ClusterPipeline(self, None)

    def transaction(self, function: Callable[[Any], Any], *watches: Any, **options: Any) -> Any:
        """Run redis-py's `transaction` at the node of the first watched key. It follows no MOVED: call again."""
        return self.plain(key_slot(watches[0])).transaction(function, *watches, **options)

    def at(self, key: bytes) -> ClusterSlot:
        """Return a client bound to the node that holds *key*, also for commands without a key."""
        return ClusterSlot(self, key_slot(key))

    def primaries(self, keys: Iterable[bytes] | None = None) -> list[ClusterSlot]:
        """Return a client for each node that takes writes; with *keys*, only for those that hold one of them."""
        if keys is None:
            slots = self._nodes.primaries()
        else:
            slots = {self._nodes.owner(slot): slot for slot in map(key_slot, keys)}
        return [ClusterSlot(self, slot) for slot in slots.values()]

    def plain(self, slot: int) -> redis.Redis:
        """Return the plain client of the node that holds *slot*; it follows no MOVED."""
        return self._client(self._nodes.owner(slot))

    def met(self, slot: int, error: Exception) -> None:
        """Report an error of the `plain` client of *slot*'s node to the map."""
        if isinstance(error, ResponseError):
            self._elsewhere(error)
        elif isinstance(error, RedisError | OSError):
            with suppress(ClusterError):
                self._nodes.failed(self._nodes.owner(slot), error)

    def exchange(self, commands: Sequence[Routed]) -> list[Any]:
        """Send every command to its node, to all nodes at once, and read the replies.

        Returns: for each its reply or its error: the commands of a node that is away have that node's error.
        """
        replies: list[Any] = [None] * len(commands)
        targets: dict[int, tuple[Node, bool]] = {}  #: redirections, by number; whether for once
        todo = list(range(len(commands)))
        for _ in range(MOST_HOPS):
            groups: dict[tuple[Node, bool], list[int]] = {}
            for i in todo:
                try:
                    groups.setdefault(targets.get(i) or (self._place(commands[i].slot), False), []).append(i)
                except ClusterError as error:
                    replies[i] = error
            with _lines() as lines:
                for (node, asking), some in groups.items():
                    sent = [commands[i] for i in some]
                    lines.append(_Line(self._nodes, node, self._client(node), sent, asking=asking))
                for line, some in zip(lines, groups.values(), strict=True):
                    for i, reply in zip(some, line.read(), strict=True):
                        replies[i] = reply
            targets = {i: found for i in todo if (found := self._elsewhere(replies[i]))}
            if not targets:
                break
            todo = list(targets)
        return replies

    def _place(self, slot: int | None) -> Node:
        if slot is not None:
            return self._nodes.owner(slot)
        problem = ClusterError("no node has slots")
        for each in self._nodes.primaries().values():
            try:
                return self._nodes.owner(each)
            except ClusterError as error:
                problem = error
        raise problem

    def _elsewhere(self, reply: Any) -> tuple[Node, bool] | None:
        """Return the node of a redirected command, and whether for this once only; None: it was not redirected."""
        if isinstance(reply, MovedError):
            return self._nodes.moved(reply.slot_id, Endpoint(reply.host, reply.port)), False
        if isinstance(reply, AskError):
            return self._nodes.at(Endpoint(reply.host, reply.port)), True
        if isinstance(reply, ClusterDownError | ReadOnlyError | MasterDownError):
            self._nodes.stale()
        return None

    def _client(self, node: Node) -> redis.Redis:
        if found := self._clients.get(node):
            return found
        for old in [each for each in list(self._clients) if not self._nodes.knows(each)]:
            # Another thread may be using it, and returns its connection to a pool that is not used any more.
            self._clients.pop(old).connection_pool.disconnect(inuse_connections=False)
        return self._clients.setdefault(node, self._make(node))


class ClusterSlot(_Commands):
    """A client for one slot, wherever that moves; commands without a key go there too."""

    def __init__(self, client: ClusterClient, slot: int) -> None:
        self._client = client
        self._slot = slot

    def execute_command(self, *args: Any, **options: Any) -> Any:
        """Run one command at the slot's node. Raises: redis' errors, as a plain client."""
        return _only(self._client.exchange([Routed(self._slot, args, options)]))

    def pipeline(self, transaction: bool = False) -> Any:
        """Make a pipeline for that node. A transaction, rare and by hand, follows no MOVED: call again."""
        return self._client.plain(self._slot).pipeline() if transaction else ClusterPipeline(self._client, self._slot)


class ClusterPipeline(_Commands):
    """Commands that go out together, a round trip a node and all nodes at once; each has its own reply or error.

    Those of one slot keep their order. Args: slot: where all of them go; None: each by its key.
    """

    def __init__(self, client: ClusterClient, slot: int | None) -> None:
        self._client = client
        self._slot = slot
        self._commands: list[Routed] = []

    def __len__(self) -> int:
        return len(self._commands)

    def execute_command(self, *args: Any, **options: Any) -> Self:
        """Put a command into the pipeline."""
        self._commands.append(Routed(slot_of(args) if self._slot is None else self._slot, args, options))
        return self

    def execute(self, raise_on_error: bool = True) -> list[Any]:
        """Send the commands; the pipeline is empty afterwards.

        Returns: a reply each; with *raise_on_error* False an error takes the place of its reply.
        Raises:  the first error; with *raise_on_error* False only if no node was reached at all.
        """
        commands, self._commands = self._commands, []
        replies = self._client.exchange(commands)
        errors = [reply for reply in replies if isinstance(reply, Exception)]
        nobody = len(errors) == len(replies) and not any(isinstance(error, ResponseError) for error in errors)
        if errors and (raise_on_error or nobody):
            raise errors[0]
        return replies


class _Line:
    """One round trip to one node. A failure is reported to the map, and is the result of every missing reply."""

    def __init__(
        self, nodes: ClusterMap, node: Node, client: redis.Redis, commands: Sequence[Routed], *, asking: bool
    ) -> None:
        self._nodes = nodes
        self._node = node
        self._client = client
        self._commands = commands
        self._asking = asking
        self._problem: Exception | None = None
        self._connection: Any = None
        self._whole = False  #: all replies were read
        words = [command.args for command in commands]
        if asking:
            words = [each for one in words for each in (("ASKING",), one)]
        try:
            self._connection = client.connection_pool.get_connection()
            self._connection.send_packed_command(self._connection.pack_commands(words))
        except (RedisError, OSError) as error:
            self._fail(error)

    def read(self) -> list[Any]:
        """Read the replies; an error takes the place of a missing reply."""
        replies = [self._reply(command) for command in self._commands]
        self._whole = self._problem is None
        return replies

    def close(self) -> None:
        """Release the connection; close it if replies are unread."""
        if self._connection is not None:
            if not self._whole:
                self._connection.disconnect()
            self._client.connection_pool.release(self._connection)

    def _reply(self, command: Routed) -> Any:
        if self._problem is not None:
            return self._problem
        try:
            if self._asking:
                with suppress(ResponseError):
                    self._connection.read_response()
            return self._client.parse_response(self._connection, command.args[0], **command.options)  # type: ignore[no-untyped-call]
        except ResponseError as error:
            return error
        except (RedisError, OSError) as error:
            self._fail(error)
            return error

    def _fail(self, error: Exception) -> None:
        self._problem = error
        self._nodes.failed(self._node, error)


@contextmanager
def _lines() -> Iterator[list[_Line]]:
    lines: list[_Line] = []
    try:
        yield lines
    finally:
        for line in lines:
            line.close()


def _only(replies: Sequence[Any]) -> Any:
    if isinstance(replies[0], Exception):
        raise replies[0]
    return replies[0]


__all__ = ["ClusterClient", "ClusterPipeline", "ClusterSlot"]
