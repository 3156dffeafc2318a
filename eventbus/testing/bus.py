"""A bus for one test: an embedded server, its own key prefix, and a worker that stores the recorded events."""

from __future__ import annotations

import secrets
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from eventbus.broker.embedded.server import SOCKET_PATH_BYTES, EmbeddedServer
from eventbus.model.event import Event
from eventbus.record.broadcaster import EventBroadcaster
from eventbus.settings import Settings
from eventbus.store.object_store import ObjectStore

#: The seconds between two reads of the store.
_LOOK_S = 0.02


class Bus(msgspec.Struct, frozen=True):
    """A bus with a worker. *store* reads it; *broadcaster* records on it."""

    settings: Settings
    store: ObjectStore
    broadcaster: EventBroadcaster

    @property
    def environ(self) -> dict[str, str]:
        """Return the variables that send a program here."""
        return {"EVENTBUS_REDIS_URL": self.settings.redis_url, "EVENTBUS_PREFIX": self.settings.prefix}

    def wait_for(self, wanted: Callable[[Event], bool] | str, *, within_s: float = 10.0) -> Event:
        """Wait for a stored event that *wanted* accepts, or that has this reason; return it.

        Raises: AssertionError: no such event in time; the message lists the stored events.
        """
        deadline = time.monotonic() + within_s
        while True:
            events = self.store.list().items
            for event in events:
                if event.reason == wanted if isinstance(wanted, str) else wanted(event):
                    return event
            if time.monotonic() > deadline:
                stored = ", ".join(f"{event.reason} of {event.involved_object.name}" for event in events) or "nothing"
                raise AssertionError(f"no such event within {within_s:g} s; stored: {stored}")
            time.sleep(_LOOK_S)


@contextmanager
def a_server(folder: Path) -> Iterator[str]:
    """Start an embedded server for the time of the block; its url. A folder with too long a name has a short one."""
    with tempfile.TemporaryDirectory(prefix="eb-") as short:
        place = folder if len(str(folder / "server.sock")) <= SOCKET_PATH_BYTES else Path(short)
        place.chmod(0o700)
        server = EmbeddedServer(place)
        url = server.start()
        try:
            yield url
        finally:
            server.stop()


@contextmanager
def a_bus(url: str) -> Iterator[Bus]:
    """Make a bus under a prefix that no other test has, with its worker, for the time of the block."""
    settings = Settings(redis_url=url, prefix=f"test-{secrets.token_hex(6)}", worker_block_ms=50)
    with ObjectStore.open(settings=settings) as store, EventBroadcaster(settings=settings) as broadcaster:
        broadcaster.start_recording_to_sink()
        yield Bus(settings, store, broadcaster)
