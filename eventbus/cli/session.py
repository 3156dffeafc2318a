"""Opens what a command needs of the bus, from the environment: settings, the bus, a client, the store."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING

from eventbus.errors import ConfigError
from eventbus.settings import Settings

if TYPE_CHECKING:
    from eventbus.broker.bus import Bus
    from eventbus.broker.connection.client import Client
    from eventbus.store.object_store import ObjectStore


class Session:
    """An opened bus with one client for the command's own thread."""

    def __init__(self, *, settings: Settings, bus: Bus, client: Client) -> None:
        self.settings = settings
        self.bus = bus
        self.client = client

    def close(self) -> None:
        """Close the client, and the store if it was opened."""
        if "store" in self.__dict__:
            self.store.close()
        self.client.close()

    @cached_property
    def store(self) -> ObjectStore:
        """Return the store, read with this session's client; closed with the session."""
        from eventbus.store.object_store import ObjectStore

        return ObjectStore(self.bus, self.client)


@contextmanager
def open_session(environ: Mapping[str, str] | None = None) -> Iterator[Session]:
    """Open the bus that *environ* (default: the process's) names, for the time of the block.

    Errors of the bus may leave the block: `Program` prints them as one line, `error: …`, and exits with their code.

    Raises: ConfigError: a setting cannot be used, or there is no bus.  BusUnavailable, BusRefused: see `open_bus`.
    """
    from eventbus.broker.bus import open_bus

    settings = Settings.from_environ(os.environ if environ is None else environ)
    bus = open_bus(find_url(settings, environ), settings)
    client = bus.client(name="eventbus-cli")
    session = Session(settings=settings, bus=bus, client=client)
    try:
        yield session
    finally:
        session.close()


def find_url(settings: Settings, environ: Mapping[str, str] | None = None) -> str:
    """Return the url of the bus; start the embedded server if it is missing. May hold a password: show `safe_url`.

    Raises: ConfigError: there is none (`EVENTBUS_REDIS_URL=none`), or it cannot be used.
    """
    from eventbus.broker.connection.client import resolve_url

    url = resolve_url(settings.redis_url or None, os.environ if environ is None else environ)
    if url is None:
        raise ConfigError("no bus is configured (EVENTBUS_REDIS_URL=none): set it to redis://host:6379/0, or unset it")
    return url
