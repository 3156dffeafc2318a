"""Explains why an event was or was not notified: for `eventbus rules trace`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime

from eventbus.model.event import Event
from eventbus.model.matchers import Matcher, labels_of
from eventbus.notify.alerts import Alert, alert_id
from eventbus.notify.engine import Group
from eventbus.notify.routing import ActiveRoute, route_tree
from eventbus.notify.rules import Rules


def trace(rules: Rules, event: Event, alerts: Mapping[str, Alert], groups: Iterable[Group]) -> Iterator[str]:
    """Yield lines: the labels, each route with the reason for its answer, and the state of the alert's groups."""
    labels = labels_of(event)
    root = route_tree(rules)
    yield "labels: " + ", ".join(f'{name}="{value}"' for name, value in labels.items() if name != "message")
    taken = root.match(labels)
    yield from _routes(root, labels, taken, "route", "")
    if not taken:
        yield "no route takes it"
    id_ = alert_id(labels)
    alert = alerts.get(id_)
    if alert is None:
        yield "alert: none is open"
        return
    state = "fires" if alert.fires else f"resolved at {_time(alert.resolved_ms)}"
    ended = f" by {alert.ended_by}" if alert.ended_by else ""
    yield f"alert {id_}: {state}{ended}, {alert.count} times from {_time(alert.first_ms)} to {_time(alert.last_ms)}"
    for group in groups:
        if id_ in group.alerts:
            yield from _group(group, id_)


def _routes(
    route: ActiveRoute, labels: Mapping[str, str], taken: list[ActiveRoute], path: str, indent: str
) -> Iterator[str]:
    failed = [matcher for matcher in route.matchers.all if not matcher.test()(labels.get(matcher.name, ""))]
    if failed:
        values = ", ".join(f'{each} is not "{labels.get(each.name, "")}"' for each in failed)
        yield f"{indent}{path} {route.matchers}: does not match: {values}"
        return
    if any(each is route for each in taken):
        conditions = [f"min_count {route.min_count}"] if route.min_count > 1 else []
        conditions += [f"within {route.within_ms // 1000}s"] if route.within_ms else []
        conditions += [f"for {route.for_ms // 1000}s"] if route.for_ms else []
        needs = f", if {' and '.join(conditions)} hold" if conditions else ""
        yield f"{indent}{path} {route.matchers}: takes it, for receiver {route.receiver}{needs}"
    else:
        why = "takes Warnings only" if not route.typed and labels.get("type") != "Warning" else "matches"
        yield f"{indent}{path} {route.matchers}: {why}"
    for number, child in enumerate(route.routes):
        yield from _routes(child, labels, taken, f"routes[{number}]", indent + "  ")


def _group(group: Group, alert: str) -> Iterator[str]:
    yield f"group {group.key} of {group.receiver}: opened {_time(group.opened_ms)}, {len(group.alerts)} alerts"
    if not group.sent:
        yield f"  not looked at yet; due {_time(group.next_ms)}"
    for name, sent in group.sent.items():
        if sent.pending:
            pending = sent.pending
            yield f"  {name}: number {pending.number} ({pending.reason}) waits since {_time(pending.at_ms)}"
        elif sent.number:
            known = "as firing" if alert in sent.firing else "without this alert"
            yield f"  {name}: number {sent.number} was sent at {_time(sent.at_ms)} {known}"
        else:
            yield f"  {name}: nothing was sent: inhibited, muted, or resolved before"


def matchers_of(rules: Rules) -> Iterator[Matcher]:
    """Yield all matchers of routes and inhibition rules."""
    for route in route_tree(rules).all():
        yield from route.matchers.all
    for rule in rules.inhibit_rules:
        yield from rule.source_matchers.all
        yield from rule.target_matchers.all


def _time(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
