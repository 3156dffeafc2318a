"""Explains why an event was or was not notified: for `eventbus rules trace`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import NamedTuple

from eventbus.broker.notifications import FailingIntegration
from eventbus.model.event import Event
from eventbus.model.matchers import Matcher, labels_of
from eventbus.model.objects.silence import ACTIVE, Acknowledgement, Silence
from eventbus.model.silence_rules import matchers_of as silence_matchers
from eventbus.notify.alerts import Alert, alert_id, ms_of
from eventbus.notify.engine import Group, muted_until
from eventbus.notify.routing import ActiveRoute, route_tree
from eventbus.notify.rules import Rules


class NotifierView(NamedTuple):
    """The stored state of an alert: its *groups*, itself and its inhibitors in *alerts*, and receivers that fail now.

    *failing*: receiver and integration → since when, and the last error. *silences*, *acknowledgements*: all of them.
    """

    groups: Sequence[Group]
    alerts: Mapping[str, Alert]
    failing: Mapping[tuple[str, str], FailingIntegration]
    silences: Sequence[Silence] = ()
    acknowledgements: Sequence[Acknowledgement] = ()


def trace(rules: Rules, event: Event, stored: NotifierView, now_ms: int) -> Iterator[str]:
    """Yield lines: the labels, each route with the reason for its answer, silences, the state of the alert's groups."""
    labels = labels_of(event)
    root = route_tree(rules)
    yield "labels: " + ", ".join(f'{name}="{value}"' for name, value in labels.items() if name != "message")
    taken = root.match(labels)
    yield from _routes(root, labels, taken, "route", "")
    if not taken:
        yield "no route takes it"
    for rule in rules.expect:
        if rule.takes(event, labels):
            yield f"expected event {rule.name}: this is one"
    now = datetime.fromtimestamp(now_ms / 1000, UTC)
    for silence in stored.silences:
        spec = silence.spec
        if spec.state(now) == ACTIVE and spec.ends_at and silence_matchers(spec).match(labels):
            yield (
                f"silenced by {silence.metadata.name} until {_time(ms_of(spec.ends_at))}, created by "
                f"{spec.created_by or 'an unknown user'}{_comment(spec.comment)}"
            )
    id_ = alert_id(labels)
    alert = stored.alerts.get(id_)
    if alert is None:
        yield "alert: none is open"
        return
    state = "fires" if alert.fires else f"resolved at {_time(alert.resolved_ms)}"
    ended = f" by {alert.ended_by}" if alert.ended_by else ""
    yield f"alert {id_}: {state}{ended}, {alert.count} times from {_time(alert.first_ms)} to {_time(alert.last_ms)}"
    routes = {(route.receiver, route.key): route for route in root.all()}
    for group in stored.groups:
        yield from _group(group, id_, stored, now_ms)
        route = routes.get((group.receiver, group.route))
        if route is None:
            yield "  its route is not in this file: only the end of the group is sent"
        elif until_ms := muted_until(route, now_ms):
            yield f"  muted until {_time(until_ms)} by the time intervals of this file"


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


def _group(group: Group, alert: str, stored: NotifierView, now_ms: int) -> Iterator[str]:
    yield f"group {group.key} of {group.receiver}: opened {_time(group.opened_ms)}, {len(group.alerts)} alerts"
    if source := group.inhibited.get(alert):
        by = stored.alerts.get(source)
        labels = by.labels if by else {}
        about = " ".join(labels.get(each, "") for each in ("kind", "namespace", "name", "reason")) if by else "ended"
        yield f"  this alert is inhibited by alert {source}: {about}"
    for each in stored.acknowledgements:
        if each.metadata.name == group.acknowledgement:
            user = each.spec.created_by or "an unknown user"
            yield f"  acknowledged by {user}, and not repeated{_comment(each.spec.comment)}"
    if group.muted_until_ms:
        yield f"  muted until {_time(group.muted_until_ms)} by the time intervals of the notifier's rules"
    elif not group.sent and group.next_ms > now_ms:
        yield f"  not looked at yet; due {_time(group.next_ms)}"
    elif not group.sent:
        yield f"  nothing was sent: silenced or inhibited, checked at each group_interval since {_time(group.next_ms)}"
    for name, sent in group.sent.items():
        if sent.number:
            known = "as firing" if alert in sent.firing else "and this alert is not firing in it"
            answer = f"given up at {_time(sent.answered_ms)}: {sent.error}" if sent.error else "accepted"
            if sent.answered_ms and not sent.error:
                answer += f" at {_time(sent.answered_ms)}"
            yield f"  {name}: number {sent.number} ({sent.reason}) of {_time(sent.at_ms)} was {answer}, {known}"
        if sent.pending:
            pending = sent.pending
            fails = stored.failing.get((group.receiver, name))
            why = f"; tried again since {_time(fails.since_ms)}: {fails.error}" if fails else ""
            yield f"  {name}: number {pending.number} ({pending.reason}) waits since {_time(pending.at_ms)}{why}"
        elif not sent.number:
            yield f"  {name}: nothing was sent: silenced, inhibited, muted, or resolved before"
    if group.sent and group.next_ms > now_ms:
        yield f"  next check at {_time(group.next_ms)}"
    elif group.sent:  # only changes are stored
        yield f"  checked at each group_interval since {_time(group.next_ms)}, without a change"


def matchers_of(rules: Rules) -> Iterator[Matcher]:
    """Yield all matchers of routes, inhibition rules and expected events."""
    for route in route_tree(rules).all():
        yield from route.matchers.all
    for rule in rules.inhibit_rules:
        yield from rule.source_matchers.all
        yield from rule.target_matchers.all
    for expected in rules.expect:
        yield from expected.matchers.all


def _comment(text: str) -> str:
    return f": {text}" if text else ""


def _time(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
