"""A client for all nodes of a cluster: each command goes to the node that has its key, and fails with that node alone.

The client and its pipeline have the methods of redis-py. A command is sent again only if a node redirects it (MOVED,
ASK). Why not the RedisCluster of redis-py: docs/decisions/0023.
"""

from __future__ import annotations

import os
import random
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from operator import itemgetter
from typing import Any, NamedTuple, Self

import msgspec
import redis
from redis.commands import CoreCommands
from redis.crc import key_slot as slot_of_bytes
from redis.exceptions import (
    AskError,
    AuthenticationError,
    BusyLoadingError,
    ClusterDownError,
    ClusterError,
    ConnectionError,
    MasterDownError,
    MovedError,
    NoPermissionError,
    ReadOnlyError,
    RedisError,
    ResponseError,
)

from eventbus.broker.connection.address import Address, Endpoint
from eventbus.broker.connection.plain_client import plain_client
from eventbus.util.log import log

#: Commands that name no key; any node may answer.
_KEYLESS = frozenset(
    ("ACL", "CLIENT", "CLUSTER", "COMMAND", "CONFIG", "DBSIZE", "FUNCTION", "HELLO", "INFO", "PING", "SCRIPT", "TIME")
)
#: Commands with the keys after their number, from the fourth word on.
_COUNTED = frozenset(("FCALL", "FCALL_RO", "EVAL", "EVALSHA", "EVAL_RO", "EVALSHA_RO"))
#: Commands with the keys after the word STREAMS, before as many ids.
_STREAMS = frozenset(("XREAD", "XREADGROUP"))
#: Commands of two words, in one string or in two.
_TWO_WORDS = frozenset(("XGROUP", "XINFO", "OBJECT", "MEMORY"))
#: Commands that have only keys.
_ALL_KEYS = frozenset(("MGET", "DEL", "EXISTS", "UNLINK", "TOUCH"))


def key_slot(key: bytes | str) -> int:
    """Return the slot of *key*: that of its hash tag, if it has one."""
    return slot_of_bytes(key if isinstance(key, bytes) else str(key).encode())


def slot_of(args: Sequence[Any]) -> int | None:
    """Return the slot of a command's keys; None: any node may answer.

    Raises: ValueError: its keys are of several slots.
    """
    name, _, second = _text(args[0]).upper().partition(" ")
    if name in _KEYLESS:
        return None
    keys: Sequence[Any]
    if name in _COUNTED:
        keys = args[3 : 3 + int(args[2])]
    elif name in _STREAMS:
        first = 4 if name == "XREADGROUP" else 1  # a group or a consumer may have that name
        first_key = next(i for i in range(first, len(args)) if _text(args[i]).upper() == "STREAMS") + 1
        keys = args[first_key : first_key + (len(args) - first_key) // 2]
    elif name in _ALL_KEYS:
        keys = args[1:]
    else:
        keys = args[2:3] if name in _TWO_WORDS and not second else args[1:2]
    slots = {key_slot(key) for key in keys}
    if len(slots) > 1:
        raise ValueError(f"{name} has keys of several slots: on a cluster each is a call of its own")
    return slots.pop() if slots else None


def _text(word: Any) -> str:
    return word.decode("utf-8", "replace") if isinstance(word, bytes) else str(word)


#: Seconds between two checks of a cluster in trouble: random up to the first, growing up to the last, so that a
#: thousand processes do not ask at the same moment.
FIRST_PAUSE_S, LAST_PAUSE_S = 0.1, 0.5


class Node(msgspec.Struct, frozen=True):
    """A member of the cluster. *id* never changes; empty: not known, for a node that MOVED has named."""

    endpoint: Endpoint
    id: str = ""

    def __str__(self) -> str:
        return str(self.endpoint)


class SlotMap(msgspec.Struct, frozen=True):
    """One node's reply about the cluster: the owners of ranges of slots, and every node that it named."""

    ranges: tuple[tuple[int, int, Node], ...] = ()
    nodes: frozenset[Node] = frozenset()

    @property
    def ids(self) -> frozenset[str]:
        """Return the ids of all its nodes."""
        return frozenset(node.id for node in self.nodes)


def parse_slots(reply: Sequence[Any], asked: Endpoint) -> SlotMap:
    """Read a reply to CLUSTER SLOTS. A node without a host has that of the node that was *asked*."""
    ranges, nodes = [], set()
    for first, last, *members in reply:
        of_range = [_node(member, asked) for member in members if member[1]]
        nodes.update(of_range)
        if of_range:
            ranges.append((int(first), int(last), of_range[0]))
    return SlotMap(tuple(sorted(ranges, key=itemgetter(0))), frozenset(nodes))


class ClusterMap:
    """The owners of the slots, and which of them are away. Thread-safe; no call but `load` waits for the network.

    Its thread runs only while there is a problem and the map has users.

    Args: seeds: the nodes of the url.  read_slots: returns the reply of a node to CLUSTER SLOTS.  ping: checks that
    this very node answers. Both connect with short timeouts, and raise RedisError.
    """

    def __init__(
        self,
        seeds: Iterable[Endpoint],
        read_slots: Callable[[Endpoint], Sequence[Any]],
        ping: Callable[[Node], None],
    ) -> None:
        self._seeds = tuple(seeds)
        self._read_slots = read_slots
        self._ping = ping
        self._slots = SlotMap()
        self._moved: dict[int, Node] = {}  #: redirections since the last reply
        self._away: dict[Node, str] = {}  #: with the error met there
        self._users: weakref.WeakSet[object] = weakref.WeakSet()
        self._troubles = 0
        self._renew()
        _every.add(self)

    def _renew(self) -> None:
        """Set up the locks and lists.

        Called by the constructor, and in a child after fork, where the lock may be held for ever and no thread runs."""
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._unused = threading.Event()

    # -- asking the map ----------------------------------------------------------------------------------------------

    def owner(self, slot: int) -> Node:
        """Return the node that holds *slot*. Raises: redis' ClusterError: no node, or it is away; call again."""
        node = self._moved.get(slot) or next((node for a, b, node in self._slots.ranges if a <= slot <= b), None)
        if node is None:
            self.stale()
            raise ClusterError(f"no node has slot {slot}")
        if self._away and (problem := self._away.get(node)):
            raise ClusterError(f"{node} is away: {problem}")
        return node

    def primaries(self) -> dict[Node, int]:
        """Return the nodes that hold slots, with the first slot of each, ordered by it."""
        primaries: dict[Node, int] = {}
        for first, _, node in self._slots.ranges:
            primaries.setdefault(node, first)
        return primaries

    def knows(self, node: Node) -> bool:
        """Return True if *node* is a member of the newest map."""
        return node in self._slots.nodes

    def at(self, endpoint: Endpoint) -> Node:
        """Return the node that listens at *endpoint*; without an id if no map has named it yet."""
        return next((node for node in self._slots.nodes if node.endpoint == endpoint), Node(endpoint))

    # -- reports of its users ----------------------------------------------------------------------------------------

    def moved(self, slot: int, endpoint: Endpoint) -> Node:
        """Note that a node has redirected *slot* to *endpoint*, and return the node there."""
        node = self._moved[slot] = self.at(endpoint)
        self.stale()
        return node

    def failed(self, node: Node, error: Exception) -> None:
        """Note that *node* could not be reached.

        No command waits for it until it answers again or its slots have moved."""
        if not _is_answer(error):
            with self._lock:
                self._away[node] = " ".join(str(error).split())
        self.stale()

    def stale(self) -> None:
        """Note that the map may be wrong, and ask for a new one in the background."""
        with self._lock:
            self._troubles += 1
            if self._thread is not None:
                return
            self._thread = threading.Thread(target=self._mend, name="eventbus-cluster", daemon=True)
            try:
                self._thread.start()
                return
            except RuntimeError:  # the interpreter is ending and starts no threads: the caller checks
                self._thread = None
        self._look()

    def retain(self, user: object) -> None:
        """Register *user* as a user of the map."""
        with self._lock:
            self._users.add(user)
            self._unused.clear()
        if self._away:
            self.stale()

    def release(self, user: object) -> None:
        """Remove *user*; without any user the thread ends. Idempotent."""
        with self._lock:
            self._users.discard(user)
            if not self._users:
                self._unused.set()

    # -- asking the cluster ------------------------------------------------------------------------------------------

    def load(self, first: Endpoint | None = None) -> None:
        """Ask the nodes, *first* before all others, until one answers. Blocks for a second or two a node that is away.

        Raises: redis' ClusterError: no node has slots.  The last node's error: none has answered.
        """
        problem: Exception = ClusterError("the cluster has no slots yet: wait, or add its nodes")
        stranger: SlotMap | None = None
        learnt = {node.endpoint for node in self._slots.nodes}
        order = [*self._shuffled(learnt), *self._shuffled({*self._seeds} - learnt)]
        for endpoint in sorted(order, key=lambda endpoint: endpoint != first):
            try:
                answer = parse_slots(self._read_slots(endpoint), endpoint)
            except RedisError as error:
                problem = error
                continue
            if answer.ranges and (not self._slots.nodes or answer.ids & self._slots.ids):
                self._take(answer)
                return
            # Another cluster may listen at an old address; it replaces ours only if it is at an address of the url.
            stranger = answer if answer.ranges and endpoint in self._seeds else stranger
        if stranger is None:
            raise problem
        self._take(stranger)

    def _shuffled(self, endpoints: Iterable[Endpoint]) -> list[Endpoint]:
        """Shuffle *endpoints*, with those that are away last."""
        away = {node.endpoint for node in list(self._away)}
        return sorted(endpoints, key=lambda endpoint: (endpoint in away, random.random()))

    def _take(self, slots: SlotMap) -> None:
        with self._lock:
            self._slots = slots
            self._moved = {}
            self._away = {node: problem for node, problem in self._away.items() if node in slots.nodes}

    def _mend(self) -> None:
        """Check the cluster repeatedly until there is no problem."""
        pause = FIRST_PAUSE_S
        while True:
            self._unused.wait(random.uniform(0, pause))
            seen = self._troubles
            well = bool(self._users) and self._look()
            with self._lock:
                if not self._users or (well and seen == self._troubles):
                    self._thread = None
                    return
            pause = min(LAST_PAUSE_S, 2 * pause)

    def _look(self) -> bool:
        """Check the cluster once. True: there is a map, and each node with slots in it answers."""
        try:
            self.load()
        except RedisError as error:
            log.debug("no node reports the slots: %s", error)
            return False
        owners = self.primaries()
        return all([self._is_back(node) for node in list(self._away) if node in owners])

    def _is_back(self, node: Node) -> bool:
        try:
            self._ping(node)
        except RedisError as error:
            if not _is_answer(error):
                return False
        with self._lock:
            self._away.pop(node, None)
        return True


def _node(member: Sequence[Any], asked: Endpoint) -> Node:
    host = (member[0] or b"").decode()
    return Node(Endpoint(host if host not in ("", "?") else asked.host, int(member[1])), member[2].decode())


def _is_answer(error: Exception) -> bool:
    """Return True if the error is a reply of a living server."""
    return isinstance(error, ResponseError | AuthenticationError | BusyLoadingError)


_every: weakref.WeakSet[ClusterMap] = weakref.WeakSet()


def _after_fork() -> None:
    for each in list(_every):
        each._renew()


os.register_at_fork(after_in_child=_after_fork)


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
            targets = {i: target for i in todo if (target := self._elsewhere(replies[i]))}
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
        if client := self._clients.get(node):
            return client
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
        return self.plain().pipeline() if transaction else ClusterPipeline(self._client, self._slot)

    def plain(self) -> redis.Redis:
        """Return the plain client of the slot's node; it follows no MOVED."""
        return self._client.plain(self._slot)

    def met(self, error: Exception) -> None:
        """Report an error of the `plain` client to the map."""
        self._client.met(self._slot, error)


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
        unreached = len(errors) == len(replies) and not any(isinstance(error, ResponseError) for error in errors)
        if errors and (raise_on_error or unreached):
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


#: seconds to connect to a node, and for its answer, when it is asked for the slots
ASK_S = 1.0


def map_of(address: Address) -> ClusterMap:
    """Make the map of the cluster at *address*; no node is asked yet."""

    def connect(endpoint: Endpoint, greeting: Callable[[Any], None] | None = None) -> redis.Redis:
        return plain_client(address, name="eventbus-cluster", endpoint=endpoint, timeout_s=ASK_S, on_connect=greeting)

    def read_slots(endpoint: Endpoint) -> Sequence[Any]:
        with connect(endpoint) as client:
            reply: Sequence[Any] = client.execute_command("CLUSTER", "SLOTS")
            return reply

    def ping(node: Node) -> None:
        with connect(node.endpoint, _greeting(node)) as client:
            client.ping()

    return ClusterMap(address.endpoints, read_slots, ping)


def client_of(nodes: ClusterMap, address: Address, *, block_ms: int, name: str) -> ClusterClient:
    """Make a client for all nodes; nothing is sent yet."""

    def make(node: Node) -> redis.Redis:
        return plain_client(address, name=name, endpoint=node.endpoint, block_ms=block_ms, on_connect=_greeting(node))

    return ClusterClient(nodes, make)


def _greeting(node: Node) -> Any:
    """Make the greeting of a new connection, which refuses any other node than *node*.

    Its address may belong to another cluster by now, with another bus."""

    def greet(connection: Any) -> None:
        connection.on_connect()
        if not node.id:
            return
        connection.send_command("CLUSTER", "MYID")
        try:
            reply = connection.read_response()
        except NoPermissionError:
            return
        if reply.decode() != node.id:
            raise ConnectionError(f"another node listens at {node} now")

    return greet
