"""Runs rules over given events on a clock of its own: for `eventbus rules test`. Sends and stores nothing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import msgspec

from eventbus.errors import ConfigError
from eventbus.model.event import Event, EventSource, Instant, ObjectMeta, ObjectReference
from eventbus.notify.alerts import ms_of
from eventbus.notify.bounded_yaml import MAX_BYTES, Document
from eventbus.notify.engine import Engine, Links, Occurrence, Send
from eventbus.notify.fields import Strict, convert
from eventbus.notify.rules import Rules
from eventbus.store.story.verdict import last_seen


class Simulated(NamedTuple):
    """A notification, and the time at which it would be sent."""

    at: datetime
    send: Send


def simulate(rules: Rules, events: Iterable[Event], *, links: Links, until: datetime) -> Iterator[Simulated]:
    """Yield the notifications about *events*, each taken in at its last time, up to *until*.

    An event is one occurrence with its whole count: the times of earlier repeats are not known.
    """
    engine = Engine(rules, links=links)
    for event in sorted(events, key=last_seen):
        now_ms = ms_of(last_seen(event))
        yield from _until(engine, now_ms)
        engine.take([Occurrence(event, True)], now_ms)
        yield from _advance(engine, now_ms)
    yield from _until(engine, ms_of(until))


def _until(engine: Engine, end_ms: int) -> Iterator[Simulated]:
    while (due_ms := engine.next_ms()) is not None and due_ms <= end_ms:
        yield from _advance(engine, due_ms)


def _advance(engine: Engine, now_ms: int) -> Iterator[Simulated]:
    sends = engine.advance(now_ms)
    engine.changed()
    for send in sends:
        yield Simulated(datetime.fromtimestamp(now_ms / 1000, UTC), send)
        engine.settle(send.group, send.integration, send.notification.key, {}, now_ms)


class CaseEvent(Strict, frozen=True, kw_only=True):
    """An event of a case, by the words of its labels."""

    kind: str = "Pod"
    namespace: str = "default"
    name: str = "web-0"
    reason: str
    type: str = "Warning"
    message: str = ""
    component: str = ""
    host: str = ""
    controller: str = ""
    labels: Mapping[str, str] = msgspec.field(default_factory=dict)
    count: int = 1


class Case(Strict, frozen=True, kw_only=True):
    """One case of `rules test`: events that happen at once, and the receivers of the notifications about them."""

    name: str
    events: tuple[CaseEvent, ...]
    receivers: tuple[str, ...]
    at: Instant | None = None


class CaseResult(msgspec.Struct, frozen=True):
    """The result of a case: passed if *expected* and *receivers* are the same."""

    name: str
    passed: bool
    expected: tuple[str, ...]
    receivers: tuple[str, ...]


def load_cases(path: Path) -> tuple[Case, ...]:
    """Read a file of cases: a YAML list. Raises: ConfigError, with the line."""
    try:
        text = path.read_bytes()[: MAX_BYTES + 1].decode()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} cannot be read: {error}") from error
    try:
        return convert(Document(text), tuple[Case, ...])
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from error


def run_case(rules: Rules, case: Case) -> CaseResult:
    """Take in the events of *case* at once, and wait for each group's first notification."""
    now = case.at or datetime.now(UTC)
    engine = Engine(rules, links=lambda _labels: {})
    engine.take([Occurrence(_event(each, number, now), True) for number, each in enumerate(case.events)], ms_of(now))
    end_ms = ms_of(now) + max((group.next_ms - group.opened_ms for group in engine.groups.values()), default=0)
    receivers = [each.send.notification.receiver for each in _until(engine, end_ms)]
    found = tuple(sorted({*receivers, *_without_integrations(engine, rules, end_ms)}))
    return CaseResult(case.name, found == tuple(sorted(case.receivers)), tuple(sorted(case.receivers)), found)


def _without_integrations(engine: Engine, rules: Rules, end_ms: int) -> set[str]:
    """Return receivers that have a group and no integration: they are sent nothing, but a case may name them."""
    empty = {receiver.name for receiver in rules.receivers if not [*receiver.integrations()]}
    return {group.receiver for group in engine.groups.values() if group.receiver in empty and group.next_ms > end_ms}


def _event(case: CaseEvent, number: int, now: datetime) -> Event:
    return Event(
        metadata=ObjectMeta(name=f"case.{number}", namespace=case.namespace, uid=f"case:{number}", labels=case.labels),
        involved_object=ObjectReference(kind=case.kind, namespace=case.namespace, name=case.name),
        reason=case.reason,
        message=case.message,
        type=case.type,
        source=EventSource(component=case.component, host=case.host),
        reporting_component=case.controller,
        first_timestamp=now,
        last_timestamp=now,
        count=case.count,
    )
