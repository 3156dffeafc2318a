"""Fetches the numbers of a bus from an API worker, for `eventbus status` and `get suppressed`."""

from __future__ import annotations

from typing import Any, TypeVar
from urllib.parse import urlencode

import msgspec

from eventbus.broker.health.expected_status import ExpectedStatus
from eventbus.broker.health.export_status import SinkStatus
from eventbus.broker.health.status import BusStatus, SourceCounts
from eventbus.client.connection import ApiConnection
from eventbus.errors import BusUnavailable
from eventbus.model.decodable import decodable

R = TypeVar("R")


class Sinks(msgspec.Struct, frozen=True):
    """The reply about external sinks."""

    items: tuple[SinkStatus, ...]


class Sources(msgspec.Struct, frozen=True):
    """The reply about sources with suppressed or aggregated events."""

    items: tuple[SourceCounts, ...]


class Expected(msgspec.Struct, frozen=True):
    """The reply about expected events."""

    items: tuple[ExpectedStatus, ...]


class OpenGroup(msgspec.Struct, frozen=True):
    """An open group of the notifier, with its first alerts and the numbers of all."""

    firing: int
    resolved: int
    alerts: tuple[dict[str, Any], ...]


class OpenGroups(msgspec.Struct, frozen=True):
    """The reply about open groups, as far as we use it. *more*: there are more groups."""

    items: tuple[OpenGroup, ...]
    more: bool


def fetch_status(connection: ApiConnection) -> BusStatus:
    """As `eventbus.broker.health.status.read_status`."""
    return fetch(connection, "/eventbus/v1/status", BusStatus)


def fetch_sinks(connection: ApiConnection) -> tuple[SinkStatus, ...]:
    """As `eventbus.broker.health.export_status.export_status`."""
    return fetch(connection, "/eventbus/v1/sinks", Sinks).items


def fetch_sources(connection: ApiConnection) -> tuple[SourceCounts, ...]:
    """As `eventbus.broker.health.status.read_sources`."""
    return fetch(connection, "/eventbus/v1/suppressed", Sources).items


def fetch_expected(connection: ApiConnection, namespace: str) -> tuple[ExpectedStatus, ...]:
    """As `eventbus.broker.health.expected_status.read_expected_status`."""
    return fetch(connection, f"/eventbus/v1/expected?{urlencode({'namespace': namespace})}", Expected).items


def fetch_open_groups(connection: ApiConnection) -> OpenGroups:
    """Fetch the open groups with alerts of namespaces that the user may read."""
    return fetch(connection, "/eventbus/v1/notifications", OpenGroups)


def fetch(connection: ApiConnection, path: str, shape: type[R]) -> R:
    """Fetch the JSON of *shape*. Raises: BusUnavailable, BusRefused."""
    body = connection.call("GET", path)
    try:
        return msgspec.json.decode(body, type=decodable(shape))
    except (msgspec.DecodeError, RecursionError) as error:
        raise BusUnavailable(f"{connection.address} answered in the form of another version: {error}") from None
