"""The tree of routes with inherited options, and the routes that match an event's labels.

Source: alertmanager `dispatch/route.go`, Route.Match.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import msgspec

from eventbus.model.event import EventType
from eventbus.model.matchers import Matchers
from eventbus.notify.fields import Duration
from eventbus.notify.rules import Route, Rules
from eventbus.notify.time_intervals import NamedTimes

GROUP_WAIT_MS: Final = 30_000
GROUP_INTERVAL_MS: Final = 300_000
REPEAT_INTERVAL_MS: Final = 4 * 3_600_000
RESOLVE_AFTER_MS: Final = 3_600_000
#: Labels with so many values that remembering results for them is of no use.
_VARIED: Final = frozenset({"name", "message"})
#: Combinations of label values for which the routes are remembered.
_REMEMBERED: Final = 10_000


class ActiveRoute(msgspec.Struct, frozen=True, kw_only=True):
    """A route with all options, inherited and its own. *key* identifies it by the matchers on the way to it."""

    key: str
    receiver: str
    group_by: tuple[str, ...]
    group_wait_ms: int
    group_interval_ms: int
    repeat_interval_ms: int
    min_count: int
    within_ms: int
    for_ms: int
    resolve_after_ms: int
    matchers: Matchers
    typed: bool  #: it or a parent matches on `type`; the others take Warnings only
    goes_on: bool
    muted: tuple[NamedTimes, ...]
    active: tuple[NamedTimes, ...]
    routes: tuple[ActiveRoute, ...]

    def match(self, labels: Mapping[str, str]) -> list[ActiveRoute]:
        """Return the routes that take an event: depth first, the first child that takes it unless it continues."""
        if not self.matchers.match(labels):
            return []
        found: list[ActiveRoute] = []
        for child in self.routes:
            taken = child.match(labels)
            found += taken
            if taken and not child.goes_on:
                break
        if not found and (self.typed or labels.get("type") == EventType.WARNING):
            found.append(self)
        return found

    def all(self) -> Iterator[ActiveRoute]:
        """Yield the route and all below it."""
        yield self
        for child in self.routes:
            yield from child.all()

    def group_labels(self, labels: Mapping[str, str]) -> dict[str, str]:
        """Return the labels of the group of an alert with *labels*."""
        if self.group_by == ("...",):
            return {name: value for name, value in labels.items() if name != "message"}
        return {name: labels[name] for name in sorted(self.group_by) if name in labels}


class Router:
    """The routes that take an event, remembered for the values of the labels that matchers look at.

    A hot path: without it, half of the notifier's time goes into the matchers of 100 routes (benchmarks/notify.py).
    """

    def __init__(self, root: ActiveRoute) -> None:
        names = {name for route in root.all() for name in route.matchers.names()}
        self._root = root
        self._names = tuple({"type", *names})
        self._remembers = not names & _VARIED
        self._known: dict[tuple[str, ...], list[ActiveRoute]] = {}

    def match(self, labels: Mapping[str, str]) -> Sequence[ActiveRoute]:
        """Return `ActiveRoute.match` of the root."""
        if not self._remembers:
            return self._root.match(labels)
        values = tuple([labels.get(name, "") for name in self._names])
        routes = self._known.get(values)
        if routes is None:
            routes = self._root.match(labels)
            if len(self._known) >= _REMEMBERED:
                self._known.clear()
            self._known[values] = routes
        return routes


def route_tree(rules: Rules) -> ActiveRoute:
    """Return the root of *rules*."""
    resolve = rules.global_.resolve_timeout
    defaults = ActiveRoute(
        key="",
        receiver="",
        group_by=(),
        group_wait_ms=GROUP_WAIT_MS,
        group_interval_ms=GROUP_INTERVAL_MS,
        repeat_interval_ms=REPEAT_INTERVAL_MS,
        min_count=1,
        within_ms=0,
        for_ms=0,
        resolve_after_ms=resolve.ms if resolve else RESOLVE_AFTER_MS,
        matchers=Matchers(),
        typed=False,
        goes_on=False,
        muted=(),
        active=(),
        routes=(),
    )
    times = {each.name: each for each in rules.time_intervals}
    return _activate(rules.route, defaults, times)


def _activate(route: Route, parent: ActiveRoute, times: Mapping[str, NamedTimes]) -> ActiveRoute:
    found = msgspec.structs.replace(
        parent,
        key=f"{parent.key}/{route.matchers}" if parent.key else str(route.matchers),
        receiver=parent.receiver if route.receiver is None else route.receiver,
        group_by=parent.group_by if route.group_by is None else route.group_by,
        group_wait_ms=_ms(route.group_wait, parent.group_wait_ms),
        group_interval_ms=_ms(route.group_interval, parent.group_interval_ms),
        repeat_interval_ms=_ms(route.repeat_interval, parent.repeat_interval_ms),
        min_count=parent.min_count if route.min_count is None else route.min_count,
        within_ms=_ms(route.within, parent.within_ms),
        for_ms=_ms(route.for_, parent.for_ms),
        resolve_after_ms=_ms(route.resolve_after, parent.resolve_after_ms),
        matchers=route.matchers,
        typed=parent.typed or "type" in route.matchers.names(),
        goes_on=route.continue_,
        muted=tuple(times[name] for name in route.mute_time_intervals),
        active=tuple(times[name] for name in route.active_time_intervals),
    )
    return msgspec.structs.replace(found, routes=tuple(_activate(child, found, times) for child in route.routes))


def _ms(given: Duration | None, inherited: int) -> int:
    return inherited if given is None else given.ms
