"""The map from slots of a cluster to nodes: one a process, kept current while nodes die, move and come back.

A thread that meets a failure reports it and continues. One background thread then asks the nodes until the map is right
again, so no other thread waits for a dead node. It asks every node of the newest map, not only those of the url.
"""

from __future__ import annotations

import os
import random
import threading
import weakref
from collections.abc import Iterable, Sequence
from operator import itemgetter
from typing import Any, Protocol

import msgspec
from redis.exceptions import AuthenticationError, BusyLoadingError, ClusterError, RedisError, ResponseError

from eventbus.broker.connection.address import Endpoint
from eventbus.util.log import log

#: Seconds between two checks of a cluster in trouble: random up to the first, growing up to the last, so that a
#: thousand processes do not ask at the same moment.
FIRST_PAUSE_S, LAST_PAUSE_S = 0.1, 0.5


class Node(msgspec.Struct, frozen=True):
    """A member of the cluster. *id* never changes; empty: not known, for a node that MOVED has named."""

    endpoint: Endpoint
    id: str = ""

    def __str__(self) -> str:
        return str(self.endpoint)


class Asker(Protocol):
    """Asks single nodes, each time over a connection of its own, with short time-outs."""

    def slots(self, endpoint: Endpoint) -> Sequence[Any]:
        """Return the reply to CLUSTER SLOTS. Raises: RedisError."""
        ...

    def ping(self, node: Node) -> None:
        """Check that this very node answers. Raises: RedisError."""
        ...


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
        found = [_node(member, asked) for member in members if member[1]]
        nodes.update(found)
        if found:
            ranges.append((int(first), int(last), found[0]))
    return SlotMap(tuple(sorted(ranges, key=itemgetter(0))), frozenset(nodes))


class ClusterMap:
    """The owners of the slots, and which of them are away. Thread-safe; no call but `load` waits for the network.

    Its thread runs only while there is a problem and the map has users.
    """

    def __init__(self, seeds: Iterable[Endpoint], asker: Asker) -> None:
        self._seeds = tuple(seeds)
        self._asker = asker
        self._told = SlotMap()
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
        node = self._moved.get(slot) or next((node for a, b, node in self._told.ranges if a <= slot <= b), None)
        if node is None:
            self.stale()
            raise ClusterError(f"no node has slot {slot}")
        if self._away and (problem := self._away.get(node)):
            raise ClusterError(f"{node} is away: {problem}")
        return node

    def primaries(self) -> dict[Node, int]:
        """Return the nodes that hold slots, with the first slot of each, ordered by it."""
        found: dict[Node, int] = {}
        for first, _, node in self._told.ranges:
            found.setdefault(node, first)
        return found

    def knows(self, node: Node) -> bool:
        """Return True if *node* is a member of the newest map."""
        return node in self._told.nodes

    def at(self, endpoint: Endpoint) -> Node:
        """Return the node that listens at *endpoint*; without an id if no map has named it yet."""
        return next((node for node in self._told.nodes if node.endpoint == endpoint), Node(endpoint))

    # -- what users of the map have met ------------------------------------------------------------------------------

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
        learnt = {node.endpoint for node in self._told.nodes}
        order = [*self._shuffled(learnt), *self._shuffled({*self._seeds} - learnt)]
        for endpoint in sorted(order, key=lambda endpoint: endpoint != first):
            try:
                told = parse_slots(self._asker.slots(endpoint), endpoint)
            except RedisError as error:
                problem = error
                continue
            if told.ranges and (not self._told.nodes or told.ids & self._told.ids):
                self._take(told)
                return
            # Another cluster may listen at an old address; it replaces ours only if it is at an address of the url.
            stranger = told if told.ranges and endpoint in self._seeds else stranger
        if stranger is None:
            raise problem
        self._take(stranger)

    def _shuffled(self, endpoints: Iterable[Endpoint]) -> list[Endpoint]:
        """Shuffle *endpoints*, with those that are away last."""
        away = {node.endpoint for node in list(self._away)}
        return sorted(endpoints, key=lambda endpoint: (endpoint in away, random.random()))

    def _take(self, told: SlotMap) -> None:
        with self._lock:
            self._told = told
            self._moved = {}
            self._away = {node: problem for node, problem in self._away.items() if node in told.nodes}

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
            log.debug("no node tells where the slots are: %s", error)
            return False
        owners = self.primaries()
        return all([self._is_back(node) for node in list(self._away) if node in owners])

    def _is_back(self, node: Node) -> bool:
        try:
            self._asker.ping(node)
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

__all__ = ["Asker", "ClusterMap", "Node", "SlotMap", "parse_slots"]
