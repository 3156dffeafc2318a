"""The core of the notifier: alerts, groups, timers, inhibition, silences. No I/O, no clock: callers pass the time.

    changes ─► take ─► alerts ─► groups ─► advance ─► Send ─► (stored, then sent) ─► settle

All decisions are in `Alert` and `Group`; `changed` returns those to store. A `Send` may leave the process only after
its group is stored, so that a take-over sends it again with the same key, and at most once more.

Source: alertmanager `dispatch/dispatch.go`, `notify/notify.go` (DedupStage), `inhibit/inhibit.go`.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Final, NamedTuple

import msgspec

from eventbus.model.event import Event, EventType
from eventbus.model.matchers import labels_of
from eventbus.model.objects.silence import Acknowledgement, Silence
from eventbus.notify.alerts import Alert, alert_id, digest, ms_of, new_alert, object_of
from eventbus.notify.inhibition import Inhibition
from eventbus.notify.receivers.contract import Notification, Reason, Status
from eventbus.notify.routing import ActiveRoute, Router, route_tree
from eventbus.notify.rules import LINKS, Rules
from eventbus.notify.silencing import Acknowledgements, Silencing, acknowledged_object, covers
from eventbus.notify.time_intervals import next_border
from eventbus.store.story.verdict import ends, last_seen
from eventbus.util.log import log

#: Bounds of all state. Beyond them, new alerts and groups are counted, and reported as one alert for each receiver.
MAX_ALERTS: Final = 100_000
MAX_GROUPS: Final = 100_000
OVERFLOW_REASON: Final = "TooManyNotifications"
#: The notifier's own Warning about a receiver. Its message begins with the receiver's name and a colon.
FAILED_REASON: Final = "NotificationFailed"
#: The shortest silence that resolves a repeated alert, in units of `refresh_s`. The verdict's rule applies as well.
REFRESHES: Final = 3


class Pending(msgspec.Struct, array_like=True):
    """A notification that is stored and not confirmed: sent again with the same content until it is.

    *acknowledgement*, *acknowledged_by*: its name and its user, if it is the reason.
    """

    number: int
    reason: str
    firing: list[str]
    resolved: list[str]
    at_ms: int
    acknowledgement: str = ""
    acknowledged_by: str = ""


class IntegrationState(msgspec.Struct, array_like=True):
    """The last confirmed notification of a group to one integration, and a *pending* one.

    *firing*: the alerts that the integration knows as firing. *acknowledgement*: the last one that it was sent.
    *reason*, *answered_ms*, *error*: of the confirmed notification; *error* "": it was accepted.
    """

    number: int = 0
    at_ms: int = 0
    firing: list[str] = []
    handle: dict[str, str] = {}
    pending: Pending | None = None
    acknowledgement: str = ""
    reason: str = ""
    answered_ms: int = 0
    error: str = ""


class Group(msgspec.Struct, array_like=True):
    """The state of a group, as it is stored. *sent*: by integration. *route*: the key of its route.

    When it was last due: *inhibited*: alert → an alert that inhibits it, *acknowledgement*: name of the one in force,
    *muted_until_ms*: when its route's mute may end, 0: it was not muted.
    """

    id: str
    receiver: str
    route: str
    labels: dict[str, str]
    opened_ms: int
    next_ms: int
    alerts: list[str] = []
    sent: dict[str, IntegrationState] = {}
    inhibited: dict[str, str] = {}
    acknowledgement: str = ""
    muted_until_ms: int = 0

    @property
    def key(self) -> str:
        """Return the group key as Alertmanager writes it."""
        labels = ", ".join(f'{name}="{value}"' for name, value in self.labels.items())
        return f"{self.route}:{{{labels}}}"

    @property
    def dedup_key(self) -> str:
        """Return the key of all notifications from its opening to its end."""
        return f"{self.id}-{self.opened_ms}"


class Occurrence(NamedTuple):
    """A change of a stored event. *added*: the event is new, so all of its count is."""

    event: Event
    added: bool


class Send(NamedTuple):
    """A notification to send to one integration, as soon as its group is stored."""

    group: str
    integration: str
    notification: Notification


#: Finds the links of an object by its labels: `node`, `owner`. It may read the store.
Links = Callable[[Mapping[str, str]], dict[str, str]]


class Engine:
    """One thread. Times are milliseconds of the bus's clock.

    Args: links: called for a new alert, if a rule needs links.
          refresh_s: the bus's option: counts of suppressed events are this late.
    """

    def __init__(self, rules: Rules, *, links: Links, refresh_s: int = 10, external_url: str = "") -> None:
        self.alerts: dict[str, Alert] = {}
        self.groups: dict[str, Group] = {}
        self.unsendable = 0  #: groups that end without a notification: their receiver was removed
        self.overflowed = 0  #: occurrences beyond the bounds
        self.skipped = 0  #: events that could not be taken in
        self.full = False  #: the stored state has reached its bound in bytes, with the same effect as MAX_ALERTS
        self._links = links
        self._least_ms = REFRESHES * refresh_s * 1000
        self._external_url = external_url
        self._objects: dict[tuple[str, str, str], set[str]] = {}
        self._memberships: dict[str, set[str]] = {}  #: alert → groups
        self._silencing = Silencing(self.alerts)
        self._acknowledgements = Acknowledgements()
        self._acknowledged: set[str] = set()  #: groups with a new acknowledgement
        self._due: list[tuple[int, str]] = []  #: groups to look at
        self._resolve_heap: list[tuple[int, str]] = []  #: alerts that may be due to resolve
        #: alert → its only valid time in `_resolve_heap`: its due time or earlier
        self._resolve_at: dict[str, int] = {}
        self._held: set[str] = set()  #: alerts that fire until `release`
        self._changed: set[str] = set()  #: names of `changed`
        self._use(rules)

    # -- rules ---------------------------------------------------------------------------------------------------------

    def _use(self, rules: Rules) -> None:
        self._root = route_tree(rules)
        self._router = Router(self._root)
        self._routes = {(route.receiver, route.key): route for route in self._root.all()}
        self._integrations = {
            each.name: {name: config for name, config in each.integrations()} for each in rules.receivers
        }
        self._inhibition = Inhibition(rules.inhibit_rules)
        self._needs_links = any(label in LINKS for rule in rules.inhibit_rules for label in rule.equal)

    def reload(self, rules: Rules, now_ms: int) -> None:
        """Go on with other rules: firing alerts are routed again, groups of routes that are gone wait for their end."""
        self._use(rules)
        self._route_again(now_ms)

    def _route_again(self, now_ms: int) -> None:
        for alert in list(self.alerts.values()):
            if alert.fires:
                if self._needs_links and not alert.links:
                    alert.links = self._links(alert.labels)
                self._inhibition.add(alert)
                for route in self._router.match(alert.labels):
                    if self._is_ready(alert, route, now_ms):
                        self._join(alert, route, now_ms)
        for group in list(self.groups.values()):
            integrations = self._integrations.get(group.receiver, {})
            gone = [sent for name, sent in group.sent.items() if name not in integrations]
            if any(sent.firing or sent.pending for sent in gone):
                self.unsendable += 1
                log.warning("a receiver of %s was removed: its group %s gets no end", group.receiver, group.key)
            if gone:
                group.sent = {name: sent for name, sent in group.sent.items() if name in integrations}
                self._changed.add(f"g{group.id}")
            if group.receiver not in self._integrations:
                self._leave(group, list(group.alerts))
            elif group.next_ms > self._latest_ms(group, now_ms):  # by a mute or an interval of other rules
                self._advance_to(group, self._earliest_ms(group, now_ms))

    def _latest_ms(self, group: Group, now_ms: int) -> int:
        """Return when a group is due at the latest by the current rules."""
        route = self._routes.get((group.receiver, group.route))
        if route and (until_ms := muted_until(route, now_ms)):
            return until_ms
        return max(group.opened_ms + (route.group_wait_ms if route else 0), now_ms + self._interval_ms(group))

    def _earliest_ms(self, group: Group, now_ms: int) -> int:
        """Return now, or the end of `group_wait`, or of `group_interval` after the last message."""
        route = self._routes.get((group.receiver, group.route))
        waited_ms = group.opened_ms + (route.group_wait_ms if route else 0)
        sent_ms = max((sent.at_ms for sent in group.sent.values()), default=0)
        return max(now_ms, waited_ms, sent_ms + self._interval_ms(group))

    def _advance_to(self, group: Group, at_ms: int) -> None:
        """Make a group due at *at_ms* if it is due later."""
        if at_ms < group.next_ms:
            group.next_ms = at_ms
            self._changed.add(f"g{group.id}")
            heapq.heappush(self._due, (at_ms, group.id))

    def load(self, alerts: Iterable[Alert], groups: Iterable[Group], now_ms: int) -> list[Send]:
        """Go on with stored state. Returns: the notifications that were stored and not confirmed."""
        for alert in alerts:
            self._add(alert)
            self._schedule(alert)
        for group in groups:
            self.groups[group.id] = group
            group.alerts = [each for each in group.alerts if each in self.alerts]
            for each in group.alerts:
                self._memberships.setdefault(each, set()).add(group.id)
            self._due.append((group.next_ms, group.id))
        heapq.heapify(self._due)
        self._route_again(now_ms)
        for alert in list(self.alerts.values()):
            if not alert.fires and not self._memberships.get(alert.id):
                self._forget(alert)
        return [
            self._send(group, name, sent)
            for group in self.groups.values()
            for name, sent in group.sent.items()
            if sent.pending
        ]

    @property
    def active_silences(self) -> int:
        """Return how many silences have begun and not ended."""
        return self._silencing.active

    @property
    def ignored_silences(self) -> int:
        """Return how many silences have begun and are ignored, because there are too many."""
        return self._silencing.ignored

    @property
    def longest_ms(self) -> int:
        """Return the longest time for which a route leaves an alert or a group as it is."""
        return max(route.repeat_interval_ms + route.resolve_after_ms for route in self._root.all())

    # -- taking in -----------------------------------------------------------------------------------------------------

    def take(self, occurrences: Iterable[Occurrence], now_ms: int) -> None:
        """Take in changes of stored events. The same changes again have no effect."""
        for event, added in occurrences:
            try:
                self._take_event(event, added=added, now_ms=now_ms)
            except Exception:  # a bug; it must not hold up the events after it
                self.skipped += 1
                log.exception("the event %s/%s is not notified", event.metadata.namespace, event.metadata.name)

    def _take_event(self, event: Event, *, added: bool, now_ms: int) -> None:
        labels = labels_of(event)
        if event.type != EventType.WARNING and self._objects:
            self._resolve_ended(event, labels, now_ms)
        routes = self._router.match(labels)
        if event.reason == FAILED_REASON:  # never to the receiver that fails
            routes = [route for route in routes if not event.message.startswith(f"{route.receiver}: ")]
        if routes:
            self._take_one(event, labels, routes, added=added, now_ms=now_ms)

    def _take_one(
        self, event: Event, labels: dict[str, str], routes: Sequence[ActiveRoute], *, added: bool, now_ms: int
    ) -> None:
        id_ = alert_id(labels)
        alert = self.alerts.get(id_)
        known = alert.events.get(event.metadata.uid) if alert else None
        # For a repeated event that we meet first now, the former count is unknown: count 1.
        times = event.times_seen - known if known is not None else event.times_seen if added else 1
        if times <= 0:
            return
        resolve_after_ms = max(route.resolve_after_ms for route in routes)
        if alert is None:
            if self.full or len(self.alerts) >= MAX_ALERTS:
                for route in routes:
                    self._overflow(route, event, times, now_ms)
                return
            alert = new_alert(id_, event, labels, resolve_after_ms, now_ms)
            if self._needs_links:
                alert.links = self._links(labels)
            self._add(alert)
        alert.resolve_after_ms = resolve_after_ms
        former_labels = alert.labels
        alert.take(event, labels, times, whole=known is None and added, now_ms=now_ms)
        self._changed.add(f"a{id_}")
        if not alert.fires:
            return
        self._silencing.update(alert, former_labels)
        self._inhibition.add(alert)
        self._schedule(alert)
        for route in routes:
            if self._is_ready(alert, route, now_ms):
                self._join(alert, route, now_ms)

    def _is_ready(self, alert: Alert, route: ActiveRoute, now_ms: int) -> bool:
        """Return True if the route's `min_count`, `within` and `for` hold."""
        return (
            alert.count_within(route.within_ms, now_ms) >= route.min_count
            and alert.last_ms - alert.first_ms >= route.for_ms
        )

    def _add(self, alert: Alert) -> None:
        self.alerts[alert.id] = alert
        self._silencing.add(alert)
        self._objects.setdefault(object_of(alert.labels), set()).add(alert.id)

    def _join(self, alert: Alert, route: ActiveRoute, now_ms: int) -> None:
        labels = route.group_labels(alert.labels)
        id_ = digest(route.receiver, route.key, *(text for pair in labels.items() for text in pair))
        group = self.groups.get(id_)
        if group is None:
            if self.full or len(self.groups) >= MAX_GROUPS:
                self._overflow(route, None, 1, now_ms)
                return
            group = Group(id_, route.receiver, route.key, labels, now_ms, now_ms + route.group_wait_ms)
            self._open(group)
        if id_ not in self._memberships.get(alert.id, ()):
            self._enter(group, alert)

    def _open(self, group: Group) -> None:
        self.groups[group.id] = group
        self._changed.add(f"g{group.id}")
        heapq.heappush(self._due, (group.next_ms, group.id))

    def _enter(self, group: Group, alert: Alert) -> None:
        group.alerts.append(alert.id)
        self._memberships.setdefault(alert.id, set()).add(group.id)
        self._changed.add(f"g{group.id}")

    def _overflow(self, route: ActiveRoute, event: Event | None, times: int, now_ms: int) -> None:
        """Count an occurrence beyond the bounds in one alert for each receiver, which the bounds do not apply to."""
        self.overflowed += times
        id_ = digest("overflow", route.receiver)
        alert = self.alerts.get(id_)
        if alert is None:
            labels = {"type": "Warning", "reason": OVERFLOW_REASON, "alertname": OVERFLOW_REASON, "kind": "Worker"}
            labels |= {"namespace": "eventbus-system", "name": "notify"}
            alert = Alert(id_, labels, "", now_ms, now_ms, now_ms, now_ms, 0, {}, [], route.resolve_after_ms)
            self._add(alert)
        if not alert.fires:
            alert.first_ms, alert.since_ms, alert.resolved_ms, alert.count = now_ms, now_ms, 0, 0
        alert.count += times
        alert.last_ms = alert.seen_ms = now_ms
        alert.labels["message"] = f"{alert.count} occurrences are not notified: more than {MAX_ALERTS} alerts or groups"
        self._changed.add(f"a{id_}")
        self._schedule(alert)
        group = self.groups.get(id_)
        if group is None:
            group = Group(id_, route.receiver, route.key, {"alertname": OVERFLOW_REASON}, now_ms, now_ms)
            self._open(group)
        if id_ not in group.alerts:
            self._enter(group, alert)

    # -- ends ----------------------------------------------------------------------------------------------------------

    def _resolve_ended(self, event: Event, labels: Mapping[str, str], now_ms: int) -> None:
        """Resolve the Warnings of an object that a good event ends."""
        ids = self._objects.get(object_of(labels))
        if not ids:
            return
        warnings = [self.alerts[each] for each in ids if self.alerts[each].labels.get("type") == EventType.WARNING]
        firing = [alert for alert in warnings if alert.fires and alert.id not in self._held]
        if not firing:
            return
        last_ms = max(alert.last_ms for alert in firing)
        if ends(event, datetime.fromtimestamp(last_ms / 1000, UTC)):
            for alert in firing:
                alert.ended_by, alert.ended_ms = event.reason, ms_of(last_seen(event))
                self._resolve(alert, now_ms)

    def hold(self, id_: str) -> None:
        """Keep an alert firing, also one that does not exist yet, until `release`."""
        self._held.add(id_)

    def release(self, id_: str, ended_by: str = "", at_ms: int = 0) -> None:
        """Resolve a held alert, ended by that reason at that time; "": it resolves by the rules of all others."""
        self._held.discard(id_)
        alert = self.alerts.get(id_)
        if alert is None or not alert.fires:
            return
        if ended_by:
            alert.ended_by, alert.ended_ms = ended_by, at_ms
            self._resolve(alert, at_ms)
        else:
            self._schedule(alert)

    def _resolve(self, alert: Alert, now_ms: int) -> None:
        alert.resolved_ms = now_ms
        self._inhibition.discard(alert)
        self._changed.add(f"a{alert.id}")
        if not self._memberships.get(alert.id):
            self._forget(alert)

    def _forget(self, alert: Alert) -> None:
        del self.alerts[alert.id]
        self._silencing.discard(alert.id)
        self._resolve_at.pop(alert.id, None)
        self._memberships.pop(alert.id, None)
        self._inhibition.discard(alert)
        about = object_of(alert.labels)
        ids = self._objects[about]
        ids.discard(alert.id)
        if not ids:
            del self._objects[about]
        self._changed.add(f"a{alert.id}")

    def _leave(self, group: Group, ids: Iterable[str]) -> None:
        """Take alerts out of a group; delete it and the alerts if they are not needed any more."""
        gone = set(ids)
        if gone:
            group.alerts = [each for each in group.alerts if each not in gone]
            self._changed.add(f"g{group.id}")
        for each in gone:
            groups = self._memberships.get(each, set())
            groups.discard(group.id)
            alert = self.alerts.get(each)
            if alert and not groups and not alert.fires:
                self._forget(alert)
        if not group.alerts and not any(sent.pending for sent in group.sent.values()):
            self.groups.pop(group.id, None)
            self._changed.add(f"g{group.id}")

    # -- silences and acknowledgements ---------------------------------------------------------------------------------

    def set_silence(self, name: str, silence: Silence | None, now_ms: int) -> None:
        """Use the current version of a silence; None: it was deleted."""
        self._look_again(self._silencing.set(name, silence, now_ms), now_ms)

    def set_acknowledgement(self, name: str, acknowledgement: Acknowledgement | None) -> None:
        """Use the current version of an acknowledgement; None: it was deleted."""
        if self._acknowledgements.set(name, acknowledgement) and acknowledgement is not None:
            for each in self._objects.get(acknowledged_object(acknowledgement), ()):
                self._acknowledged |= self._memberships.get(each, set())

    def acknowledges(self, acknowledgement: Acknowledgement) -> bool:
        """Return True if an alert that began before the acknowledgement fires about its object."""
        ids = self._objects.get(acknowledged_object(acknowledgement), ())
        return any(covers(acknowledgement, [self.alerts[each]]) for each in ids if self.alerts[each].fires)

    def _look_again(self, ids: Iterable[str], now_ms: int) -> None:
        """Make groups due for alerts that are visible again and that not all integrations know.

        Not before `group_wait`, and `group_interval` after the last message.
        """
        for id_, alert_id_ in [(group, each) for each in ids for group in self._memberships.get(each, ())]:
            group = self.groups[id_]
            if group.sent and all(alert_id_ in sent.firing for sent in group.sent.values()):
                continue
            self._advance_to(group, self._earliest_ms(group, now_ms))

    def _acknowledgement(self, group: Group) -> Acknowledgement | None:
        """Return the acknowledgement of a group, and note it in the group."""
        found = self._acknowledgements.of(alert for each in group.alerts if (alert := self.alerts[each]).fires)
        name = found.metadata.name if found else ""
        if name != group.acknowledgement:
            group.acknowledgement = name
            self._changed.add(f"g{group.id}")
        return found

    def _send_acknowledgement(self, group: Group, now_ms: int) -> list[Send]:
        """Decide the notifications of a group's acknowledgement, to integrations that show it."""
        acknowledgement = self._acknowledgement(group)
        if acknowledgement is None:
            return []
        firing = [alert for each in group.alerts if (alert := self.alerts[each]).fires]
        name, by = acknowledgement.metadata.name, acknowledgement.spec.created_by
        sends = []
        for integration, config in self._integrations.get(group.receiver, {}).items():
            sent = group.sent.get(integration)
            if sent is None or sent.pending or sent.acknowledgement == name:
                continue
            known = [alert.id for alert in sorted(firing, key=_age) if alert.id in sent.firing]
            if known and config.acknowledges:
                sent.pending = Pending(sent.number + 1, Reason.ACKNOWLEDGED, known, [], now_ms, name, by)
                self._changed.add(f"g{group.id}")
                sends.append(self._send(group, integration, sent))
        return sends

    # -- timers --------------------------------------------------------------------------------------------------------

    def next_ms(self) -> int | None:
        """Return when `advance` has something to do; None: after the next `take`."""
        timers = [heap[0][0] for heap in (self._due, self._resolve_heap) if heap]
        border_ms = self._silencing.next_ms()
        return min(timers if border_ms is None else [*timers, border_ms], default=None)

    def advance(self, now_ms: int) -> list[Send]:
        """Resolve alerts and look at the groups that are due. Returns: the notifications to send once stored."""
        while self._resolve_heap and self._resolve_heap[0][0] <= now_ms:
            at_ms, id_ = heapq.heappop(self._resolve_heap)
            if self._resolve_at.get(id_) != at_ms:
                continue
            del self._resolve_at[id_]
            alert = self.alerts.get(id_)
            if alert and alert.fires and id_ not in self._held:
                if alert.resolves_ms(self._least_ms) <= now_ms:
                    self._resolve(alert, now_ms)
                else:
                    self._schedule(alert)
        self._look_again(self._silencing.pass_borders(now_ms), now_ms)
        sends: list[Send] = []
        acknowledged, self._acknowledged = self._acknowledged, set()
        for id_ in acknowledged:
            if group := self.groups.get(id_):
                sends += self._send_acknowledgement(group, now_ms)
        while self._due and self._due[0][0] <= now_ms:
            due_ms, id_ = heapq.heappop(self._due)
            group = self.groups.get(id_)
            if group and group.next_ms == due_ms:
                sends += self._flush(group, now_ms)
                if id_ in self.groups:
                    heapq.heappush(self._due, (group.next_ms, id_))
        return sends

    def _schedule(self, alert: Alert) -> None:
        """Have `advance` check the alert when it may resolve.

        A repeat makes this later and adds no entry: `advance` then finds the later time and schedules it.
        """
        at_ms = alert.resolves_ms(self._least_ms)
        if at_ms < self._resolve_at.get(alert.id, at_ms + 1):
            self._resolve_at[alert.id] = at_ms
            heapq.heappush(self._resolve_heap, (at_ms, alert.id))

    def _flush(self, group: Group, now_ms: int) -> list[Send]:
        """Decide the notifications of a due group."""
        route = self._routes.get((group.receiver, group.route))
        until_ms = muted_until(route, now_ms) if route else 0
        if until_ms != group.muted_until_ms:
            group.muted_until_ms = until_ms
            self._changed.add(f"g{group.id}")
        if until_ms:
            group.next_ms = until_ms
            return []
        interval_ms = self._interval_ms(group)
        group.next_ms += interval_ms
        if group.next_ms <= now_ms:
            group.next_ms = now_ms + interval_ms
        members = [self.alerts[each] for each in group.alerts]
        firing = {alert.id for alert in members if alert.fires}
        inhibited = {alert.id: by for alert in members if alert.fires and (by := self._inhibition.source_of(alert))}
        if inhibited != group.inhibited:
            group.inhibited = inhibited
            self._changed.add(f"g{group.id}")
        # A group without its route only reports that its alerts have ended.
        hidden = {each for each in firing if each in inhibited or self._silencing.silence_of(each)}
        visible = firing - hidden if route else set()
        acknowledged = self._acknowledgement(group) is not None
        self._changed.update(f"a{each}" for each in firing & self._held)  # no repeat writes them, and records expire
        sends = []
        for name, config in self._integrations[group.receiver].items():
            sent = group.sent.setdefault(name, IntegrationState())
            if sent.pending:
                continue
            if not config.send_resolved and not firing.issuperset(sent.firing):
                sent.firing = [each for each in sent.firing if each in firing]
                self._changed.add(f"g{group.id}")
            repeat_ms = None
            if route:
                if config.resends:
                    repeat_ms = interval_ms
                elif not acknowledged:
                    repeat_ms = max(route.repeat_interval_ms, interval_ms)
            if reason := _reason(sent, visible, firing, repeat_ms, now_ms):
                resolved = [each for each in sent.firing if each not in firing]
                ordered = [alert.id for alert in sorted(members, key=_age) if alert.id in visible]
                sent.pending = Pending(sent.number + 1, reason, ordered, resolved, now_ms)
                self._changed.add(f"g{group.id}")
                sends.append(self._send(group, name, sent))
        if acknowledged:
            sends += self._send_acknowledgement(group, now_ms)
        self._tidy(group)
        return sends

    def _tidy(self, group: Group) -> None:
        """Take out resolved alerts that no integration has to be sent any more."""
        needed = {each for sent in group.sent.values() for each in sent.firing}
        for sent in group.sent.values():
            if sent.pending:
                needed.update(sent.pending.firing, sent.pending.resolved)
        self._leave(group, [each for each in group.alerts if not self.alerts[each].fires and each not in needed])

    def settle(
        self, group_id: str, integration: str, key: str, handle: Mapping[str, str] | None, now_ms: int, error: str = ""
    ) -> bool:
        """Confirm a notification: it was sent, with a new *handle*, or is given up (None) because of *error*.

        Returns: False: it is not pending.
        """
        group = self.groups.get(group_id)
        sent = group.sent.get(integration) if group else None
        if group is None or sent is None or sent.pending is None or key != _key(group, sent.pending):
            return False
        pending = sent.pending
        hidden = [each for each in sent.firing if each not in pending.firing and each not in pending.resolved]
        sent.firing = [*pending.firing, *(each for each in hidden if each in group.alerts)]
        sent.number, sent.at_ms, sent.pending = pending.number, pending.at_ms, None
        sent.acknowledgement = pending.acknowledgement or sent.acknowledgement
        sent.reason, sent.answered_ms, sent.error = pending.reason, now_ms, error
        if handle:
            sent.handle = dict(handle)
        self._changed.add(f"g{group_id}")
        self._tidy(group)
        return True

    def _interval_ms(self, group: Group) -> int:
        route = self._routes.get((group.receiver, group.route))
        return route.group_interval_ms if route else self._root.group_interval_ms

    def _send(self, group: Group, integration: str, sent: IntegrationState) -> Send:
        pending = sent.pending
        assert pending is not None
        known, at_ms = set(sent.firing), pending.at_ms
        alerts = []
        for status, ids in ((Status.FIRING, pending.firing), (Status.RESOLVED, pending.resolved)):
            of_status = [self.alerts[each] for each in ids if each in self.alerts]
            alerts += [each.notified(status, is_new=each.id not in known, otherwise_ms=at_ms) for each in of_status]
        notification = Notification(
            key=_key(group, pending),
            group=group.dedup_key,
            number=pending.number,
            reason=Reason(pending.reason),
            status=Status.FIRING if pending.firing else Status.RESOLVED,
            receiver=group.receiver,
            group_key=group.key,
            group_labels=group.labels,
            common_labels=_common([alert.labels for alert in alerts]),
            common_annotations=_common([alert.annotations for alert in alerts]),
            alerts=tuple(alerts),
            external_url=self._external_url,
            handle=sent.handle,
            interval_ms=self._interval_ms(group),
            acknowledged_by=pending.acknowledged_by,
        )
        return Send(group.id, integration, notification)

    # -- storing -------------------------------------------------------------------------------------------------------

    def changed(self) -> dict[str, Alert | Group | None]:
        """Return the changes since the last call: `a` and an alert's id, `g` and a group's; None: it is deleted."""
        changed, self._changed = self._changed, set()
        stored: dict[str, Mapping[str, Alert | Group]] = {"a": self.alerts, "g": self.groups}
        return {name: stored[name[0]].get(name[1:]) for name in changed}


def _key(group: Group, pending: Pending) -> str:
    return f"{group.dedup_key}/{pending.number}"


def _age(alert: Alert) -> tuple[int, str]:
    return alert.first_ms, alert.id


def _reason(
    sent: IntegrationState, visible: set[str], firing: set[str], repeat_ms: int | None, now_ms: int
) -> Reason | None:
    """Return why a notification is needed; None: it is not. *firing* includes hidden alerts, *visible* does not."""
    if not sent.firing:
        return (Reason.NEW_ALERTS if sent.number else Reason.FIRST) if visible else None
    if not visible.issubset(sent.firing):
        return Reason.NEW_ALERTS
    if any(each not in firing for each in sent.firing):
        if visible:
            return Reason.RESOLVED_ALERTS
        return None if firing.intersection(sent.firing) else Reason.ALL_RESOLVED
    if visible and repeat_ms is not None and now_ms >= sent.at_ms + repeat_ms:
        return Reason.REPEAT
    return None


def muted_until(route: ActiveRoute, now_ms: int) -> int:
    """Return when the route's mute may end; 0: it is not muted."""
    now = datetime.fromtimestamp(now_ms / 1000, UTC)
    inactive = bool(route.active) and not any(each.contains(now) for each in route.active)
    if not inactive and not any(each.contains(now) for each in route.muted):
        return 0
    return ms_of(next_border([*route.muted, *route.active], now))


def _common(mappings: Sequence[Mapping[str, str]]) -> dict[str, str]:
    """Return the pairs that all *mappings* have."""
    if not mappings:
        return {}
    first, *others = mappings
    return {name: value for name, value in first.items() if all(other.get(name) == value for other in others)}
