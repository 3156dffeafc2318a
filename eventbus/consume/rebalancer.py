"""Rebalances one worker's partitions: joins the group, sends heartbeats, takes partitions and gives them up.

Every worker computes by itself which worker works which partitions. They need not agree: if two workers take one
partition, Redis still gives each entry to one of them. While the workers disagree about the members, a partition may
have none.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from hashlib import blake2b
from itertools import product
from typing import TypeVar

from eventbus.broker.bus import Bus
from eventbus.broker.functions import GroupPolicy
from eventbus.broker.groups import GroupMembers
from eventbus.broker.health.status import HEARTBEAT_S
from eventbus.consume.consumer import Consumer
from eventbus.consume.heartbeat import LivenessObserver
from eventbus.consume.poller import ConsumerPoller
from eventbus.errors import EventBusError
from eventbus.util.clock import Clock
from eventbus.util.log import log

EVERY_S = 1.0
#: While it is too early to say which members live.
SOON_S = 0.5


class Rebalancer:
    """One thread and one connection for all heartbeats of a worker; the replies are the heartbeat counters of the other
    members.

    First it makes the group on every partition.

    Args: pollers: how many it makes; the caller runs them.  make: makes the consumer of one partition.
    """

    def __init__(
        self,
        *,
        bus: Bus,
        group: str,
        name: str,
        clock: Clock,
        block_ms: int,
        pollers: int,
        make: Callable[[int], Consumer],
        take_over_s: float,
        policy: GroupPolicy,
        start: str,
    ) -> None:
        self._bus = bus
        self._group = group
        self._name = name
        self._make = make
        self._lock = threading.Lock()
        self.pollers: Sequence[ConsumerPoller] = [
            ConsumerPoller(clock=clock, block_ms=block_ms, lock=self._lock, on_stop=self.leave) for _ in range(pollers)
        ]
        self._policy = policy
        self._start = start
        self._client = bus.client(name=f"eventbus-{group}-share")
        self._members = GroupMembers(bus=bus, client=self._client, group=group, name=name)
        self._view = MemberView(name, clock, still_s=min(STILL_S, take_over_s))
        self._unopened = list(range(bus.partitions))
        self._alive: frozenset[str] = frozenset()
        self._co_workers: Mapping[int, frozenset[str]] = {}  #: by partition, the other workers of it
        self._leaving = self._left = self._failing = False
        self.ready = threading.Event()  #: the group is made everywhere
        self._ended = threading.Event()
        self._wake = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"eventbus-{group}-share", daemon=True)

    @property
    def partitions(self) -> Collection[int]:
        """Return the current share."""
        return self._co_workers.keys()

    def start(self) -> None:
        """Join the group. Returns at once."""
        self._thread.start()

    def leave(self) -> None:
        """Leave this worker's partitions to the other members; its heartbeats go on until `stop`. Returns at once."""
        self._leaving = True
        self._wake.set()

    def stop(self, timeout_s: float = 5.0) -> None:
        """End after the pollers; waits at most *timeout_s*. Idempotent."""
        self._leaving = True
        self._ended.set()
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join(timeout_s)

    def _run(self) -> None:
        try:
            while not self._ended.is_set() or any(poller.runs for poller in self.pollers):
                pause_s = self._attempt(self._beat_and_share)
                self._wake.wait(pause_s)
                self._wake.clear()
            if not self._left:
                self._attempt(self._beat_and_share)
        finally:
            self._client.close()

    def _attempt(self, step: Callable[[], float]) -> float:
        """Do *step*, which returns the pause after it, and handle its errors. The consumers log the errors."""
        try:
            pause_s = step()
        except EventBusError as error:
            if not self._failing:
                log.info("group %s: no news of its members: %s", self._group, error)
            self._failing = True
            return EVERY_S
        except Exception:
            log.exception("group %s: the heartbeats go on after an unexpected error", self._group)
            return EVERY_S
        self._failing = False
        return pause_s

    def _beat_and_share(self) -> float:
        if self._leaving and not self._left:
            self._members.leave()
            self._left = True
        self._open()
        withdrawn = self._withdrawn()
        member = not (self._leaving or withdrawn or any(poller.hangs for poller in self.pollers))
        with self._lock:
            worked = frozenset[int]().union(*(poller.beating() for poller in self.pollers))
            counters = self._members.beat(worked, member=member)
        if self._leaving or withdrawn or counters is None:
            return EVERY_S
        alive = self._view.look(counters)
        if self._view.dead:
            self._members.forget(self._view.dead)
        if alive is None:
            return SOON_S
        self._share(alive)
        return EVERY_S

    def _withdrawn(self) -> bool:
        """Return True if its consumers lack a function or a right in all of its share.

        The other workers take the share, and its own consumers keep trying.
        """
        withdrawn = frozenset[int]().union(*(poller.withdrawn for poller in self.pollers))
        return bool(self._co_workers) and self._co_workers.keys() <= withdrawn

    def _open(self) -> None:
        """Make the group on each partition: it gets all events from now on, whichever worker reads them."""
        while self._unopened and not self._leaving:
            partition = self._unopened[-1]
            self._bus.open_partition(self._client, partition, self._group, self._policy, self._start)
            self._unopened.pop()
        if not self._unopened:
            self.ready.set()

    def _share(self, alive: frozenset[str]) -> None:
        if alive == self._alive:
            return
        self._alive = alive
        shares = share_out(alive, self._bus.partitions)
        mine = {
            partition: frozenset(name for name, share in shares.items() if partition in share) - {self._name}
            for partition in sorted(shares[self._name])
        }
        several = "s" * (len(alive) != 1)
        log.info("group %s has %d worker%s: this one works %d partitions", self._group, len(alive), several, len(mine))
        for partition in self._co_workers.keys() - mine.keys():
            self._poller(partition).give_up(partition)
        for partition in mine.keys() - self._co_workers.keys():
            self._poller(partition).take(self._make(partition), mine[partition])
        self._co_workers = mine

    def _poller(self, partition: int) -> ConsumerPoller:
        """Return a partition's poller, always the same: it knows when it has given up a partition that comes back."""
        return self.pollers[partition % len(self.pollers)]


#: A member has no share while its counter has stood still for so long. This is shorter than the take-over of
#: a dead worker's entries: its partitions must not wait so long.
STILL_S = 5.0
#: A member is removed when its counter has stood still for so long.
FORGET_S = 60.0


class MemberView:
    """The members of a group as *own* has seen them. Not thread-safe.

    Members that it finds at its first look may have died long ago: they count once their counter moves. A living
    member's counter moves within HEARTBEAT_S: `look` returns None until all have moved, or HEARTBEAT_S have passed.
    Later members count at once.
    """

    def __init__(self, own: str, clock: Clock, *, still_s: float = STILL_S) -> None:
        self._own = own
        self._clock = clock
        self._still_s = still_s
        self._liveness = LivenessObserver(clock, longest_gap_s=HEARTBEAT_S)
        self._began: float | None = None
        self._found: dict[str, str] = {}  #: at the first look; their counters have not moved since
        self.dead: tuple[str, ...] = ()  #: at the last look; to be removed

    def look(self, counters: Mapping[str, str]) -> frozenset[str] | None:
        """Take the current counters. Return the members that live, *own* among them; None: it is too early to say."""
        now = self._clock.monotonic()
        others = {name: counter for name, counter in counters.items() if name != self._own}
        if self._began is None:
            self._began, self._found = now, others
        self._found = {name: counter for name, counter in self._found.items() if others.get(name) == counter}
        still = self._liveness.observe(others)
        self.dead = tuple(name for name, still_s in still.items() if still_s >= FORGET_S)
        if self._found and now - self._began < HEARTBEAT_S:
            return None
        alive = {name for name, still_s in still.items() if still_s < self._still_s and name not in self._found}
        return frozenset(alive | {self._own})


Item = TypeVar("Item", str, int)
Place = TypeVar("Place", str, int)


def share_out(workers: Collection[str], partitions: int) -> Mapping[str, frozenset[int]]:
    """Return the partitions of each worker. The numbers differ by one at most.

    If there are no more workers than partitions, each partition has one worker. Otherwise each worker has one
    partition, and partitions have several workers. A join or leave moves few other partitions: the score of each pair
    depends on its two names only (rendezvous hashing), and the best pairs are taken first.
    """
    names, numbers = sorted(set(workers)), range(partitions)
    ranked = sorted(product(names, numbers), key=lambda pair: _score(*pair))
    if len(names) <= partitions:
        chosen = _balanced([(partition, name) for name, partition in ranked], partitions, len(names))
        pairs = [(name, partition) for partition, name in chosen]
    else:
        pairs = _balanced(ranked, len(names), partitions)
    return {name: frozenset(partition for worker, partition in pairs if worker == name) for name in names}


def _balanced(ranked: Sequence[tuple[Item, Place]], items: int, places: int) -> list[tuple[Item, Place]]:
    """Assign each of *items* to one of *places*, the best ranked pairs first; full places are skipped."""
    if not places:
        return []
    least, larger = divmod(items, places)
    taken: dict[Item, Place] = {}
    load: Counter[Place] = Counter()
    for item, place in ranked:
        if item in taken or load[place] > least or (load[place] == least and not larger):
            continue
        larger -= load[place] == least
        load[place] += 1
        taken[item] = place
    return list(taken.items())


def _score(worker: str, partition: int) -> bytes:
    return blake2b(f"{partition}/{worker}".encode("utf-8", "surrogateescape"), digest_size=8).digest()
