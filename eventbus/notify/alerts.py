"""Alerts: one object and reason with first, last and count of its own, in firing and resolved episodes."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from hashlib import blake2b
from typing import Final

import msgspec

from eventbus.model.bus_path import ALERT_ANNOTATION, PATH_ANNOTATION
from eventbus.model.event import Event
from eventbus.notify.receivers.contract import NotifiedAlert, Status
from eventbus.store.story.verdict import first_seen, last_seen, silence_after
from eventbus.util.text import ELLIPSIS

#: Stored events that one alert knows the counts of; the least recently seen go first.
MAX_EVENTS: Final = 32
#: Points of time and count that `within` looks at. Beyond them, every other one of the older half goes.
MAX_SAMPLES: Final = 64
#: Characters of a message that are kept; matchers see all of it.
MAX_MESSAGE: Final = 1024
#: Longest silence before an alert is resolved.
LONGEST_SILENCE_MS: Final = 7 * 86_400_000


def object_of(labels: Mapping[str, str]) -> tuple[str, str, str]:
    """Return kind, namespace and name of the object."""
    return labels.get("kind", "").lower(), labels.get("namespace", ""), labels.get("name", "")


def alert_id(labels: Mapping[str, str]) -> str:
    """Return the fingerprint of an alert: of its object, reason and type."""
    return digest(labels.get("type", ""), labels.get("reason", ""), *object_of(labels))


def digest(*texts: str) -> str:
    """Return 16 hexadecimal digits of *texts*."""
    return blake2b("\0".join(texts).encode("utf-8", "replace"), digest_size=8).hexdigest()


class Alert(msgspec.Struct, array_like=True):
    """The state of an alert, as it is stored.

    *first_ms*, *last_ms*, *count*: of this episode, by the times of its events. *since_ms*, *seen_ms*: when the
    notifier took in its first and last occurrence, by the bus's clock: timers use these, because the clocks of
    producers differ. *events*: uid → count of each stored event, so that reading again changes nothing.
    *resolved_ms* 0: it fires. *ended_by*, *ended_ms*: reason and time of the good event that ended it. *links*: node
    and owner of the object, if a rule needs them. *path*: the buses that the newest event passed before this one.
    """

    id: str
    labels: dict[str, str]
    event: str  #: namespace/name of the newest event
    first_ms: int
    last_ms: int
    since_ms: int
    seen_ms: int
    count: int
    events: dict[str, int]
    samples: list[tuple[int, int]]
    resolve_after_ms: int
    resolved_ms: int = 0
    ended_by: str = ""
    ended_ms: int = 0
    links: dict[str, str] = {}
    path: str = ""

    @property
    def fires(self) -> bool:
        """Return True until it is resolved."""
        return not self.resolved_ms

    def take(self, event: Event, labels: dict[str, str], added: int, *, whole: bool, now_ms: int) -> None:
        """Take in *added* > 0 occurrences. *whole*: they are all that the event has. A resolved alert fires again."""
        last_ms = ms_of(last_seen(event))
        first_ms = ms_of(first_seen(event)) if whole else last_ms
        uid = event.metadata.uid
        self.events.pop(uid, None)
        self.events[uid] = event.times_seen
        if len(self.events) > MAX_EVENTS:
            del self.events[next(iter(self.events))]
        if self.resolved_ms and last_ms <= self.ended_ms:
            return  # held back until after the good event that came later
        if self.resolved_ms:
            self.resolved_ms, self.ended_by, self.ended_ms = 0, "", 0
            self.first_ms, self.since_ms, self.count = first_ms, now_ms, 0
            self.samples.clear()
        if len(labels.get("message", "")) > MAX_MESSAGE:
            labels = labels | {"message": f"{labels['message'][: MAX_MESSAGE - len(ELLIPSIS)]}{ELLIPSIS}"}
        self.labels = labels
        self.event = f"{event.metadata.namespace}/{event.metadata.name}"
        self.path = event.metadata.annotations.get(PATH_ANNOTATION, "")
        self.first_ms, self.last_ms = min(self.first_ms, first_ms), max(self.last_ms, last_ms)
        self.seen_ms = now_ms
        self.count += added
        self.samples.append((now_ms, self.count))
        if len(self.samples) > MAX_SAMPLES:
            half = MAX_SAMPLES // 2
            self.samples = self.samples[:half:2] + self.samples[half:]

    def count_within(self, ms: int, now_ms: int) -> int:
        """Return the occurrences of the last *ms*; 0: of the whole episode."""
        before = [count for at, count in self.samples if at <= now_ms - ms] if ms else []
        return self.count - (before[-1] if before else 0)

    def resolves_ms(self, least_ms: int) -> int:
        """Return when it resolves without a repeat: a single occurrence after its route's resolve_after, others by the
        verdict's rule. *least_ms*: of a repeated one, since suppressed counts come with a delay."""
        if self.count < 2:
            return self.seen_ms + self.resolve_after_ms
        silence = silence_after(self.count, timedelta(milliseconds=self.last_ms - self.first_ms))
        silence_ms = silence // timedelta(milliseconds=1)
        return self.seen_ms + min(max(silence_ms, least_ms), LONGEST_SILENCE_MS)

    def notified(self, status: Status, *, is_new: bool, otherwise_ms: int) -> NotifiedAlert:
        """Return it as part of a notification. *otherwise_ms*: its end, if it is sent as resolved and fires again."""
        labels = {name: value for name, value in self.labels.items() if name != "message"}
        kind, namespace, name = (labels.get(key, "") for key in ("kind", "namespace", "name"))
        summary = f"{kind} {namespace}/{name}: {labels.get('reason', '')}"
        return NotifiedAlert(
            fingerprint=self.id,
            status=status,
            labels=labels,
            annotations={
                "summary": summary,
                "message": self.labels.get("message", ""),
                "count": str(self.count),
                "event": self.event,
                **({ALERT_ANNOTATION: self.path} if self.path else {}),
            },
            starts_at=_time(self.first_ms),
            last_seen=_time(self.last_ms),
            ends_at=_time(self.resolved_ms or otherwise_ms) if status is Status.RESOLVED else None,
            count=self.count,
            ended_by=self.ended_by if status is Status.RESOLVED else "",
            is_new=is_new,
        )


def new_alert(id_: str, event: Event, labels: dict[str, str], resolve_after_ms: int, now_ms: int) -> Alert:
    """Return an alert without occurrences: `take` comes next."""
    last_ms = ms_of(last_seen(event))
    return Alert(id_, labels, "", last_ms, last_ms, now_ms, now_ms, 0, {}, [], resolve_after_ms)


def ms_of(at: datetime) -> int:
    """Return milliseconds since 1970."""
    return int(at.timestamp() * 1000)


def _time(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1000, UTC)
