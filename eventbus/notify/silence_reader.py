"""Reads silences and acknowledgements for the notifier, and deletes those that have expired."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import datetime, timedelta
from queue import SimpleQueue
from typing import Any, Final, NamedTuple

from eventbus.broker.bus import Bus
from eventbus.cache.delta_fifo import last_state
from eventbus.cache.factory import SharedInformerFactory
from eventbus.errors import BusUnavailable, Conflict, NotFound
from eventbus.model.kinds import ACKNOWLEDGEMENT, SILENCE, Kind
from eventbus.model.objects.silence import Acknowledgement
from eventbus.notify.engine import Engine
from eventbus.store.object_store import ObjectStore

#: Expired objects are kept so long, for people who look for the reason of a missing message.
KEPT: Final = timedelta(days=5)
FIRST_LIST_S: Final = 5.0
#: Objects that one call deletes.
DELETED_AT_ONCE: Final = 100
KINDS: Final[tuple[Kind[Any], ...]] = (SILENCE, ACKNOWLEDGEMENT)


class SilenceChange(NamedTuple):
    """A silence or acknowledgement was written or deleted."""

    kind: Kind[Any]
    name: str


class SilenceReader:
    """Informers of both kinds. Their changes go to *inbox*: pass each to `apply`. One thread, besides theirs."""

    def __init__(self, bus: Bus, inbox: SimpleQueue[Any]) -> None:
        self._store = ObjectStore.of(bus)
        self._informers = SharedInformerFactory(self._store)
        for kind in KINDS:
            self._watch(kind, inbox)

    def start(self) -> None:
        """Start, and wait for the first list. Raises: BusUnavailable: Redis did not send it; it has stopped again."""
        self._informers.start()
        if not all(self._informers.wait_for_cache_sync(FIRST_LIST_S).values()):
            self.stop()
            raise BusUnavailable("the silences and acknowledgements cannot be listed")

    def stop(self) -> None:
        """End the threads, and wait for them."""
        self._informers.stop()
        self._store.close()

    def apply_all(self, engine: Engine, now_ms: int) -> None:
        """Have *engine* use all of them."""
        for kind in KINDS:
            for found in self._informers.informer_for(kind).lister().list():
                self.apply(SilenceChange(kind, found.metadata.name), engine, now_ms)

    def apply(self, change: SilenceChange, engine: Engine, now_ms: int) -> None:
        """Have *engine* use the newest version of a changed object."""
        found: Any = self._informers.informer_for(change.kind).indexer.get_by_key(change.name)
        if change.kind is SILENCE:
            engine.set_silence(change.name, found, now_ms)
        else:
            engine.set_acknowledgement(change.name, found)

    def delete_expired(self, now: datetime, in_use: Callable[[Acknowledgement], bool]) -> int:
        """Delete silences that ended long ago, and old acknowledgements that are not in use.

        Returns: how many. Raises: BusUnavailable, BusRefused.
        """
        deleted = 0
        for kind, found in self._expired(now - KEPT, in_use):
            if deleted == DELETED_AT_ONCE:
                break
            with suppress(NotFound, Conflict):  # deleted or extended by another client
                metadata = found.metadata
                self._store.objects(kind).delete(metadata.name, version=metadata.resource_version)
                deleted += 1
        return deleted

    def _watch(self, kind: Kind[Any], inbox: SimpleQueue[Any]) -> None:
        def put(found: Any) -> None:
            inbox.put(SilenceChange(kind, last_state(found).metadata.name))

        self._informers.informer_for(kind).add_event_handler(
            on_add=lambda new, _initial: put(new), on_update=lambda _old, new: put(new), on_delete=put
        )

    def _expired(self, before: datetime, in_use: Callable[[Acknowledgement], bool]) -> Iterator[tuple[Kind[Any], Any]]:
        for silence in self._informers.informer_for(SILENCE).lister().list():
            if silence.spec.ends_at is not None and silence.spec.ends_at < before:
                yield SILENCE, silence
        for acknowledgement in self._informers.informer_for(ACKNOWLEDGEMENT).lister().list():
            made = acknowledgement.metadata.creation_timestamp
            if made is not None and made < before and not in_use(acknowledgement):
                yield ACKNOWLEDGEMENT, acknowledgement
