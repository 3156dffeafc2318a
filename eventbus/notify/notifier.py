"""The notifier: acquires the lease, takes in changes, stores decisions, sends, and stores the confirmations.

1. A turn takes in batches and results, and lets the engine decide.
2. Changed alerts and groups are stored with the positions, under the lease's term.
3. Only then do notifications leave, and readers go on.

A worker that dies after 2 leaves notifications that are stored and not confirmed: the next one sends them with the same
key. In the same way, events about expected events are stored before they are recorded.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from datetime import UTC, datetime
from queue import Empty, SimpleQueue
from typing import Final, NamedTuple

import msgspec

from eventbus.broker.bus import Bus
from eventbus.broker.connection.connect import Client
from eventbus.broker.notifications import (
    CAUGHT_UP,
    MANY,
    FailingIntegration,
    NotifyHold,
    NotifyStore,
    ReceiverState,
    Report,
    expected_fields,
    position_fields,
    receivers_field,
)
from eventbus.broker.redis_transport import RedisTransport
from eventbus.consume.consumer import RedisAbsence
from eventbus.consume.heartbeat import LivenessObserver, LoopHealth
from eventbus.errors import ConfigError, EventBusError
from eventbus.model.decodable import decodable
from eventbus.model.event import ObjectReference
from eventbus.model.kinds import EVENT
from eventbus.notify.alerts import Alert
from eventbus.notify.bus_time import BusTime
from eventbus.notify.change_reader import Batch, Reader
from eventbus.notify.engine import Engine, Group, Links, Send
from eventbus.notify.expected import ExpectedEvents
from eventbus.notify.receivers.contract import Opening
from eventbus.notify.rules import ParsedRules
from eventbus.notify.senders import Result, Senders
from eventbus.notify.silence_reader import SilenceChange, SilenceReader
from eventbus.record.occurrence import OccurrenceRecorder
from eventbus.store.changes import read_versions
from eventbus.util.clock import Clock
from eventbus.util.failpoints import failpoint
from eventbus.util.log import log

LOOK_EVERY_S: Final = 3.0
BEAT_EVERY_S: Final = 1.0
#: Longest wait until the readers have their first positions, if Redis does not answer.
READY_S: Final = 1.0
#: Twice the time between two checks of a standby worker. After a longer gap, the observation starts again.
LONGEST_GAP_S: Final = 6.0
#: Messages of the inbox that one turn takes.
TURN: Final = 64
#: Alerts and groups live so long after their last write, beyond the longest time of a route.
LIFE_MS: Final = 14 * 86_400_000
#: Bytes of all alerts and groups. Redis needs about as much again for keys and index.
MAX_BYTES: Final = 100_000_000
RETRY_S: Final = 0.5
#: At a stop, sends that are under way get so long.
LAST_SENDS_S: Final = 5.0
LOOK_FOR_RULES_S: Final = 1.0
DELETE_EXPIRED_EVERY_S: Final = 3600.0
#: The time up to which all changes are taken in is stored so often.
STORE_CAUGHT_UP_MS: Final = 10_000
SOURCE: Final = "eventbus-notify"

_ALERTS: Final = msgspec.msgpack.Decoder(decodable(Alert))
_GROUPS: Final = msgspec.msgpack.Decoder(decodable(Group))


class LeaseLost(Exception):
    """Another worker notifies now."""


class NotifySetup(NamedTuple):
    """The inputs of a notifier besides its rules.

    *since*: of a first start, see `Reader`. *take_over_s*: if the holder's counter stands still so long, it is dead.
    *settle_s*: after a start or an outage, expected events may arrive for so long before they are missing.
    *on_change*: called with a reason and a message, as a worker's.
    """

    bus: Bus
    consumer: str
    clock: Clock
    links: Links
    opening: Opening
    on_change: Callable[[str, str], None]
    since: float | None = None
    external_url: str = ""
    take_over_s: float = 15.0
    settle_s: float = 30.0


class Notifier:
    """Implements `Part`. One thread, and those of readers and senders.

    Args: load: reads and checks the rules file, if it has changed; None: it has not. Called about once a second.
                Raises: ConfigError: the old rules stay.
          beat: called about once a second while it acts and Redis answers: for an outgoing heartbeat. Must not block.
    """

    def __init__(
        self,
        setup: NotifySetup,
        rules: ParsedRules,
        *,
        load: Callable[[], ParsedRules | None],
        beat: Callable[[], None],
    ) -> None:
        self._setup = setup
        self._clock = setup.clock
        self._rules = rules
        self._load = load
        self._beat = beat
        self._client = setup.bus.client(name="eventbus-notify")
        self._store = NotifyStore(bus=setup.bus, client=self._client, consumer=setup.consumer)
        self._liveness = LivenessObserver(setup.clock, longest_gap_s=LONGEST_GAP_S)
        self._absence = RedisAbsence("notify", setup.on_change)
        self._stop = threading.Event()
        self._acting: _Acting | None = None
        self._rules_ok = True
        self._look_at = 0.0
        self._last_progress = setup.clock.monotonic()
        self._stands_by = ""
        self._thread = threading.Thread(target=self._run, name="eventbus-notify", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self, timeout_s: float) -> None:
        """Finish sends that are under way, store their confirmations, and release the lease."""
        self._stop.set()
        if acting := self._acting:
            acting.inbox.put(None)
        self._thread.join(timeout_s)

    def loop_health(self) -> list[LoopHealth]:
        acting, now = self._acting, self._clock.monotonic()
        gauges: dict[str, float] = {"leader": float(acting is not None), "rules_ok": float(self._rules_ok)}
        if acting is None:
            return [self._health("notify", {"failures": self._absence.failures_ever}, gauges)]
        engine = acting.engine
        gauges |= {"alerts": len(engine.alerts), "groups": len(engine.groups), "lag_events": acting.lag}
        gauges |= {"silences": engine.active_silences, "ignored_silences": engine.ignored_silences}
        gauges |= {"expected_events": len(acting.expected), "missing_events": acting.expected.missing}
        counts = {
            "failures": self._absence.failures_ever,
            "events": acting.taken,
            "overflowed": engine.overflowed,
            "loop_failures": engine.skipped,
            "unsendable": engine.unsendable,
            "lists": sum(reader.lists for reader in acting.readers),
        }
        found = [self._health("notify", counts, gauges)]
        for name, figures in acting.senders.figures().items():
            since = figures.failing_since
            found.append(
                self._health(
                    f"notify:{name}",
                    {"sent": figures.sent, "retries": figures.retries, "dropped": figures.dropped},
                    {"pending": figures.waiting, "paused_seconds": 0.0 if since is None else max(0.0, now - since)},
                )
            )
        return found

    def _health(self, group: str, counts: Mapping[str, float], gauges: Mapping[str, float]) -> LoopHealth:
        return LoopHealth(
            group=group,
            partition=0,
            last_progress=max(self._last_progress, self._acting.last_progress if self._acting else 0.0),
            ready=self._absence.ready,
            counts=counts,
            gauges=gauges,
        )

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                self._last_progress = self._clock.monotonic()
                try:
                    self._turn()
                    self._absence.answered()
                    self._absence.succeeded()
                except LeaseLost:
                    log.warning("notify: another worker has taken over, or Redis has lost the state of notifications")
                    self._stand_by()
                except EventBusError as error:
                    self._absence.failed(error)
                    self._stop.wait(RETRY_S)
                except Exception as error:  # a bug: the stored state is as before the turn
                    log.exception("notify: unexpected error; it begins again from the stored state")
                    self._absence.failed(EventBusError(str(error)))
                    self._stand_by()
                    self._stop.wait(LOOK_EVERY_S)
        finally:
            self._end()

    def _turn(self) -> None:
        self._look_for_rules()
        if self._acting is not None:
            self._acting.turn()
        elif hold := self._campaign():
            self._acting = _Acting(self._setup, self._store, self._client, self._rules, hold, self._absence, self._stop)
        else:
            self._stop.wait(LOOK_EVERY_S * random.uniform(0.3, 1))
        if self._acting is not None and self._acting.keep(self._rules_text()):
            self._beat()

    def _campaign(self) -> NotifyHold | None:
        """Try to acquire the lease: if it is free, or its holder's counter has stood still."""
        rules = self._rules_text()
        hold, dead = self._store.acquire(rules), ""
        if not hold.ours:
            still_s = self._liveness.observe({hold.holder: hold.beats})[hold.holder]
            if still_s >= self._setup.take_over_s:
                dead = hold.holder
                hold = self._store.acquire(rules, hold.holder, hold.beats)
        if not hold.ours:
            if hold.holder != self._stands_by:
                self._stands_by = hold.holder
                log.info("notify stands by: %s acts", hold.holder)
            return None
        if dead:
            log.warning("notify: took over from %s", dead)
        self._stands_by = ""
        return hold

    def _rules_text(self) -> str:
        return self._rules.hash if self._rules_ok else f"{self._rules.hash} rejected"

    def _look_for_rules(self) -> None:
        now = self._clock.monotonic()
        if now < self._look_at:
            return
        self._look_at = now + LOOK_FOR_RULES_S
        try:
            rules = self._load()
        except ConfigError as error:
            self._rules_ok = False
            log.error("the rules file is not used, the former one stays: %s", error)
            self._setup.on_change("RulesRejected", f"the rules file is not used, the former one stays: {error}")
            return
        if rules is None:
            return
        if not self._rules_ok:
            self._rules_ok = True
            log.info("the rules file is valid again")
            self._setup.on_change("RulesRestored", "the rules file is valid again")
        if rules.hash != self._rules.hash:
            self._rules = rules
            log.info("notify uses the new rules, with hash %s", rules.hash)
            if self._acting:
                self._acting.reload(rules)

    def _stand_by(self) -> None:
        acting, self._acting = self._acting, None
        if acting:
            acting.close()

    def _end(self) -> None:
        acting = self._acting
        try:
            if acting:
                acting.finish()
            self._store.release()
        except (EventBusError, LeaseLost) as error:
            log.warning("notify: could not leave tidily: %s", error)
        self._stand_by()
        self._client.close()


class _Acting:
    """The state of a notifier while it has the lease. One thread, except for *inbox* and the figures."""

    def __init__(
        self,
        setup: NotifySetup,
        store: NotifyStore,
        client: Client,
        rules: ParsedRules,
        hold: NotifyHold,
        absence: RedisAbsence,
        stop: threading.Event,
    ) -> None:
        self.inbox: SimpleQueue[Batch | SilenceChange | Result | Send | None] = SimpleQueue()
        self.taken = 0
        self.lag = 0.0
        self.last_progress = 0.0
        self._store = store
        self._client = client
        self._bus = setup.bus
        self._clock = setup.clock
        self._since = setup.since
        self._absence = absence
        self._stop = stop
        self._time = BusTime(setup.clock, hold.now_ms)
        self._next_beat = self._clock.monotonic() + BEAT_EVERY_S
        self._unstored: dict[str, bytes] = {}
        self._sizes: dict[str, int] = {}
        self._bytes = 0
        self._fields: dict[str, str] = {}  #: to be stored beside the positions
        self._receivers: list[ReceiverState] = []  #: as they were stored
        self._ready: list[Send] = []  #: decided, and sent as soon as they are stored
        self._confirmed = False  #: a confirmation is to be stored
        self._recording: list[tuple[str, ObjectReference, Report]] = []  #: given to the recorder, not confirmed
        state = store.load()
        self._positions = dict(state.positions)
        refresh_s = setup.bus.options.refresh_s
        self.engine = Engine(rules.rules, links=setup.links, refresh_s=refresh_s, external_url=setup.external_url)
        alerts: list[Alert] = []
        groups: list[Group] = []
        for name, packed in state.records.items():
            try:
                if name.startswith("a"):
                    alerts.append(_ALERTS.decode(packed))
                else:
                    groups.append(_GROUPS.decode(packed))
            except msgspec.DecodeError:  # corrupt: as if it were missing
                log.error("the stored notification state %s cannot be read, and is skipped", name)
                continue
            self._count(name, len(packed))
        self._rules = rules.rules
        self._delete_expired_at = 0.0
        self._settle_s = setup.settle_s
        self._target: tuple[int, dict[int, int]] | None = None  #: positions at a time, not taken in yet
        self.readers = list(self._make_readers())
        with ExitStack() as ends:  # if a later part cannot be made, the threads of the earlier ones end
            # Before the first `advance`, so that no silenced alert is sent.
            self._silences = SilenceReader(self._bus, self.inbox)
            self._silences.start()
            ends.callback(self._silences.stop)
            self._silences.apply_all(self.engine, self._time.bus_ms)
            self._ready += self.engine.load(alerts, groups, self._time.bus_ms)
            self.expected = ExpectedEvents(rules.rules.expect, state.expected, self.engine, self._time.latest_ms)
            self._caught_up_ms = self._stored_caught_up_ms = min(state.caught_up_ms, self._time.earliest_ms)
            self._recorder = OccurrenceRecorder(RedisTransport(setup.bus), clock=setup.clock, component=SOURCE)
            ends.callback(self._recorder.close)
            self.senders = Senders(
                rules.rules, setup.opening, clock=setup.clock, results=self.inbox, on_change=setup.on_change
            )
            ends.callback(self.senders.close)
            for reader in self.readers:
                reader.start()
                ends.callback(reader.stop)
            begun = self._clock.monotonic()
            for reader in self.readers:
                reader.ready.wait(max(0.0, begun + READY_S - self._clock.monotonic()))
            log.info("notify acts in term %d, with %d alerts in %d groups", hold.term, len(alerts), len(groups))
            self._ends = ends.pop_all()

    def turn(self) -> None:
        """Wait for messages or the next timer, and work on them. Raises: LeaseLost, Redis errors: call again."""
        batches = self._take()
        now_ms = self._time.bus_ms
        if self._time.steady_s >= self._settle_s:
            self.expected.advance(self._caught_up_ms, self._time.latest_ms)
        self._ready += self.engine.advance(now_ms)
        confirmed, self._confirmed = self._confirmed, False
        if self._ready:
            failpoint("notify:decided")
        self._save(batches)
        if confirmed:
            failpoint("notify:confirmed")
        sends, self._ready = self._ready, []
        if sends:
            failpoint("notify:written")
        self.senders.submit(sends)
        self._catch_up()
        self._record_reports()

    def reload(self, rules: ParsedRules) -> None:
        """Go on with new rules. Raises: LeaseLost, Redis errors."""
        self.engine.reload(rules.rules, self._time.bus_ms)
        self.expected.reload(rules.rules.expect, self._time.latest_ms)
        self._rules = rules.rules
        self._save([])
        self.senders.reload(rules.rules)

    def finish(self) -> None:
        """Wait for the sends that are under way, and store their confirmations."""
        self.senders.close(timeout_s=LAST_SENDS_S)
        self._settle_all()
        self._save([])

    def close(self) -> None:
        """End the threads; changes that are not stored are dropped."""
        self._ends.close()

    def _make_readers(self) -> Iterator[Reader]:
        positions = {partition: self._positions.get(partition) for partition in range(self._bus.partitions)}
        if self._bus.is_cluster:
            for partition, position in positions.items():
                yield Reader(self._bus, {partition: position}, self.inbox, since=self._since)
        else:
            yield Reader(self._bus, positions, self.inbox, since=self._since)

    def _take(self) -> list[Batch]:
        """Take in the next messages: wait for the first at most until the next timer."""
        next_ms = self.engine.next_ms()
        until = self._next_beat
        if next_ms is not None:
            until = min(until, self._time.monotonic_at(next_ms))
        batches: list[Batch] = []
        try:
            message = self.inbox.get(timeout=max(0.0, until - self._clock.monotonic()))
            for _ in range(TURN):
                if isinstance(message, Batch):
                    self.engine.take(message.occurrences, self._time.bus_ms)
                    self.expected.take(message.occurrences, self._caught_up_ms, self._time.latest_ms)
                    self.taken += len(message.occurrences)
                    batches.append(message)
                elif isinstance(message, SilenceChange):
                    self._silences.apply(message, self.engine, self._time.bus_ms)
                else:
                    self._settle(message)
                message = self.inbox.get_nowait()
            self.inbox.put(message)  # later; the order of results and batches does not matter
        except Empty:
            pass
        return batches

    def _settle_all(self) -> None:
        while True:
            try:
                message = self.inbox.get_nowait()
            except Empty:
                return
            if not isinstance(message, Batch | SilenceChange):
                self._settle(message)

    def _settle(self, message: Result | Send | None) -> None:
        if isinstance(message, Result):
            send = message.send
            self._confirmed = True
            self.engine.settle(
                *(send.group, send.integration, send.notification.key, message.handle, self._time.bus_ms, message.error)
            )
        elif isinstance(message, Send):  # its integration was closed before it was sent
            self.senders.submit([message])

    def _save(self, batches: list[Batch]) -> None:
        """Store all changes and the positions of *batches*; blocks until they are. Raises: LeaseLost."""
        for name, record in self.engine.changed().items():
            packed = b"" if record is None else msgspec.msgpack.encode(record)
            self._unstored[name] = packed
            self._count(name, len(packed))
        positions = {batch.partition: batch.position for batch in batches if batch.position is not None}
        self._positions |= positions
        self._fields |= expected_fields(self.expected.changed())
        if len(self.expected) and abs(self._caught_up_ms - self._stored_caught_up_ms) > STORE_CAUGHT_UP_MS:
            self._stored_caught_up_ms = self._caught_up_ms
            self._fields[CAUGHT_UP] = str(self._caught_up_ms)
        if self._unstored or positions or self._fields:
            self.engine.full = self._bytes > MAX_BYTES
            # Alerts before the groups that name them; positions and expected events last.
            names = sorted(self._unstored)
            chunks = [names[start : start + MANY] for start in range(0, len(names), MANY)] or [[]]
            for number, chunk in enumerate(chunks, 1):
                fields = position_fields(positions) | self._fields if number == len(chunks) else {}
                self._store_chunk({name: self._unstored[name] for name in chunk}, fields)
            self._unstored.clear()
            self._fields.clear()
        for batch in batches:
            batch.done()

    def _store_chunk(self, records: Mapping[str, bytes], fields: Mapping[str, str]) -> None:
        life_ms = LIFE_MS + self.engine.longest_ms
        while not self._store_once(records, fields, life_ms):
            self.last_progress = self._clock.monotonic()
            self._stop.wait(RETRY_S)

    def _store_once(self, records: Mapping[str, bytes], fields: Mapping[str, str], life_ms: int) -> bool:
        """Return False if Redis does not answer. Raises: LeaseLost; Redis errors once the worker stops."""
        try:
            if not self._store.settle(records, fields, life_ms=life_ms):
                raise LeaseLost
        except EventBusError as error:
            if self._stop.is_set():
                raise
            self._absence.failed(error)
            return False
        return True

    def _catch_up(self) -> None:
        """Note that all changes before a time are taken in, if those that were there at this time are."""
        if self._target is None:
            return
        asked_ms, newest = self._target
        if any(self._positions.get(partition, -1) < version for partition, version in newest.items()):
            return
        self._target, self._caught_up_ms = None, asked_ms

    def _record_reports(self) -> None:
        """Record what was decided about expected events and is stored; what Redis does not accept, in a later turn."""
        if not self._recorder.waiting:
            self._recording = self.expected.reports()
            for _, about, report in self._recording:
                at_ns = report.at_ms * 1_000_000
                self._recorder.record(report.identity, about, report.type, report.reason, report.message, at_ns)
        try:
            self._recorder.flush()
        except EventBusError as error:  # as a full stream: it must not hold up notifications
            log.debug("events about expected events wait: %s", error)
            return
        for id_, _, report in self._recording:
            self.expected.reported(id_, report.identity)
        self._recording = []

    def keep(self, rules: str) -> bool:
        """Renew the lease and measure the lag, if it is time; else return False. Raises: LeaseLost, Redis errors."""
        now = self._clock.monotonic()
        if now < self._next_beat:
            return False
        self._next_beat = now + BEAT_EVERY_S
        hold = self._store.acquire(rules)
        if not hold.ours:
            raise LeaseLost
        self._time.take_reply(hold.now_ms)
        asked_ms, partitions = self._time.earliest_ms, range(self._bus.partitions)
        newest = read_versions(self._bus, self._client, EVENT.plural, partitions)
        versions = dict(zip(partitions, newest, strict=True))
        self.lag = float(sum(max(0, at - self._positions.get(p, at)) for p, at in versions.items()))
        if self._target is None:
            self._target = asked_ms, versions
        if now >= self._delete_expired_at:
            self._delete_expired_at = now + DELETE_EXPIRED_EVERY_S
            self._delete_expired()
        if (receivers := self._receiver_states()) != self._receivers:
            self._receivers = receivers
            self._fields |= receivers_field(receivers)
        return True

    def _delete_expired(self) -> None:
        now = datetime.fromtimestamp(self._time.bus_ms / 1000, UTC)
        try:
            deleted = self._silences.delete_expired(now, self.engine.acknowledges)
        except EventBusError as error:
            log.warning("notify: expired silences are not deleted: %s", error)
            return
        if deleted:
            log.info("notify has deleted %d expired silences and acknowledgements", deleted)

    def _receiver_states(self) -> list[ReceiverState]:
        """Return the receivers for readers of the state; seconds are exact enough, and seldom change."""
        figures = self.senders.figures()
        states = []
        for receiver in self._rules.receivers:
            failing = [
                FailingIntegration(name, self._time.bus_ms_at(found.failing_since) // 1000 * 1000, found.error)
                for name, _ in receiver.integrations()
                if (found := figures[f"{receiver.name}/{name}"]).failing_since is not None
            ]
            states.append(ReceiverState(receiver.name, tuple(failing)))
        return states

    def _count(self, name: str, size: int) -> None:
        self._bytes += size - self._sizes.pop(name, 0)
        if size:
            self._sizes[name] = size
