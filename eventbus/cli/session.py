"""Opens the bus of a command from the environment: settings, bus, client, store.

Where EVENTBUS_URL names an API worker there is only the store, and a command that needs more says that it needs Redis.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING

from eventbus.errors import ConfigError
from eventbus.settings import Settings

if TYPE_CHECKING:
    from datetime import datetime, timedelta

    from eventbus.broker.bus import Bus
    from eventbus.broker.connection.connect import Client
    from eventbus.broker.health.expected_status import ExpectedStatus
    from eventbus.broker.health.export_status import SinkStatus
    from eventbus.broker.health.status import BusStatus, SourceCounts
    from eventbus.broker.transport import Transport
    from eventbus.client.store import RemoteStore
    from eventbus.model.event import Event, ObjectReference
    from eventbus.model.objects.silence import AcknowledgedObject
    from eventbus.store.event_search import Search, SearchResult
    from eventbus.store.object_store import ObjectStore
    from eventbus.store.occurrences import Histogram
    from eventbus.store.story.story import Story
    from eventbus.store.story.verdict import Verdict


class Session:
    """An opened bus with one client for the command's own thread; or *remote*, the store of an API worker."""

    def __init__(
        self,
        *,
        settings: Settings,
        bus: Bus | None = None,
        client: Client = None,
        remote: RemoteStore | None = None,
    ) -> None:
        self.settings = settings
        self._bus = bus
        self._client = client
        self.remote = remote

    @property
    def bus(self) -> Bus:
        """Raises: ConfigError: there is an API worker, and no Redis."""
        if self._bus is None:
            cure = "take EVENTBUS_URL away, and set EVENTBUS_REDIS_URL"
            raise ConfigError(f"this command needs Redis, and EVENTBUS_URL names an API worker: {cure}", cure=cure)
        return self._bus

    @property
    def client(self) -> Client:
        """Raises: as `bus`."""
        return self._client if self.bus else None

    def close(self) -> None:
        """Close the client, and the store if it was opened; or the connections to the API worker."""
        if self.remote is not None:
            self.remote.close()
        elif "store" in self.__dict__:
            self.store.close()
        if self._client is not None:
            self._client.close()

    @cached_property
    def store(self) -> ObjectStore | RemoteStore:
        """The store, read with this session's client or connection; closed with the session."""
        if self.remote is not None:
            return self.remote
        from eventbus.store.object_store import ObjectStore

        return ObjectStore(self.bus, self.client)

    def transport(self) -> Transport:
        """Open a transport for an outbox, on its own connection."""
        if self.remote is not None:
            from eventbus.client.transport import open_http_transport

            return open_http_transport(self.remote.address)
        from eventbus.broker.redis_transport import RedisTransport

        return RedisTransport(self.bus)

    def read_status(self) -> BusStatus:
        """Everything `eventbus status` shows, but the sinks. Raises: BusUnavailable, BusRefused."""
        if self.remote is not None:
            from eventbus.client.numbers import fetch_status

            return fetch_status(self.remote.connection)
        from eventbus.broker.health.status import read_status

        return read_status(self.bus, self.client)

    def read_sinks(self) -> tuple[SinkStatus, ...]:
        """The external sinks. Raises: BusUnavailable, BusRefused."""
        if self.remote is not None:
            from eventbus.client.numbers import fetch_sinks

            return fetch_sinks(self.remote.connection)
        from eventbus.broker.health.export_status import export_status

        return export_status(self.bus, self.client)

    def read_sources(self) -> tuple[SourceCounts, ...]:
        """Read the counts of suppressed and aggregated events by source. Raises: BusUnavailable, BusRefused."""
        if self.remote is not None:
            from eventbus.client.numbers import fetch_sources

            return fetch_sources(self.remote.connection)
        from eventbus.broker.health.status import read_sources

        return read_sources(self.bus, self.client)

    def read_expected(self, now: datetime, namespace: str) -> tuple[ExpectedStatus, ...]:
        """Read the expected events of *namespace*, "": of all. Raises: BusUnavailable, BusRefused."""
        if self.remote is not None:
            from eventbus.client.numbers import fetch_expected

            return fetch_expected(self.remote.connection, namespace)
        from eventbus.broker.health.expected_status import read_expected_status

        return read_expected_status(self.bus, self.client, now, namespace)

    def fires(self, about: AcknowledgedObject) -> tuple[bool, bool]:
        """Return whether an open group contains a firing alert about an object, and whether all groups were read.

        Raises: BusUnavailable, BusRefused.
        """
        from eventbus.notify.alerts import object_of

        wanted = object_of({"kind": about.kind, "namespace": about.namespace, "name": about.name})
        if self.remote is not None:
            from eventbus.client.numbers import fetch_open_groups

            open_groups = fetch_open_groups(self.remote.connection)
            shown = [each for group in open_groups.items for each in group.alerts]
            found = any(not each["resolvedMs"] and object_of(each) == wanted for each in shown)
            hidden = any(group.firing + group.resolved > len(group.alerts) for group in open_groups.items)
            return found, not open_groups.more and not hidden
        from eventbus.notify.group_reader import read_groups

        groups, _ = read_groups(
            self.bus, self.client, lambda alert: alert.fires and object_of(alert.labels) == wanted, most=1
        )
        return bool(groups), True

    def read_story(self, about: ObjectReference, before: timedelta, *, system: bool = False) -> Story:
        """Return the story of one object. Raises: BusUnavailable, BusRefused."""
        if self.remote is not None:
            from eventbus.store.story.reading import fetch_story

            return fetch_story(self.remote.connection, about, before=before, system=system)
        from eventbus.store.story.reading import read_story

        return read_story(self.bus, self.client, about, before=before, system=system)

    def read_verdicts(self, objects: Sequence[ObjectReference]) -> Sequence[Verdict]:
        """Judge each of *objects*. Raises: BusUnavailable, BusRefused."""
        if self.remote is not None:
            from eventbus.store.story.reading import fetch_verdicts

            return fetch_verdicts(self.remote.connection, objects)
        from eventbus.store.story.reading import read_verdicts

        return read_verdicts(self.bus, self.client, objects)

    def read_event(self, namespace: str, name: str) -> Event:
        """Return one event. Raises: NotFound, BusUnavailable, BusRefused."""
        return self.store.get(namespace, name)

    def search_events(self, search: Search) -> SearchResult:
        """Find the newest events. Raises: InvalidSelector, BusUnavailable, BusRefused."""
        if self.remote is not None:
            from eventbus.store.event_search import fetch_search

            return fetch_search(self.remote.connection, search)
        from eventbus.model.kinds import EVENT
        from eventbus.store.event_search import search_events
        from eventbus.store.object_store import ObjectStore

        assert isinstance(self.store, ObjectStore)
        return search_events(self.bus, self.client, self.store.objects(EVENT), search)

    def read_histogram(
        self, since: datetime, until: datetime, *, by: Sequence[str], only: Mapping[str, str], step_s: int
    ) -> Histogram:
        """Count occurrences by time and the words of *by*. Raises: BusUnavailable, BusRefused."""
        if self.remote is not None:
            from eventbus.store.occurrences import fetch_histogram

            return fetch_histogram(self.remote.connection, since, until, by=by, only=only, step_s=step_s)
        from eventbus.store.occurrences import read_occurrences, summed

        return summed(read_occurrences(self.bus, self.client, since, until), by=by, only=only, step_s=step_s)

    def event_ttl_s(self) -> int:
        """Return how long an event is kept after it was last seen."""
        if self.remote is not None:
            from eventbus.client.transport import read_bus

            return read_bus(self.remote.connection).event_ttl_s
        return self.bus.options.event_ttl_s


@contextmanager
def open_session() -> Iterator[Session]:
    """Open the bus that the environment names, for the time of the block.

    Errors of the bus may leave the block: `Program` prints them as one line, `error: …`, and exits with their code.

    Raises: ConfigError: a setting cannot be used, or there is no bus.  BusUnavailable, BusRefused: see `open_bus`.
    """
    settings = Settings.from_environ(os.environ)
    if settings.url:
        from eventbus.client.address import parse_api_url
        from eventbus.client.store import RemoteStore

        session = Session(settings=settings, remote=RemoteStore(parse_api_url(settings.url, settings)))
        try:
            yield session
        finally:
            session.close()
        return
    from eventbus.broker.bus import open_bus

    bus = open_bus(find_url(settings), settings)
    client = bus.client(name="eventbus-cli")
    session = Session(settings=settings, bus=bus, client=client)
    try:
        yield session
    finally:
        session.close()


def find_url(settings: Settings) -> str:
    """Return the url of the bus; start the embedded server if it is missing. May hold a password: show `safe_url`.

    Raises: ConfigError: there is none (`EVENTBUS_REDIS_URL=none`), or it cannot be used.
    """
    from eventbus.broker.connection.connect import resolve_url

    url = resolve_url(None, settings)
    if url is None:
        raise ConfigError("no bus is configured (EVENTBUS_REDIS_URL=none): set it to redis://host:6379/0, or unset it")
    return url
