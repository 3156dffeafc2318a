"""Expected events: a Warning about each that did not arrive, and its end. No I/O, no clock: callers pass the time.

    changes ─► take ─► last arrival ─► deadline ─► advance ─► Report ─► (stored, then recorded) ─► reported

An event is missing from its deadline until it arrives. One Warning is recorded for this time, under an identity that
names the last arrival, so another notifier that decides the same records nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final
from zoneinfo import ZoneInfo

import msgspec

from eventbus.broker.notifications import ExpectedEvent, Report
from eventbus.model.decodable import decodable
from eventbus.model.event import Event, EventType, ObjectReference
from eventbus.model.matchers import labels_of
from eventbus.notify.alerts import alert_id, digest, ms_of
from eventbus.notify.engine import Engine, Occurrence
from eventbus.notify.expect_rules import ARRIVED_REASON, INDEXED, MISSING_REASON, ExpectRule
from eventbus.store.story.verdict import last_seen
from eventbus.util.log import log
from eventbus.util.outcome import duration

#: Stored events that one entry knows the counts of; the least recently seen go first.
MAX_EVENTS: Final = 32


class ExpectedEvents:
    """The entries of `expect` with their state. One thread. Times are milliseconds of the bus's clock.

    Args: stored: the state of each entry, as `changed` returned it.  engine: keeps the alerts of missing events firing.
    """

    def __init__(self, rules: Sequence[ExpectRule], stored: Mapping[str, bytes], engine: Engine, now_ms: int) -> None:
        self._engine = engine
        self._states: dict[str, ExpectedEvent] = {}
        self._changed: set[str] = set()
        self._next_ms = 0  #: no deadline passes before
        for id_, packed in stored.items():
            try:
                self._states[id_] = _STATE.decode(packed)
            except msgspec.DecodeError:
                log.error("the stored state of the expected event %s cannot be read: its deadline begins again", id_)
        self.reload(rules, now_ms)

    def reload(self, rules: Sequence[ExpectRule], now_ms: int) -> None:
        """Go on with other entries. Deadlines of new and changed ones begin now, and removed ones are forgotten."""
        self._rules: dict[str, ExpectRule] = {}
        for rule in rules:
            about = rule.about
            self._rules[digest(rule.name, about.kind, about.namespace, about.name)] = rule
        removed = [id_ for id_ in self._states if id_ not in self._rules]
        for id_ in removed:
            state = self._states.pop(id_)
            self._changed.add(id_)
            if state.missing_ms and not self._is_missing(state.object):
                self._engine.release(_alert_of(state.object))
        for id_, rule in self._rules.items():
            self._define(id_, rule, now_ms)
        self._index: dict[tuple[str, str], list[str]] = {}
        for id_, rule in self._rules.items():
            self._index.setdefault(rule.index, []).append(id_)
        self._find_next()

    def _define(self, id_: str, rule: ExpectRule, now_ms: int) -> None:
        state = self._states.get(id_)
        if state is None:
            state = ExpectedEvent(name=rule.name, object=rule.about, since_ms=now_ms, base_ms=now_ms)
            self._states[id_] = state
        if state.definition != rule.definition:
            state.definition = rule.definition
            if not state.missing_ms:
                state.base_ms = now_ms
            self._changed.add(id_)
        self._set_deadline(id_, state)
        if state.missing_ms:
            self._engine.hold(_alert_of(state.object))

    def __len__(self) -> int:
        return len(self._states)

    @property
    def missing(self) -> int:
        """Return how many are missing."""
        return sum(bool(state.missing_ms) for state in self._states.values())

    # -- arrivals ------------------------------------------------------------------------------------------------------

    def take(self, occurrences: Iterable[Occurrence], caught_up_ms: int, now_ms: int) -> None:
        """Take in changes of stored events; the same again have no effect.

        An event arrives when the bus has it. Of those that were missed while no notifier ran, only their own time is
        known: between *caught_up_ms*, when there was nothing more to take in, and now.
        """
        if not self._rules:
            return
        for event, added in occurrences:
            labels = labels_of(event)
            keys = [("", ""), *((label, labels.get(label, "")) for label in INDEXED)]
            for id_ in [id_ for key in keys for id_ in self._index.get(key, ())]:
                if self._rules[id_].takes(event, labels):
                    at_ms = min(max(ms_of(last_seen(event)), caught_up_ms), now_ms)
                    self._arrive(id_, event, at_ms, added=added, now_ms=now_ms)

    def _arrive(self, id_: str, event: Event, at_ms: int, *, added: bool, now_ms: int) -> None:
        state = self._states[id_]
        uid = event.metadata.uid
        known = state.events.pop(uid, None)
        state.events[uid] = event.times_seen
        if len(state.events) > MAX_EVENTS:
            del state.events[next(iter(state.events))]
        if known is not None and event.times_seen <= known:
            return
        if known is None and not added and at_ms < state.last_ms:
            return  # a change of an event that is older than the last arrival
        self._changed.add(id_)
        missing_ms, state.missing_ms = state.missing_ms, 0
        state.last_ms = max(state.last_ms, at_ms)
        state.base_ms = max(state.base_ms, at_ms)
        if missing_ms and not self._is_missing(state.object):
            rule = self._rules[id_]
            late = duration((now_ms - state.due_ms) / 1000)
            due = _text(rule, state.due_ms)  # distinct messages are not counted as one event, which would end nothing
            text = f"the expected event {state.name}, due {due}, has arrived {late} late: {event.reason}"
            identity = f"expected:{id_}:{missing_ms}:arrived"
            at_ms = max(now_ms, missing_ms + 1)
            state.reports.append(Report(identity, EventType.NORMAL, ARRIVED_REASON, text, at_ms))
            log.info("%s", text)
            self._engine.release(_alert_of(state.object), event.reason, at_ms)
        self._set_deadline(id_, state)
        self._next_ms = min(self._next_ms, state.deadline_ms)  # `advance` finds the exact one

    def _is_missing(self, about: ObjectReference) -> bool:
        return any(state.missing_ms and state.object == about for state in self._states.values())

    # -- deadlines -----------------------------------------------------------------------------------------------------

    def advance(self, caught_up_ms: int, now_ms: int) -> None:
        """Find events that have not arrived by a deadline before *caught_up_ms*: all arrivals up to it are known."""
        if caught_up_ms <= self._next_ms:
            return
        for id_, state in self._states.items():
            if not state.missing_ms and state.deadline_ms < caught_up_ms:
                self._miss(id_, state, now_ms)
        self._find_next()

    def _miss(self, id_: str, state: ExpectedEvent, now_ms: int) -> None:
        rule = self._rules[id_]
        state.missing_ms = now_ms
        last = f"it last arrived {_text(rule, state.last_ms)}" if state.last_ms else "it has not arrived yet"
        text = f"the expected event {state.name} has not arrived by {_text(rule, state.deadline_ms)}; {last}"
        identity = f"expected:{id_}:{state.base_ms}:missing"
        state.reports.append(Report(identity, EventType.WARNING, MISSING_REASON, text, now_ms))
        self._changed.add(id_)
        self._engine.hold(_alert_of(state.object))
        log.warning("%s", text)

    def _set_deadline(self, id_: str, state: ExpectedEvent) -> None:
        if state.missing_ms:
            return
        rule = self._rules[id_]
        due_ms = rule.due_ms(state.base_ms)
        deadline_ms = due_ms + (rule.grace.ms if rule.grace else 0)
        if (state.due_ms, state.deadline_ms) != (due_ms, deadline_ms):
            state.due_ms, state.deadline_ms = due_ms, deadline_ms
            self._changed.add(id_)

    def _find_next(self) -> None:
        waiting = [state.deadline_ms for state in self._states.values() if not state.missing_ms]
        self._next_ms = min(waiting, default=1 << 62)

    # -- storing -------------------------------------------------------------------------------------------------------

    def changed(self) -> dict[str, str]:
        """Return the states to store since the last call, by id; "": it is deleted."""
        changed, self._changed = self._changed, set()
        return {id_: msgspec.json.encode(state).decode() if (state := self._states.get(id_)) else "" for id_ in changed}

    def reports(self) -> list[tuple[str, ObjectReference, Report]]:
        """Return the events to record, each with the id of its entry, as soon as they are stored."""
        return [(id_, state.object, report) for id_, state in self._states.items() for report in state.reports]

    def reported(self, id_: str, identity: str) -> None:
        """Confirm that an event was recorded."""
        if state := self._states.get(id_):
            state.reports = [report for report in state.reports if report.identity != identity]
            self._changed.add(id_)


_STATE: Final = msgspec.json.Decoder(decodable(ExpectedEvent))


def _alert_of(about: ObjectReference) -> str:
    labels = {"kind": about.kind, "namespace": about.namespace, "name": about.name}
    return alert_id({"type": EventType.WARNING, "reason": MISSING_REASON, **labels})


def _text(rule: ExpectRule, ms: int) -> str:
    zone = rule.timezone.zone
    return f"{rule.local(ms):%Y-%m-%d %H:%M:%S} {zone.key if isinstance(zone, ZoneInfo) else 'UTC'}"
