"""Inhibition: while one alert fires, others that depend on it are not sent.

Source: alertmanager `inhibit/inhibit.go`.
"""

from __future__ import annotations

from collections.abc import Sequence

from eventbus.notify.alerts import Alert
from eventbus.notify.rules import LINKS, InhibitRule


class Inhibition:
    """The firing sources of all rules, by the values that they share with their targets. One thread."""

    def __init__(self, rules: Sequence[InhibitRule]) -> None:
        self._rules = rules
        self._sources: list[dict[tuple[str, ...], dict[str, Alert]]] = [{} for _ in rules]
        self._places: dict[str, list[tuple[int, tuple[str, ...]]]] = {}  #: alert → where it is a source

    def add(self, alert: Alert) -> None:
        """Add a firing alert, if it is a source."""
        self.discard(alert)
        for number, rule in enumerate(self._rules):
            if rule.source_matchers.match(alert.labels):
                values = _values(rule, alert)
                self._sources[number].setdefault(values, {})[alert.id] = alert
                self._places.setdefault(alert.id, []).append((number, values))

    def discard(self, alert: Alert) -> None:
        """Remove an alert: it has resolved, or its labels change."""
        for number, values in self._places.pop(alert.id, ()):
            alerts = self._sources[number].get(values, {})
            alerts.pop(alert.id, None)
            if not alerts:
                self._sources[number].pop(values, None)

    def source_of(self, alert: Alert) -> str:
        """Return the id of a firing source that *alert* is a target of; "": there is none.

        Two that are both do not inhibit each other.
        """
        for number, rule in enumerate(self._rules):
            if not rule.target_matchers.match(alert.labels):
                continue
            sources = self._sources[number].get(_values(rule, alert), {})
            is_source = alert.id in sources or rule.source_matchers.match(alert.labels)
            for source in sources.values():
                if not is_source or not rule.target_matchers.match(source.labels):
                    return source.id
        return ""


def _values(rule: InhibitRule, alert: Alert) -> tuple[str, ...]:
    return tuple(
        alert.links.get(label, f"\0{alert.id}") if label in LINKS else alert.labels.get(label, "")
        for label in rule.equal
    )
