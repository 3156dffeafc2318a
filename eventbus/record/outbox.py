"""The outbox: takes events from any thread without waiting, and one flusher thread sends them.

There is no timer. An idle flusher is woken by the first event and sends it at once; while a call is under way, more
events come together, so batches grow exactly as fast as the load does.
"""

from __future__ import annotations

import logging
import math
import random
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING, Any

from eventbus.broker.keys import Keys, partition_of
from eventbus.broker.publish import Accepted, Published, PublishState, parse_published, publish_command
from eventbus.broker.redis_errors import redis_errors, translate
from eventbus.clock import Clock
from eventbus.errors import BusRefused, BusUnavailable, ConfigError, EventBusError, FunctionsMissing, InvalidEvent
from eventbus.faults import crash_point
from eventbus.record.flush_mark import FlushMark
from eventbus.record.losses import Losses
from eventbus.record.pending import Pending, pack
from eventbus.record.probe import ANSWER_S, Probe
from eventbus.record.producer import Producer
from eventbus.settings import FullBuffer, Settings
from eventbus.wire import MAX_BATCH_EVENTS, MAX_EVENT_BYTES

if TYPE_CHECKING:
    from eventbus.broker.bus import Bus

log = logging.getLogger("eventbus")

#: Batches of one partition on their way in one round trip.
IN_FLIGHT_BATCHES = 8
FIRST_BACKOFF_S, LAST_BACKOFF_S = 0.05, 5.0
#: seconds a flusher has to end in once its socket is closed
HANG_UP_S = 0.5


class Outbox:
    """Bounded buffer, flusher thread, one `Producer` a partition.

    `put` never blocks on the network and never raises. What cannot be sent is counted in *losses*: `dropped` (buffer
    full), `refused` (bad input), `lost`, `unsent` (closed before Redis came back).
    """

    def __init__(self, *, open_bus: Callable[[], Bus], settings: Settings, clock: Clock, losses: Losses) -> None:
        self._open_bus = open_bus
        self._settings = settings
        self._clock = clock
        self._losses = losses
        #: Below this an event is small enough that *buffer_events* of them fit into *buffer_bytes* anyway.
        self._small = settings.buffer_bytes // settings.buffer_events - 512
        self.reset()

    def reset(self) -> None:
        """Be empty and unstarted: at birth, and in a child after fork, which must not send its parent's events."""
        self._items: deque[Pending | FlushMark] = deque()
        self._limit = self._settings.buffer_events
        # Reentrant: a signal handler may record an event while its own thread holds one of them.
        self._large_lock = threading.RLock()
        self._large_bytes = 0
        self._room = threading.Condition(threading.RLock())
        self._waiters = 0
        self._start_lock = threading.RLock()
        self._wake = threading.Lock()
        self._wake.acquire()
        self._asleep = False
        self._thread: threading.Thread | None = None
        self._closing = threading.Event()
        self._ended = threading.Event()
        self._closed_at = -math.inf
        self._deadline = 0.0
        self._bus: Bus | None = None
        self._client: Any = None
        self._producers: list[Producer] = []
        self._marks: deque[FlushMark] = deque()
        self._failures = 0
        self._probe = Probe()

    def put(self, pending: Pending) -> None:
        """Hand one event over. Any thread; the order of one thread's calls is kept."""
        items = self._items
        full = len(items) >= self._limit or len(pending.message) > self._small
        if full and not self._make_room(pending):
            return
        items.append(pending)
        if self._asleep:
            self._wake_up()
        elif self._thread is None:
            self._start()

    def flush(self, timeout_s: float) -> bool:
        """Wait until Redis has everything that was put before. False: not within *timeout_s*.

        What it acknowledged more than a second ago is asked for; without an answer, a second long, it counts as there.
        """
        if self._thread is None and not self._items:
            return True
        mark = FlushMark(self._clock.monotonic())
        self._items.append(mark)
        self._start()
        self._wake_up()
        if self._thread is None or not self._wait(mark.done.wait, timeout_s):
            return False
        return mark.accepted or not mark.done.is_set()

    def close(self, timeout_s: float) -> bool:
        """Send what is there, at most *timeout_s*, and stop. What is left then is counted `unsent`. Idempotent."""
        self._closed_at = self._clock.monotonic()
        self._deadline = self._closed_at + timeout_s
        self._closing.set()
        with self._start_lock:
            thread, self._thread = self._thread, None  # from now on `put` comes to `_start`, which refuses
        with self._room:
            self._room.notify_all()
        if thread is threading.current_thread():
            self._deadline = 0.0  # a logging handler of the flusher's own shuts down: it cannot wait for itself
        elif thread is not None:
            self._wake_up()
            self._wait(self._ended.wait, timeout_s)
            if not self._ended.is_set():
                self._hang_up()
            thread.join(HANG_UP_S)
        elif self._items:
            self._run()  # the interpreter no longer let a thread start: the caller sends
        left = self._clear() + sum(producer.pending for producer in self._producers)
        if left:
            self._losses.count("unsent", left, "closed before Redis had them")
        return not left

    @property
    def waiting(self) -> int:
        """Events not yet accepted, about."""
        queued = sum(type(item) is Pending for item in list(self._items))
        return queued + sum(producer.pending for producer in self._producers)

    # -- the caller's side ---------------------------------------------------------------------------------------

    def _make_room(self, pending: Pending) -> bool:
        size = len(pending.message)
        if size > MAX_EVENT_BYTES:  # will never be sent: not worth waiting for
            self._losses.count("refused", 1, f"message: has {size} characters; an event has {MAX_EVENT_BYTES} bytes")
            return False
        if self._has_room(size):
            return True
        if self._settings.buffer_full is FullBuffer.WAIT and self._wait_for_room(size):
            return True
        self._losses.count("dropped", 1, "the outbox is full")
        return False

    def _wait_for_room(self, size: int) -> bool:
        deadline = self._clock.monotonic() + self._settings.buffer_wait_s
        with self._room:
            self._waiters += 1
            try:
                while not (room := self._has_room(size)) and not self._closing.is_set():
                    self._start()
                    self._wake_up()
                    if not self._room.wait(deadline - self._clock.monotonic()):
                        return self._has_room(size)
                return room
            finally:
                self._waiters -= 1

    def _has_room(self, size: int) -> bool:
        if len(self._items) >= self._limit:
            return False
        if size > self._small:
            with self._large_lock:
                if self._large_bytes + size > self._settings.buffer_bytes:
                    return False
                self._large_bytes += size
        return True

    def _wake_up(self) -> None:
        self._asleep = False
        try:  # noqa: SIM105  # `suppress` would cost the caller half a microsecond
            self._wake.release()
        except RuntimeError:
            pass  # somebody else has woken it

    def _start(self) -> None:
        with self._start_lock:
            if self._closing.is_set():
                if late := self._clear():
                    self._losses.count("refused", late, "the broadcaster is shut down")
            elif self._thread is None:
                self._thread = threading.Thread(target=self._run, name="eventbus-outbox", daemon=True)
                try:
                    self._thread.start()
                except RuntimeError:
                    self._thread = None  # the interpreter is shutting down: `close` sends

    def _clear(self) -> int:
        """Empty the buffer. Returns how many events that were."""
        events = 0
        with suppress(IndexError):
            while True:
                item = self._items.popleft()
                if type(item) is FlushMark:
                    item.done.set()
                else:
                    events += 1
        return events

    def _wait(self, until: Callable[[float], bool], timeout_s: float) -> bool:
        """Wait, in steps of *until*; its last for no more than the answer to a question. False: not in *timeout_s*."""
        deadline = self._clock.monotonic() + timeout_s
        while not until(max(0.0, min(ANSWER_S, deadline - self._clock.monotonic()))):
            if self._only_asks():
                return True
            if self._clock.monotonic() >= deadline:
                return False
        return True

    def _only_asks(self) -> bool:
        """Whether all is acknowledged, and the flusher waits to hear whether it is still there."""
        question = self._probe.under_way
        return question is not None and not self.waiting and self._probe.under_way is question

    def _hang_up(self) -> None:
        """Free a flusher that waits for a reply: without its socket it ends."""
        self._deadline = 0.0
        if self._client is not None:
            with suppress(Exception):  # it may be in the middle of using what is closed here
                self._client.close()

    # -- the flusher's side --------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while True:
                self._sleep_until_work()
                if self._closing.is_set() and (self._overdue() or self._finished()):
                    return
                try:
                    self._ready_bus()
                    self._fill()
                    if asked := self._to_ask():
                        self._probe.ask(self._client, asked)
                    self._send()
                    self._failures = 0
                except EventBusError as error:
                    self._wait_after(error)
                    never_will_do = self._bus is None and isinstance(error, (ConfigError, BusRefused))
                    if never_will_do and self._closing.is_set():
                        return
                except Exception as error:
                    if self._overdue():
                        return  # hung up
                    log.exception("the outbox goes on after an unexpected error")
                    self._wait_after(EventBusError(f"{type(error).__name__}: {error}"))
        finally:
            for mark in self._marks:
                mark.done.set()
            if self._client is not None:
                self._client.close()
            self._ended.set()

    def _overdue(self) -> bool:
        return self._closing.is_set() and self._clock.monotonic() >= self._deadline

    def _settled(self) -> bool:
        return all(producer.idle for producer in self._producers)

    def _finished(self) -> bool:
        return not self._items and self._settled() and not self._to_ask()

    def _sleep_until_work(self) -> None:
        if self._items or not self._settled() or self._closing.is_set():
            return
        self._asleep = True
        if self._items or self._closing.is_set():
            self._asleep = False
            return
        asks_in_s = min((producer.asks_in_s() for producer in self._producers), default=math.inf)
        self._wake.acquire(timeout=-1 if asks_in_s == math.inf else max(0.0, asks_in_s))
        self._asleep = False

    def _to_ask(self) -> list[tuple[Keys, Producer]]:
        """Those who may have lost something without noticing, whatever the others do."""
        if self._bus is None:
            return []
        wanted_at = max(self._closed_at, self._marks[-1].put_at if self._marks else -math.inf)
        return [each for each in zip(self._bus.keys, self._producers, strict=True) if each[1].asks_in_s(wanted_at) <= 0]

    def _ready_bus(self) -> None:
        if self._bus is None:
            bus = self._open_bus()
            self._client = bus.client(name="eventbus-outbox")
            ring_bytes = self._settings.ring_bytes // bus.partitions
            self._producers = [
                Producer(clock=self._clock, losses=self._losses, ring_bytes=ring_bytes) for _ in range(bus.partitions)
            ]
            self._bus = bus

    def _fill(self) -> None:
        """Pack events until the buffer is empty, or there is enough for a round trip."""
        items, producers, pack_one = self._items, self._producers, pack
        partitions = len(producers)
        room = IN_FLIGHT_BATCHES * MAX_BATCH_EVENTS - sum(producer.pending for producer in producers)
        while room > 0 and items:
            item = items.popleft()
            if type(item) is FlushMark:
                item.added = [producer.added for producer in producers]
                self._marks.append(item)
                continue
            assert type(item) is Pending
            if len(item.message) > self._small:
                with self._large_lock:
                    self._large_bytes -= len(item.message)
            try:
                packed = pack_one(item)
            except InvalidEvent as error:
                self._losses.count("refused", 1, str(error))
                continue
            except Exception as error:  # a field of a type nobody thought of must not stop the flusher
                self._losses.count("refused", 1, f"{type(error).__name__}: {error}")
                continue
            partition = partition_of(item.reference, partitions) if partitions > 1 else 0
            producers[partition].add(packed)
            room -= 1
        for producer in producers:
            producer.seal()
        if self._waiters:
            with self._room:
                self._room.notify_all()

    def _send(self) -> None:
        """One round trip for what waits in every partition; settles what was answered."""
        assert self._bus is not None
        sent: list[tuple[int, int]] = []
        pipe = self._client.pipeline(transaction=False)
        for partition, producer in enumerate(self._producers):
            state = PublishState(self._bus.options.incoming_bytes, producer.generation, producer.silent_ms)
            batches = list(islice(producer.waiting, 1 if producer.maybe_forgotten else IN_FLIGHT_BATCHES))
            for batch in batches:
                pipe.execute_command(
                    *publish_command(
                        self._bus.keys[partition],
                        producer.id,
                        batch.first,
                        len(batch.events),
                        producer.body(batch),
                        state,
                        batch.losses,
                    )
                )
            if batches:
                sent.append((partition, len(batches)))
        if sent:
            crash_point("publish")
            with redis_errors():
                replies = iter(pipe.execute(raise_on_error=False))
            crash_point("published")
            self._settle(sent, [[next(replies) for _ in range(n)] for _, n in sent])
        while self._marks and self._marks[0].reached(self._producers):
            mark = self._marks.popleft()
            mark.accepted = True
            mark.done.set()

    def _settle(self, sent: list[tuple[int, int]], replies: list[list[Any]]) -> None:
        problem: EventBusError | None = None
        failed = 0
        for (partition, _), answers in zip(sent, replies, strict=True):
            for answer in answers:
                if isinstance(answer, Exception):
                    problem, failed = translate(answer), partition
                    break
                published = parse_published(answer)
                if not self._producers[partition].settle(published):
                    problem = self._after_refusal(partition, published) or problem
                    break
        if isinstance(problem, FunctionsMissing):
            assert self._bus is not None
            self._bus.open_partition(self._client, failed)
        elif problem is not None:
            raise problem

    def _after_refusal(self, partition: int, answer: Published) -> EventBusError | None:
        assert self._bus is not None
        if answer.answer is Accepted.MISSING:
            try:
                self._bus.open_partition(self._client, partition)
            except EventBusError as error:
                return error  # told when the other partitions have been settled
        if answer.answer is Accepted.FULL:
            holder = f"group {answer.group!r} holds it" if answer.group else "no group reads it"
            return BusUnavailable(f"the stream of partition {partition} is full: {holder}; start its workers")
        return None

    def _wait_after(self, error: EventBusError) -> None:
        """Full jitter, doubling, and a line that says how much waits."""
        self._failures += 1
        self._losses.tell("unavailable", f"{error} ({self.waiting} events wait)")
        most = min(LAST_BACKOFF_S, FIRST_BACKOFF_S * 2 ** min(self._failures, 10))
        if self._closing.is_set():
            self._clock.sleep(0.05)
        else:
            self._closing.wait(random.uniform(most / 4, most))
