"""One worker thread of a consumer group: read, handle, acknowledge, beat, take over from the dead.

What is done with the entries is the handler's business; this loop never ends for any fault of Redis or of the handler.
"""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from itertools import groupby

from eventbus.backoff import Backoff
from eventbus.broker.bus import Bus
from eventbus.broker.function_values import GroupPolicy
from eventbus.broker.stream_reader import Delivery, GroupReader
from eventbus.clock import Clock
from eventbus.consume.absence import RedisAbsence
from eventbus.consume.health import LoopHealth
from eventbus.consume.heartbeat import Heartbeat
from eventbus.consume.isolation import HandleAlone, isolate, must_be_isolated
from eventbus.consume.take_over import TAKE_OVER_S, TakeOver
from eventbus.errors import BusRefused, EventBusError, FunctionsMissing, GroupMissing
from eventbus.failpoints import failpoint
from eventbus.log import log

BEAT_EVERY_S = 1.0
#: A read that was begun is waited for before a partition is let go of.
LONGEST_READ_MS = 1000
#: A worker that has not come one event further for so long hangs: it beats no more, and is taken over. Ten minutes is
#: more than a handler should ever take, and as long as the entries of one that hangs are kept from the others.
HUNG_S = 600.0
BACKOFF = Backoff(first_s=0.1, last_s=10.0)
#: What was destroyed is made anew, but not in a busy loop.
ANEW_S = 0.1
#: A failure is never followed at once, whatever chance says.
SHORTEST_S = 0.001

#: Takes deliveries, oldest first, and returns the ids to acknowledge (those it has not acknowledged itself).
Handle = Callable[[GroupReader, Sequence[Delivery]], Sequence[bytes]]


def consumer_name() -> str:
    """Make a name that no other process has ever had: a worker that comes back is a new consumer."""
    return f"{socket.gethostname()}-{os.getpid()}-{os.urandom(3).hex()}"


class Consumer:
    """Runs *handle* on every delivery of (group, partition) until `stop`. Start it in a thread of its own: `run`.
    Or have a `lane.Lane` run it beside others, and a `share_keeper.ShareKeeper` give its heartbeats.

    A delivery that workers died of comes to *handle_alone*, one event at a time; the event that kills is buried.
    While either works the consumer counts as alive, for at most HUNG_S (10 minutes) an event.

    One that lacks a function or a right leaves what it holds to the others, who count no death for that, and is given
    nothing before *trial* goes well: it calls what *handle* calls, to no effect.
    """

    def __init__(
        self,
        *,
        bus: Bus,
        partition: int,
        group: str,
        name: str,
        handle: Handle,
        handle_alone: HandleAlone,
        clock: Clock,
        trial: Callable[[GroupReader], object] = lambda _reader: None,
        policy: GroupPolicy = GroupPolicy.WAIT,
        start: str = "0",
        block_ms: int = 1000,
        take_over_s: float = TAKE_OVER_S,
        on_change: Callable[[str, str], None] = lambda _reason, _message: None,
    ) -> None:
        self._clock = clock
        self._handle = handle
        self._handle_alone = handle_alone
        self._trial = trial
        self._block_ms = block_ms
        self._take_over = TakeOver(clock, after_s=take_over_s, block_ms=block_ms)
        self._stop = threading.Event()
        self.ready = threading.Event()
        self._client = bus.client(block_ms=block_ms, name=f"eventbus-{group}-{partition}")
        self._reader = GroupReader(
            bus=bus, client=self._client, partition=partition, group=group, consumer=name, policy=policy, start=start
        )
        self._heartbeat = Heartbeat(self._reader.beat, clock=clock, hung_s=HUNG_S, progress=lambda: self._reader.steps)
        self._working: Callable[[], AbstractContextManager[None]] = nullcontext
        self._next_beat = 0.0
        self._redis = RedisAbsence(f"group {group}", on_change)
        self._fresh = True
        self._made_anew = False  #: since a step last went well
        self.withdrawn = False  #: it lacks a function or a right, and holds nothing; any thread may read it
        self._partition = partition
        self._last_sign = clock.monotonic()
        self._counts = {"events": 0, "batches": 0, "taken_over_batches": 0}

    def loop_health(self) -> LoopHealth:
        """Return its health; safe to call from any thread."""
        ready = self.ready.is_set() and not self._redis.failures
        return LoopHealth(
            group=self._reader.group,
            partition=self._partition,
            last_progress=self._last_sign,
            ready=ready,
            counts=self._counts | {"failures": self._redis.rounds, "buried": self._reader.buried},
        )

    def stop(self) -> None:
        """End after the delivery being handled; returns at once."""
        self._stop.set()

    def run(self) -> None:
        """The loop. Blocks until `stop`; then everything handled has been acknowledged."""
        self._working = self._heartbeat.working
        try:
            while not self._stop.is_set():
                if pause_s := self._attempt(self._round):
                    self._stop.wait(pause_s)
            self._heartbeat.stop()  # a beat behind the farewell would leave a name that nobody takes away
            self._leave()
        finally:
            self._heartbeat.stop()
            self._client.close()

    def begin(self) -> float:
        """For who runs several in one thread, in the place of `run`: do what is due, and begin to read.

        Returns: 0: call `finish` when `fileno` can be read, `fail` if that never comes; else seconds to the next try.
        """
        return self._attempt(self._begin)

    def finish(self) -> float:
        """Work what the read that was begun has found. Returns: how many seconds to wait before the next `begin`."""
        return self._attempt(self._finish)

    def fail(self, error: EventBusError) -> float:
        """The read that was begun will not end. Returns: as `finish`."""
        self._reader.abandon_read()
        return self._failed(error)

    def fileno(self) -> int:
        """The socket that a read which was begun waits on."""
        return self._reader.fileno()

    def others(self) -> dict[str, str]:
        """Heartbeat counters of the others who work this partition for the group. Raises: what Redis does."""
        beats = self._reader.heartbeats()
        return {name: count for name, count in beats.items() if name != self._reader.consumer}

    def announce(self) -> None:
        """Show the others that this worker works the partition from now on. Raises: what Redis does."""
        self._reader.beat()

    def close(self, *, moved: bool) -> None:
        """The end, if others than `run` have run it, between `finish` and `begin`. *moved*: another has the partition.

        Everything that was handled has been acknowledged. After a failure, a read that nobody has heard the end of may
        still be given something: then the name stays, and whoever has the partition looks after it.
        """
        try:
            if not self._fresh:
                self._leave()
            if moved:
                self._redis.over()
        finally:
            self.abandon()

    def abandon(self) -> None:
        """The end, whatever is under way: that is taken over."""
        self._reader.abandon_read()
        self._client.close()

    @property
    def partition(self) -> int:
        return self._partition

    @property
    def steps(self) -> int:
        """Return how far its work has come."""
        return self._reader.steps

    def _attempt(self, step: Callable[[], None]) -> float:
        """Do *step*, whatever comes of it. Returns: how many seconds to wait, 0 if it went well."""
        try:
            step()
        except (GroupMissing, FunctionsMissing) as error:
            if self._made_anew and isinstance(error, FunctionsMissing):  # this user may not load them
                return self._withdraw(error)
            if self._made_anew:
                return self._failed(error)
            self._made_anew = True
            log.warning("group %s: %s; making it anew", self._reader.group, error)
            self._fresh = True
            return ANEW_S
        except BusRefused as error:
            return self._withdraw(error)
        except EventBusError as error:
            return self._failed(error)
        except Exception as error:  # a fault of ours or of the handler: the entries stay pending, tried again
            log.exception("group %s: unexpected error", self._reader.group)
            return self._failed(EventBusError(f"{type(error).__name__}: {error}"))
        self._made_anew = False
        self._redis.over()
        return 0.0

    def _begin(self) -> None:
        self._prepare()
        self._reader.begin_read(min(self._block_ms, LONGEST_READ_MS))

    def _finish(self) -> None:
        self._take(self._reader.finish_read())

    def _prepare(self) -> None:
        self._last_sign = self._clock.monotonic()
        if self._fresh:
            self._reader.open()
            self.ready.set()
            self._trial(self._reader)
            if self.withdrawn:
                self._reader.beat()  # who holds something without a counter has left it
                self.withdrawn = False
            self._fresh = False
            self._work_own_pending()
        self._look_around()

    def _round(self) -> None:
        self._prepare()
        now = self._clock.monotonic()
        beat = now >= self._next_beat
        if beat:
            self._next_beat = now + BEAT_EVERY_S
        # Not beyond the next beat: others watch for one every second, also where little happens.
        until_beat_ms = max(1, int((self._next_beat - now) * 1000))
        self._take(self._reader.read(min(self._block_ms, until_beat_ms), beat=beat))

    def _take(self, deliveries: Sequence[Delivery]) -> None:
        if deliveries:
            failpoint("read")
            self._work(deliveries)

    def _work(self, deliveries: Sequence[Delivery]) -> None:
        with self._working():
            for alone, some in groupby(deliveries, key=must_be_isolated):
                if alone:
                    self._isolate(some)
                else:
                    self._reader.ack(self._handle(self._reader, list(some)))
        self._last_sign = self._clock.monotonic()
        self._counts["batches"] += len(deliveries)
        self._counts["events"] += sum(delivery.events for delivery in deliveries)

    def _isolate(self, deliveries: Iterable[Delivery]) -> None:
        for delivery in deliveries:
            if self._stop.is_set():
                return
            entry = delivery.id.decode()
            log.warning("group %s: workers died of batch %s: one event at a time", self._reader.group, entry)
            self._reader.ack(isolate(self._reader, delivery, self._handle_alone))

    def _work_own_pending(self) -> None:
        """Handle what Redis still counts as ours: a reply was lost, or a replica never got our acknowledgement.

        No error tells of a replica that takes over between two calls: the client connects again by itself.
        """
        while not self._stop.is_set() and (pending := self._reader.own_pending()):
            self._work(pending)

    def _look_around(self) -> None:
        """Handle what has been left: by us, or by consumers whose counter stands still."""
        if not self._take_over.is_due():
            return
        self._work_own_pending()
        for name, count in self._take_over.dead(self.others()).items():
            self._take_from(name, count)

    def _take_from(self, name: str, count: str) -> None:
        while not self._stop.is_set():
            claimed = self._reader.claim(name, count)
            if not claimed:
                return
            failpoint("claimed")
            self._counts["taken_over_batches"] += len(claimed)
            log.warning("group %s: took over %d batches from %s", self._reader.group, len(claimed), name)
            self._work(claimed)

    def _withdraw(self, error: EventBusError) -> float:
        """Leave what is held to those who can work it. Again each time: a heartbeat may have been under way."""
        self.withdrawn = True
        with suppress(EventBusError):
            self._reader.leave()
        return self._failed(error)

    def _failed(self, error: EventBusError) -> float:
        self._fresh = True
        self._redis.waits(error)
        return max(SHORTEST_S, BACKOFF.pause_s(self._redis.failures))

    def _leave(self) -> None:
        try:
            self._reader.leave()
        except EventBusError as error:
            log.warning("group %s: could not leave tidily: %s", self._reader.group, error)
