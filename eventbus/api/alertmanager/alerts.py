"""`/alertmanager/api/v2/alerts`, `alerts/groups` and `receivers`: the notifier's stored state."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from aiohttp import web

from eventbus.api import status
from eventbus.api.alertmanager.answers import filters_of, is_wanted, time_text
from eventbus.api.alertmanager.silences import active_silences
from eventbus.api.context import readable_namespaces, require
from eventbus.api.responses import compute_json
from eventbus.api.thread_context import ThreadContext
from eventbus.broker.notifications import read_notifier_status
from eventbus.errors import ConfigError
from eventbus.model.matchers import MAX_USER_PROGRAM, TOO_LARGE, Matcher, Matchers, MatchType
from eventbus.notify.alerts import Alert
from eventbus.notify.engine import REFRESHES
from eventbus.notify.group_reader import ReadGroup, read_groups
from eventbus.notify.receivers.contract import Status

#: Alerts of one answer.
MOST: Final = 10_000


async def alerts(request: web.Request) -> web.Response:
    """Alerts that fire, of namespaces that the user may read."""
    return await _answer(request, lambda found: [found.alert(id_) for id_ in sorted(found.shown)])


async def groups(request: web.Request) -> web.Response:
    """The same by group."""

    def plain(found: _Found) -> list[dict[str, Any]]:
        shown = [
            {"alerts": its, "labels": group.labels, "receiver": {"name": group.receiver}}
            for group, alerts in found.groups
            if found.takes(group.receiver)
            and (its := [found.alert(each.id) for each in alerts if each.id in found.shown])
        ]
        return sorted(shown, key=lambda each: (sorted(each["labels"].items()), each["receiver"]["name"]))

    return await _answer(request, plain)


async def receivers(request: web.Request) -> web.Response:
    """The receivers of the acting rules."""
    require(request, "get", "status")

    def work(context: ThreadContext) -> Any:
        found = read_notifier_status(context.bus, context.client)
        return [{"name": each.name} for each in found.receivers] if found else []

    return await compute_json(request, work)


async def refuse_alerts(_request: web.Request) -> web.Response:
    """Raises: ApiError: 405."""
    message = "alerts are made of events by eventbus worker notify: record an event (POST /eventbus/v1/record)"
    raise status.ApiError(405, "MethodNotAllowed", message, headers={"Allow": "GET"})


async def _answer(request: web.Request, plain: Callable[[_Found], Any]) -> web.Response:
    readable = readable_namespaces(request)
    matchers = Matchers(filters_of(request))
    if matchers.program_size > MAX_USER_PROGRAM:
        raise status.bad_request(f"bad matcher format: {TOO_LARGE}")
    takes = _receiver_test(request)
    flags = _Flags(*(is_wanted(request, name) for name in _Flags._fields))
    truncated = False

    def wanted(alert: Alert) -> bool:
        return alert.fires and readable(alert.labels.get("namespace", "")) and matchers.match(alert.labels)

    def work(context: ThreadContext) -> Any:
        nonlocal truncated
        found, truncated = read_groups(context.bus, context.client, wanted, MOST)
        return plain(_Found(context, found, takes, flags))

    answer = await compute_json(request, work)
    if truncated:
        answer.headers["Warning"] = f'299 - "there are more than {MOST} alerts: narrow the filter"'
    return answer


def _receiver_test(request: web.Request) -> Callable[[str], bool]:
    """Raises: ApiError: 400."""
    pattern = request.query.get("receiver", "")
    try:
        return Matcher("receiver", MatchType.MATCHES, pattern).test() if pattern else lambda _name: True
    except ConfigError as error:
        raise status.bad_request(f"failed to parse receiver param: {error}") from None


class _Flags(NamedTuple):
    active: bool
    silenced: bool
    inhibited: bool


class _Found:
    """The groups of one request. *shown*: the ids of alerts that its query selects."""

    def __init__(
        self, context: ThreadContext, groups: list[ReadGroup], takes: Callable[[str], bool], flags: _Flags
    ) -> None:
        self.groups = groups
        self.takes = takes
        self._alerts = {alert.id: alert for group in groups for alert in group.alerts}
        self._least_ms = REFRESHES * context.bus.options.refresh_s * 1000
        self._receivers: dict[str, set[str]] = defaultdict(set)
        self._inhibited: dict[str, set[str]] = defaultdict(set)
        for group, alerts in groups:
            for alert in alerts:
                self._receivers[alert.id].add(group.receiver)
                if by := group.inhibited.get(alert.id):
                    self._inhibited[alert.id].add(by)
        silences = active_silences(context)
        self._silenced = {id_: list(silences.matching(alert.labels)) for id_, alert in self._alerts.items()}
        self.shown = {id_ for id_ in self._alerts if self._is_shown(id_, flags)}

    def _is_shown(self, id_: str, flags: _Flags) -> bool:
        silenced, inhibited = bool(self._silenced[id_]), bool(self._inhibited.get(id_))
        return (
            (flags.silenced or not silenced)
            and (flags.inhibited or not inhibited)
            and (flags.active or silenced or inhibited)
            and any(map(self.takes, self._receivers[id_]))
        )

    def alert(self, id_: str) -> dict[str, Any]:
        """Return an alert in Alertmanager's form. It ends at the time at which it resolves without a repeat."""
        alert = self._alerts[id_]
        notified = alert.notified(Status.FIRING, is_new=False, otherwise_ms=0)
        silenced, inhibited = self._silenced[id_], sorted(self._inhibited.get(id_, ()))
        return {
            "annotations": notified.annotations,
            "endsAt": time_text(alert.resolves_ms(self._least_ms)),
            "fingerprint": id_,
            "receivers": [{"name": name} for name in sorted(self._receivers[id_])],
            "startsAt": time_text(alert.first_ms),
            "status": {
                "inhibitedBy": inhibited,
                "silencedBy": silenced,
                "state": "suppressed" if silenced or inhibited else "active",
            },
            "updatedAt": time_text(alert.seen_ms),
            "labels": notified.labels,
        }
