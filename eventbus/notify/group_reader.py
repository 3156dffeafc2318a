"""Reads the stored groups and alerts of the notifier, for processes that show them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any, Final, NamedTuple

import msgspec

from eventbus.broker.bus import Bus
from eventbus.broker.connection.connect import Client
from eventbus.broker.notifications import MANY, get_records, read_records
from eventbus.model.decodable import decodable
from eventbus.notify.alerts import Alert
from eventbus.notify.engine import Group

_ALERTS: Final = msgspec.msgpack.Decoder(decodable(Alert))
_GROUPS: Final = msgspec.msgpack.Decoder(decodable(Group))


class ReadGroup(NamedTuple):
    """A stored group, with the alerts that were asked for, in their order."""

    group: Group
    alerts: list[Alert]


def read_groups(bus: Bus, client: Client, wanted: Callable[[Alert], bool], most: int) -> tuple[list[ReadGroup], bool]:
    """Return the groups that have *wanted* alerts, and whether there are more than *most* alerts.

    Corrupt records are skipped. Memory is bounded by *most*: everything else is read in pages.
    """
    found: list[ReadGroup] = []
    alerts: dict[str, Alert] = {}
    groups = _decoded(_GROUPS, (packed for _, packed in read_records(bus, client, "g")))
    while page := list(islice(groups, MANY)):
        ids = list({id_: None for group in page for id_ in group.alerts if id_ not in alerts})
        for at in range(0, len(ids), MANY):
            packed = get_records(bus, client, [f"a{id_}" for id_ in ids[at : at + MANY]])
            alerts |= {alert.id: alert for alert in _decoded(_ALERTS, packed.values()) if wanted(alert)}
            if len(alerts) > most:
                break
        members = ((group, [alerts[id_] for id_ in group.alerts if id_ in alerts]) for group in page)
        found += [ReadGroup(group, its) for group, its in members if its]
        if len(alerts) > most:
            return found, True
    return found, False


def read_groups_of(bus: Bus, client: Client, alert: str) -> tuple[list[Group], dict[str, Alert]]:
    """Return the groups of one alert, and by id the alert and those that inhibit it; without what is not stored."""
    packed = (value for _, value in read_records(bus, client, "g"))
    groups = [group for group in _decoded(_GROUPS, packed) if alert in group.alerts]
    ids = {alert, *(group.inhibited[alert] for group in groups if alert in group.inhibited)}
    alerts = _decoded(_ALERTS, get_records(bus, client, [f"a{id_}" for id_ in sorted(ids)]).values())
    return groups, {each.id: each for each in alerts}


def _decoded(decoder: msgspec.msgpack.Decoder[Any], packed: Iterable[bytes]) -> Iterator[Any]:
    for each in packed:
        try:
            yield decoder.decode(each)
        except msgspec.DecodeError:
            continue
