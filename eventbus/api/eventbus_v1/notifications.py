"""`GET /eventbus/v1/notifications`: the open groups of the notifier with their state, for the web page."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Annotated, Final

import msgspec
from aiohttp import web

from eventbus.api.alertmanager.silences import active_silences
from eventbus.api.context import API, USER, readable_namespaces
from eventbus.api.kube.authors import read_all
from eventbus.api.responses import compute_json
from eventbus.api.thread_context import ThreadContext
from eventbus.broker.health.bus_checks import PAUSED_MS
from eventbus.broker.health.export_status import notifier_lag
from eventbus.broker.notifications import NotifierStatus, ReceiverState, read_notifier_status
from eventbus.model.kinds import ACKNOWLEDGEMENT
from eventbus.notify.alerts import Alert
from eventbus.notify.group_reader import ReadGroup, read_groups
from eventbus.notify.silencing import Acknowledgements

#: Alerts that are read, groups of an answer, and alerts of a group in it.
MOST: Final = 2_000
MOST_GROUPS: Final = 500
MOST_ALERTS: Final = 20


class GroupState(StrEnum):
    """The state of a group in the order of urgency."""

    FIRING = "firing"
    ACKNOWLEDGED = "acknowledged"  #: not repeated
    INHIBITED = "inhibited"  #: all alerts that fire are inhibited or silenced
    SILENCED = "silenced"  #: all alerts that fire are silenced
    MUTED = "muted"  #: by the time intervals of its route, when it was last due
    RESOLVED = "resolved"  #: its end is not sent yet


class OpenAlert(msgspec.Struct, frozen=True, rename="camel"):
    """An alert of a group. *resolved_ms* 0: it fires."""

    id: str
    kind: str
    namespace: str
    name: str
    reason: str
    message: str
    count: int
    first_ms: int
    last_ms: int
    resolved_ms: int
    silenced_by: list[str]
    inhibited_by: str


class OpenGroup(msgspec.Struct, frozen=True, rename="camel"):
    """A group, as far as the user may read its alerts.

    *namespace*: of all its alerts; "": of several. *firing*, *resolved*, *silenced*, *inhibited*: numbers of alerts.
    *sent_ms*: when the last message was sent, 0: none was. *next_ms*: when the group is due. *pending*, *failing*: the
    integrations with a message that is not confirmed, and those of them that fail. *alerts*: the first ones.
    """

    id: str
    receiver: str
    labels: dict[str, str]
    namespace: str
    state: GroupState
    acknowledged_by: str
    opened_ms: int
    next_ms: int
    sent_ms: int
    firing: int
    resolved: int
    silenced: int
    inhibited: int
    pending: list[str]
    failing: list[str]
    alerts: list[OpenAlert]


class Notifications(msgspec.Struct, frozen=True, rename="camel"):
    """The state of the notifier. *notifier*: the acting worker. *more*: there are more groups.

    *receivers*: with the errors of those that fail; empty for users without the right to get the status.
    """

    notifier: str
    running: bool
    lag: Annotated[int, msgspec.Meta(description="changes that the notifier has not taken in")]
    receivers: Sequence[ReceiverState]
    items: list[OpenGroup]
    more: bool


async def notifications(request: web.Request) -> web.Response:
    """Open groups with alerts of namespaces that the user may read: firing ones first, then the last opened ones."""
    readable = readable_namespaces(request)
    sees_status = request.app[API].access.allowed(request[USER], "get", "status")

    def work(context: ThreadContext) -> Notifications:
        status = read_notifier_status(context.bus, context.client)
        receivers = status.receivers if status else ()
        groups, more = read_groups(
            context.bus, context.client, lambda alert: readable(alert.labels.get("namespace", "")), MOST
        )
        view = _View(context, {(receiver.name, each.name) for receiver in receivers for each in receiver.failing})
        items = sorted(map(view.group, groups), key=_order)
        return Notifications(
            notifier=status.holder if status else "",
            running=status is not None and _runs(context, status),
            lag=notifier_lag(context.bus, context.client, status) if status else 0,
            receivers=receivers if sees_status else (),
            items=items[:MOST_GROUPS],
            more=more or len(items) > MOST_GROUPS,
        )

    return await compute_json(request, work)


def _runs(context: ThreadContext, status: NotifierStatus) -> bool:
    seconds, microseconds = context.client.time()
    now_ms = seconds * 1000 + microseconds // 1000
    return any(file.worker == status.holder and now_ms - file.seen_ms < PAUSED_MS for file in status.files)


def _order(group: OpenGroup) -> tuple[int, int]:
    return list(GroupState).index(group.state), -group.opened_ms


class _View:
    """Silences, acknowledgements and failing integrations, as they are now."""

    def __init__(self, context: ThreadContext, failing: set[tuple[str, str]]) -> None:
        self._silences = active_silences(context)
        self._failing = failing
        self._acknowledgements = Acknowledgements()
        for each in read_all(context, ACKNOWLEDGEMENT):
            self._acknowledgements.set(each.metadata.name, each)

    def group(self, found: ReadGroup) -> OpenGroup:
        """Return a group as it is shown."""
        group, alerts = found
        firing = [alert for alert in alerts if alert.fires]
        silenced = {alert.id: by for alert in firing if (by := list(self._silences.matching(alert.labels)))}
        inhibited = {alert.id: group.inhibited[alert.id] for alert in firing if alert.id in group.inhibited}
        acknowledgement = self._acknowledgements.of(firing)
        if not firing:
            state = GroupState.RESOLVED
        elif len(silenced) == len(firing):
            state = GroupState.SILENCED
        elif len(silenced.keys() | inhibited.keys()) == len(firing):
            state = GroupState.INHIBITED
        elif group.muted_until_ms:
            state = GroupState.MUTED
        else:
            state = GroupState.ACKNOWLEDGED if acknowledgement else GroupState.FIRING
        namespaces = {alert.labels.get("namespace", "") for alert in alerts}
        pending = [name for name, sent in group.sent.items() if sent.pending]
        shown = sorted(alerts, key=lambda alert: (not alert.fires, alert.first_ms))[:MOST_ALERTS]
        return OpenGroup(
            id=group.id,
            receiver=group.receiver,
            labels=group.labels,
            namespace=namespaces.pop() if len(namespaces) == 1 else "",
            state=state,
            acknowledged_by=acknowledgement.spec.created_by if acknowledgement else "",
            opened_ms=group.opened_ms,
            next_ms=group.next_ms,
            sent_ms=max((sent.at_ms for sent in group.sent.values()), default=0),
            firing=len(firing),
            resolved=len(alerts) - len(firing),
            silenced=len(silenced),
            inhibited=len(inhibited),
            pending=pending,
            failing=[name for name in pending if (group.receiver, name) in self._failing],
            alerts=[_alert(alert, silenced.get(alert.id, []), inhibited.get(alert.id, "")) for alert in shown],
        )


def _alert(alert: Alert, silenced_by: list[str], inhibited_by: str) -> OpenAlert:
    kind, namespace, name, reason, message = (
        alert.labels.get(label, "") for label in ("kind", "namespace", "name", "reason", "message")
    )
    return OpenAlert(
        id=alert.id,
        kind=kind,
        namespace=namespace,
        name=name,
        reason=reason,
        message=message,
        count=alert.count,
        first_ms=alert.first_ms,
        last_ms=alert.last_ms,
        resolved_ms=alert.resolved_ms,
        silenced_by=silenced_by,
        inhibited_by=inhibited_by,
    )
