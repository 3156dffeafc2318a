"""One worker of a partition in a consumer group: read, handle, acknowledge, beat, take over from dead workers.

The handler processes the entries. No error of Redis or of the handler ends the loop. A batch that killed
workers is handled one event at a time, to find and bury only the event that kills.
"""

from __future__ import annotations

import os
import random
import socket
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from itertools import groupby
from typing import TypeAlias

from eventbus.broker.bus import Bus
from eventbus.broker.functions import GroupPolicy
from eventbus.broker.stream_reader import Delivery, GroupReader
from eventbus.consume.heartbeat import Heartbeat, LivenessObserver, LoopHealth
from eventbus.errors import (
    BusRefused,
    BusUnavailable,
    ConfigError,
    DeadCause,
    EventBusError,
    FunctionsMissing,
    GroupMissing,
    PasswordRefused,
    PoisonBatch,
)
from eventbus.model.encoding.wire import Batch, unpack_batch
from eventbus.util.backoff import Backoff
from eventbus.util.clock import Clock
from eventbus.util.failpoints import failpoint
from eventbus.util.log import log

BEAT_EVERY_S = 1.0
#: A consumer waits for the read that it has begun before it gives up a partition.
LONGEST_READ_MS = 1000
#: A worker that has made no progress for so long hangs: its heartbeat stops, and other workers take over. Ten minutes
#: is longer than any handler should take; for that time the entries of a hung worker wait.
HUNG_S = 600.0
BACKOFF = Backoff(first_s=0.1, last_s=10.0)
#: A group that was destroyed is created again, but not in a busy loop.
REOPEN_S = 0.1
#: The shortest pause after a failure, with any jitter.
SHORTEST_S = 0.001

#: A worker is dead if its counter has stood still for so long, by the observer's monotonic clock.
TAKE_OVER_S = 15.0
#: A worker without a counter has removed it and left; a living worker would write it again within a second.
LEFT_S = 2.0
#: Seconds between two checks of the other workers.
CHECK_EVERY_S = 3.0
#: A batch is handled one event at a time after so many deaths of workers with it. With fewer, a power cut would make a
#: good batch slow.
ISOLATE_AFTER_DEATHS = 3

#: Handles deliveries, oldest first, and returns the ids to acknowledge, without those that it has acknowledged itself.
Handle = Callable[[GroupReader, Sequence[Delivery]], Sequence[bytes]]
#: Handles the one event at a position of a batch. False: another worker has taken the batch over.
HandleAlone: TypeAlias = Callable[[GroupReader, Delivery, Batch, int], bool]


def consumer_name() -> str:
    """Make a name that no other process has ever had: a restarted worker is a new consumer."""
    return f"{socket.gethostname()}-{os.getpid()}-{os.urandom(3).hex()}"


class Consumer:
    """Runs *handle* on every delivery of (group, partition) until `stop`. Start `run` in a thread of its own.
    Alternatively a `ConsumerPoller` runs several consumers, and a `Rebalancer` sends their heartbeats.

    If workers died while they handled a delivery, its events go to *handle_alone* one by one; the event that kills is
    buried. While a handler runs the consumer counts as alive, for at most HUNG_S (10 minutes) an event.

    A consumer that lacks a function or a right leaves its entries to the other workers, which count no death. It reads
    nothing until *trial* succeeds: this makes the same calls as *handle*, without effect.
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
        trial: Callable[[GroupReader], object] | None = None,
        policy: GroupPolicy = GroupPolicy.WAIT,
        start: str = "0",
        block_ms: int = 1000,
        take_over_s: float = TAKE_OVER_S,
        on_change: Callable[[str, str], None] | None = None,
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
        self._must_open = True
        self._reopened = False  #: since the last step that succeeded
        self.withdrawn = False  #: it lacks a function or a right, and has no entries; any thread may read this
        self._partition = partition
        self._last_progress = clock.monotonic()
        self._counts = {"events": 0, "batches": 0, "taken_over_batches": 0}

    def loop_health(self) -> LoopHealth:
        """Return its health; safe to call from any thread."""
        ready = self.ready.is_set() and not self._redis.failures
        return LoopHealth(
            group=self._reader.group,
            partition=self._partition,
            last_progress=self._last_progress,
            ready=ready,
            counts=self._counts | {"failures": self._redis.failures_ever, "buried": self._reader.buried},
        )

    def stop(self) -> None:
        """End after the delivery being handled; returns at once."""
        self._stop.set()

    def run(self) -> None:
        """Run the loop. Blocks until `stop`; then every handled delivery has been acknowledged."""
        self._working = self._heartbeat.working
        try:
            while not self._stop.is_set():
                if pause_s := self._attempt(self._round):
                    self._stop.wait(pause_s)
            self._heartbeat.stop()  # a heartbeat after `leave` would add the counter again, and nothing would remove it
            self._leave()
        finally:
            self._heartbeat.stop()
            self._client.close()

    def begin(self) -> float:
        """Do the work that is due, and begin to read. With `finish`, this replaces `run` in a `ConsumerPoller`.

        Returns: 0: call `finish` when `fileno` is readable, or `fail` on a timeout; else the seconds to the next try.
        """
        return self._attempt(self._begin)

    def finish(self) -> float:
        """Handle the entries that the read has returned. Returns: how many seconds to wait before the next `begin`."""
        return self._attempt(self._finish)

    def fail(self, error: EventBusError) -> float:
        """Abandon a read that will not end. Returns: as `finish`."""
        self._reader.abandon_read()
        return self._failed(error)

    def fileno(self) -> int:
        """Return the socket of the read under way."""
        return self._reader.fileno()

    def others(self) -> dict[str, str]:
        """Return the heartbeat counters of this partition's other workers. Raises: BusUnavailable, BusRefused."""
        beats = self._reader.heartbeats()
        return {name: count for name, count in beats.items() if name != self._reader.consumer}

    def announce(self) -> None:
        """Send a heartbeat: this worker works the partition now. Raises: BusUnavailable, BusRefused."""
        self._reader.beat()

    def close(self, *, moved: bool) -> None:
        """End a consumer that `run` does not run, between `finish` and `begin`. *moved*: another has the partition.

        Every handled delivery has been acknowledged. After a failure, Redis may still deliver entries to an abandoned
        read: then the consumer's name stays, and the partition's next worker takes these over.
        """
        try:
            if not self._must_open:
                self._leave()
            if moved:
                self._redis.succeeded()
        finally:
            self.abandon()

    def abandon(self) -> None:
        """End at once; other workers take over the entries under way."""
        self._reader.abandon_read()
        self._client.close()

    @property
    def partition(self) -> int:
        return self._partition

    @property
    def steps(self) -> int:
        """Return a counter of its progress."""
        return self._reader.steps

    def _attempt(self, step: Callable[[], None]) -> float:
        """Do *step*, and handle its errors. Returns: how many seconds to wait, 0 if it succeeded."""
        try:
            step()
        except (GroupMissing, FunctionsMissing) as error:
            if self._reopened and isinstance(error, FunctionsMissing):  # this user may not load them
                return self._withdraw(error)
            if self._reopened:
                return self._failed(error)
            self._reopened = True
            if isinstance(error, GroupMissing):
                log.warning("group %s: %s; creating it again", self._reader.group, error)
            self._must_open = True
            return REOPEN_S
        except (BusRefused, ConfigError) as error:
            return self._withdraw(error)
        except EventBusError as error:
            return self._failed(error)
        except Exception as error:  # a bug of ours or of the handler: the entries stay pending and are retried
            log.exception("group %s: unexpected error", self._reader.group)
            return self._failed(EventBusError(f"{type(error).__name__}: {error}"))
        self._reopened = False
        self._redis.succeeded()
        return 0.0

    def _begin(self) -> None:
        self._prepare()
        self._reader.begin_read(min(self._block_ms, LONGEST_READ_MS))

    def _finish(self) -> None:
        self._take(self._reader.finish_read())

    def _prepare(self) -> None:
        """Open the group if needed, then handle pending entries: its own, and those of dead workers."""
        self._last_progress = self._clock.monotonic()
        if self._must_open:
            self._reader.open()
            self.ready.set()
            if self._trial is not None:
                self._trial(self._reader)
            if self.withdrawn:
                self._reader.beat()  # first a heartbeat: others take the entries of a consumer without a counter
                self.withdrawn = False
            self._must_open = False
            self._work_own_pending()
        self._work_pending_of_others()

    def _round(self) -> None:
        """Do the work that is due, read once, and handle the deliveries. One heartbeat a second goes with a read."""
        self._prepare()
        now = self._clock.monotonic()
        beat = now >= self._next_beat
        if beat:
            self._next_beat = now + BEAT_EVERY_S
        # At most until the next beat: the other workers expect one every second, also from an idle worker.
        until_beat_ms = max(1, int((self._next_beat - now) * 1000))
        self._take(self._reader.read(min(self._block_ms, until_beat_ms), beat=beat))

    def _take(self, deliveries: Sequence[Delivery]) -> None:
        """Handle the deliveries of a read; there may be none."""
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
        self._last_progress = self._clock.monotonic()
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
        """Handle the entries that are still pending for this consumer.

        They are pending because a reply was lost, or because a promoted replica lacks the acknowledgement. A failover
        between two calls raises no error, because the client reconnects by itself.
        """
        while not self._stop.is_set() and (pending := self._reader.own_pending()):
            self._work(pending)

    def _work_pending_of_others(self) -> None:
        """Handle pending entries: our own, and those of consumers with a counter that stands still."""
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
        """Leave the entries to workers that can handle them.

        Called at each failed try, because a heartbeat under way can add the counter again. After a failure the name
        stays, as in `close`.
        """
        self.withdrawn = True
        with suppress(EventBusError):
            self._reader.leave(keeps_name=self._must_open)
        return self._failed(error)

    def _failed(self, error: EventBusError) -> float:
        self._must_open = True
        self._redis.failed(error)
        return max(SHORTEST_S, BACKOFF.pause_s(self._redis.failures))

    def _leave(self) -> None:
        try:
            self._reader.leave()
        except EventBusError as error:
            log.warning("group %s: could not leave tidily: %s", self._reader.group, error)


class TakeOver:
    """One worker's decision about the other workers of its partition. Not thread-safe.

    Args: after_s: how long a counter stands still before its worker is dead.
          block_ms: how long a read may delay the next check.
    """

    def __init__(self, clock: Clock, *, after_s: float, block_ms: int) -> None:
        self._clock = clock
        self._after_s = after_s
        self._check_every_s = min(CHECK_EVERY_S, after_s / 5)
        self._liveness = LivenessObserver(clock, longest_gap_s=2 * self._check_every_s + block_ms / 1000)
        self._next_check = 0.0

    def is_due(self) -> bool:
        """Return True if it is time to check the other workers, and set the next time."""
        now = self._clock.monotonic()
        if now < self._next_check:
            return False
        self._next_check = now + self._check_every_s * random.uniform(0.7, 1.3)
        return True

    def dead(self, beats: Mapping[str, str]) -> dict[str, str]:
        """Return the counters of the workers in *beats*, by name, that are dead or have left. '': no counter."""
        still = self._liveness.observe(beats)
        left_s = min(LEFT_S, self._after_s)
        return {name: count for name, count in beats.items() if still[name] >= (self._after_s if count else left_s)}


def must_be_isolated(delivery: Delivery) -> bool:
    """Return True if the delivery killed workers, or is already handled one event at a time: up to `next`."""
    return delivery.deaths >= ISOLATE_AFTER_DEATHS or delivery.next_position is not None


def isolate(reader: GroupReader, delivery: Delivery, handle: HandleAlone) -> Sequence[bytes]:
    """Handle *delivery* one event at a time with *handle*, from its noted position; bury the event that killed.

    Returns: its id, to be acknowledged; nothing if another worker has taken it over, or it was buried whole.
    """
    try:
        batch = unpack_batch(delivery.body)
    except PoisonBatch as poison:
        reader.bury(delivery, poison.cause, delivery.body, whole=True)
        return ()
    for position in range(delivery.next_position or 0, len(batch.events)):
        reader.steps += 1
        if position == delivery.suspect_position:
            event = batch.alone(position)
            owned = reader.bury(delivery, DeadCause.KILLED_WORKER, event, whole=False, next_position=position + 1)
        elif owned := reader.isolate(delivery.id, position):
            failpoint("decoded", batch.events[position])
            owned = handle(reader, delivery, batch, position)
        if not owned:
            return ()
    return (delivery.id,)


class RedisAbsence:
    """The failures since the loop *name* last succeeded. Written by one thread, read by any.

    Args: on_change: called with LostRedis and Reconnected.
    """

    def __init__(self, name: str, on_change: Callable[[str, str], None] | None) -> None:
        self._name = name
        self._on_change = on_change
        self._first: EventBusError | None = None
        self._asked = False
        self.failures = 0  #: in a row
        self.failures_ever = 0

    @property
    def ready(self) -> bool:
        """Return True if Redis has answered, and nothing has failed since."""
        return self._asked and not self.failures

    def failed(self, error: EventBusError) -> None:
        """Become not ready, and log that once."""
        self.failures += 1
        self.failures_ever += 1
        if self.failures == 1:
            log.warning("%s waits: %s", self._name, error)
            self._first = error
            if self._on_change is not None and isinstance(error, BusUnavailable | BusRefused):
                self._on_change("LostRedis", str(error))

    def answered(self) -> None:
        """Note that Redis has answered, which ends its absence.

        A missing right, a missing function or a bug is not cleared here: the next call shows whether it lasts.
        """
        self._asked = True
        if isinstance(self._first, BusUnavailable | PasswordRefused) and not isinstance(self._first, FunctionsMissing):
            self.succeeded()

    def succeeded(self) -> None:
        """Note that a round has succeeded."""
        if self.failures:
            self.failures = 0
            log.warning("%s goes on", self._name)
            if self._on_change is not None and isinstance(self._first, BusUnavailable | BusRefused):
                self._on_change("Reconnected", "Redis is back")
            self._first = None
