"""Silences and acknowledgements over alerts. No I/O, no clock: callers pass the time.

Source: alertmanager `silence/silence.go`. Departure: the silence of an alert is found when the alert or a silence
begins, not for each notification.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from eventbus.errors import ConfigError
from eventbus.model.matchers import Matchers, MatchType
from eventbus.model.objects.silence import Acknowledgement, Silence
from eventbus.model.silence_rules import matchers_of
from eventbus.notify.alerts import Alert, ms_of, object_of
from eventbus.util.log import log

#: Silences that are active at once. Further ones are ignored until one of them ends, with an error in the log.
MAX_SILENCES: Final = 1000
#: Starts and ends are collected again when there are so many more than silences.
_OLD_BORDERS: Final = 100
#: An alert that begins within this time after an acknowledgement counts as older: clocks of machines differ.
TOLERANCE_MS: Final = 10_000


class Silencing:
    """The silences that have not ended, and the first one that matches each alert. One thread.

    Args: alerts: all alerts, by id.
    """

    def __init__(self, alerts: Mapping[str, Alert]) -> None:
        self._alerts = alerts
        self._silences: dict[str, Silence] = {}
        self._active: dict[str, Matchers] = {}
        self._ignored: dict[str, None] = {}  #: those that have begun, in this order, when there was no room
        #: The same by one of their `=` matchers, since most have one; None: without one.
        self._places: dict[tuple[str, str] | None, dict[str, Matchers]] = {}
        self._place_of: dict[str, tuple[str, str] | None] = {}
        self._labels: set[str] = set()  #: that the active silences look at
        self._silenced: dict[str, str] = {}  #: alert → name of an active silence
        self._borders: list[tuple[int, str]] = []

    @property
    def active(self) -> int:
        """Return how many silences have begun and not ended."""
        return len(self._active)

    @property
    def ignored(self) -> int:
        """Return how many silences have begun beyond MAX_SILENCES."""
        return len(self._ignored)

    def set(self, name: str, silence: Silence | None, now_ms: int) -> list[str]:
        """Use the current version of a silence; None: it was deleted. Returns: alerts that are visible again."""
        if silence is not None and self._silences.get(name) == silence:
            return []
        self._silences.pop(name, None)
        ended = self._end(name)
        if silence is not None and _end_ms(silence) > now_ms:
            self._silences[name] = silence
            self._add_borders(name, now_ms)
        if name in self._silences and _start_ms(self._silences[name]) <= now_ms:
            self._begin(name)
        else:
            self._ignored.pop(name, None)
        visible = self._release(name) if ended else []
        self._admit()
        return [each for each in visible if each not in self._silenced]

    def _add_borders(self, name: str, now_ms: int) -> None:
        names = [name]
        if len(self._borders) > 2 * len(self._silences) + _OLD_BORDERS:  # most are of former versions
            self._borders.clear()
            names = [*self._silences]
        for each in names:
            for at_ms in (_start_ms(self._silences[each]), _end_ms(self._silences[each])):
                if at_ms > now_ms:
                    heapq.heappush(self._borders, (at_ms, each))

    def next_ms(self) -> int | None:
        """Return the next start or end of a silence."""
        return self._borders[0][0] if self._borders else None

    def pass_borders(self, now_ms: int) -> list[str]:
        """Begin and end silences. Returns: alerts that are visible again."""
        visible: list[str] = []
        while self._borders and self._borders[0][0] <= now_ms:
            _, name = heapq.heappop(self._borders)
            silence = self._silences.get(name)
            if silence is None:
                continue
            if _end_ms(silence) <= now_ms:
                del self._silences[name]
                self._ignored.pop(name, None)
                if self._end(name):
                    visible += self._release(name)
            elif name not in self._active and _start_ms(silence) <= now_ms:
                self._begin(name)
        self._admit()
        return [each for each in visible if each not in self._silenced]

    def update(self, alert: Alert, former: Mapping[str, str]) -> None:
        """Look again at an alert that had the labels *former*."""
        if any(alert.labels.get(name) != former.get(name) for name in self._labels):
            self.add(alert)

    def add(self, alert: Alert) -> None:
        """Look at a new alert."""
        self._silenced.pop(alert.id, None)
        if name := next(self.matching(alert.labels), ""):
            self._silenced[alert.id] = name

    def matching(self, labels: Mapping[str, str]) -> Iterator[str]:
        """Yield the names of the active silences of an alert with *labels*."""
        for place in (None, *labels.items()):
            for name, matchers in self._places.get(place, {}).items():
                if matchers.match(labels):
                    yield name

    def discard(self, alert_id: str) -> None:
        self._silenced.pop(alert_id, None)

    def silence_of(self, alert_id: str) -> str:
        """Return the name of the silence of an alert; "": it is not silenced."""
        return self._silenced.get(alert_id, "")

    def _admit(self) -> None:
        """Begin silences that were ignored, as many as there is room for."""
        while self._ignored and len(self._active) < MAX_SILENCES:
            name = next(iter(self._ignored))
            del self._ignored[name]
            self._begin(name)

    def _begin(self, name: str) -> None:
        if len(self._active) >= MAX_SILENCES:
            if not self._ignored:
                log.error(
                    "the silence %s is ignored, as are further ones, until one of the %d active ones ends",
                    *(name, MAX_SILENCES),
                )
            self._ignored[name] = None
            return
        self._ignored.pop(name, None)
        try:
            matchers = matchers_of(self._silences[name].spec)
        except ConfigError as error:
            log.error("the silence %s is ignored: %s", name, error)
            return
        self._active[name] = matchers
        # Under the matcher that the fewest others are under: silences of one namespace often differ in another label.
        place = min(_places(matchers), key=lambda each: len(self._places.get(each, ())), default=None)
        self._place_of[name] = place
        self._places.setdefault(place, {})[name] = matchers
        self._labels |= matchers.names()
        for alert in self._alerts.values():
            if alert.id not in self._silenced and matchers.match(alert.labels):
                self._silenced[alert.id] = name

    def _end(self, name: str) -> bool:
        """Return False if the silence was not active."""
        matchers = self._active.pop(name, None)
        if matchers is None:
            return False
        place = self._place_of.pop(name)
        del self._places[place][name]
        if not self._places[place]:
            del self._places[place]
        return True

    def _release(self, name: str) -> list[str]:
        """Look again at the alerts that the ended silence matched. Returns: those without another."""
        self._labels = set().union(*(matchers.names() for matchers in self._active.values()))
        ids = [each for each, silence in self._silenced.items() if silence == name]
        for each in ids:
            self.add(self._alerts[each])
        return [each for each in ids if each not in self._silenced]


class Acknowledgements:
    """The acknowledgements, by object. One thread."""

    def __init__(self) -> None:
        self._all: dict[str, Acknowledgement] = {}
        self._by_object: dict[tuple[str, str, str], set[str]] = {}

    def set(self, name: str, acknowledgement: Acknowledgement | None) -> bool:
        """Use the current version; None: it was deleted. Returns: False if it is known."""
        former = self._all.get(name)
        if former == acknowledgement:
            return False
        if former is not None:
            del self._all[name]
            about = acknowledged_object(former)
            self._by_object[about].discard(name)
            if not self._by_object[about]:
                del self._by_object[about]
        if acknowledgement is not None:
            self._all[name] = acknowledgement
            self._by_object.setdefault(acknowledged_object(acknowledgement), set()).add(name)
        return True

    def of(self, firing: Iterable[Alert]) -> Acknowledgement | None:
        """Return the newest acknowledgement of a group with these alerts: all of them began before it."""
        alerts = list(firing)
        if not self._all or not alerts:
            return None
        names = {name for alert in alerts for name in self._by_object.get(object_of(alert.labels), ())}
        found = [self._all[name] for name in names if covers(self._all[name], alerts)]
        return max(found, key=lambda each: (_at_ms(each), each.metadata.name), default=None)


def _places(matchers: Matchers) -> list[tuple[str, str]]:
    return [(each.name, each.value) for each in matchers.all if each.type is MatchType.EQUAL and each.value]


def covers(acknowledgement: Acknowledgement, alerts: Iterable[Alert]) -> bool:
    """Return True if all *alerts* began before the acknowledgement, in its namespace if it is limited to it."""
    before_ms = _at_ms(acknowledgement) + TOLERANCE_MS
    namespace = acknowledged_object(acknowledgement)[1] if acknowledgement.spec.same_namespace else None
    return all(
        alert.since_ms < before_ms and (namespace is None or object_of(alert.labels)[1] == namespace)
        for alert in alerts
    )


def acknowledged_object(acknowledgement: Acknowledgement) -> tuple[str, str, str]:
    """Return kind, namespace and name as `object_of` an alert does."""
    about = acknowledgement.spec.object
    return object_of({"kind": about.kind, "namespace": about.namespace, "name": about.name})


def _at_ms(acknowledgement: Acknowledgement) -> int:
    at = acknowledgement.metadata.creation_timestamp
    return ms_of(at) if at else 0


def _start_ms(silence: Silence) -> int:
    return ms_of(silence.spec.starts_at) if silence.spec.starts_at else 0


def _end_ms(silence: Silence) -> int:
    return ms_of(silence.spec.ends_at) if silence.spec.ends_at else 0
