"""Opens the bus of a broadcaster when it is first needed."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING

from eventbus.errors import ConfigError
from eventbus.record import process_hooks
from eventbus.settings import Settings

if TYPE_CHECKING:
    from eventbus.broker.bus import Bus


class LazyBus:
    """Opens the bus at *url* (None: of the environment, else the embedded server's) once. Thread-safe."""

    def __init__(self, url: str | None, settings: Settings) -> None:
        self._url = url
        self._settings = settings
        self.reset()

    def __str__(self) -> str:
        """Return its name for messages, without the password."""
        from eventbus.broker.connection.address import safe_url

        return safe_url(self._url) if self._url else "the bus of the environment"

    def reset(self) -> None:
        """Forget the open bus: when made, and in a child after fork."""
        self._lock = threading.Lock()
        self._bus: Bus | None = None

    def open(self) -> Bus:
        """Return the bus; the first call imports redis and opens it.

        Raises: BusUnavailable: no answer; call again. BusRefused, ConfigError: the message says what to do.
        """
        with self._lock:
            if self._bus is None:
                _import_all()
                from eventbus.broker.bus import open_bus
                from eventbus.broker.connection.connect import resolve_url

                environ = dict(os.environ)
                if self._settings.state_dir:
                    environ["EVENTBUS_STATE_DIR"] = self._settings.state_dir
                if password := self._settings.password:
                    environ |= {"EVENTBUS_REDIS_PASSWORD": password, "EVENTBUS_REDIS_PASSWORD_FILE": ""}
                url = resolve_url(self._url, environ)
                if url is None:
                    raise ConfigError("no bus is configured (EVENTBUS_REDIS_URL=none)")
                self._bus = open_bus(url, self._settings)
            return self._bus


def _import_all() -> None:
    """Import every module that the way to Redis needs, while no thread can fork."""
    with process_hooks.no_fork():
        import encodings.idna  # noqa: F401  # needed to resolve a host's name
        import secrets  # noqa: F401  # needed for the first client of redis

        import redis  # noqa: F401

        import eventbus.broker.bus
        import eventbus.broker.connection.cluster
        import eventbus.broker.connection.cluster_client
        import eventbus.broker.connection.cluster_map
        import eventbus.broker.embedded.server  # noqa: F401
