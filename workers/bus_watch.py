"""Reports when Redis becomes unreachable or reachable, for a process that does not read the bus itself."""

from __future__ import annotations

import threading
from collections.abc import Callable

from eventbus.agent.node.bus_contact import BusContact
from eventbus.broker.bus import read_options
from eventbus.broker.connection.connect import Client, connect
from eventbus.errors import EventBusError
from eventbus.util.clock import SystemClock

#: Seconds between two checks of Redis. Shorter outages go unnoticed.
EVERY_S = 1.0


class BusWatch:
    """Checks Redis once a second, in a thread of its own, from `start` until `stop`.

    Args: on_change: called with `LostRedis` and the error, and with `Reconnected`, as by consumers.
    """

    def __init__(self, url: str, prefix: str, *, on_change: Callable[[str, str], object]) -> None:
        self._url = url
        self._prefix = prefix
        self._contact = BusContact(SystemClock(), on_change)
        self._client: Client | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="eventbus-bus-watch", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Stop the checks. Returns at once, because a Redis that does not answer must not delay the exit."""
        self._stop.set()

    def _run(self) -> None:
        while not self._stop.is_set():
            self._ask()
            self._stop.wait(EVERY_S)
        if self._client:
            self._client.close()

    def _ask(self) -> None:
        try:
            if self._client is None:
                self._client = connect(self._url, name="eventbus-up")
            read_options(self._client, self._prefix)
        except EventBusError as error:
            if not self._stop.is_set():
                self._contact.lost(error)
        else:
            self._contact.answered()
