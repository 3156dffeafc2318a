"""Lists objects, the only place that does: reads an index page by page, and the objects that its members name."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any, Generic, TypeVar

from eventbus.broker.bus import Bus
from eventbus.broker.connection.client import Client
from eventbus.broker.redis_errors import redis_errors
from eventbus.errors import PoisonBatch
from eventbus.list_watch import HasMetadata
from eventbus.store.index import KEY_CHARS, members
from eventbus.store.storage import Storage

T = TypeVar("T", bound=HasMetadata)

#: Objects read at once.
PAGE = 500


class Scanner(Generic[T]):
    """Reads the objects of one kind in the order of an index. One thread at a time, as its client."""

    def __init__(self, *, bus: Bus, client: Client, storage: Storage[T]) -> None:
        self._bus = bus
        self._client = client
        self._storage = storage

    def scan(
        self, partition: int, index: tuple[bytes, bytes], *, after: bytes = b"", page: int = PAGE
    ) -> Iterator[tuple[bytes, T]]:
        """Yield each member behind *after* of an index, as `Storage.index` gives it, with its object.

        Skips unreadable ones.

        Raises: BusUnavailable.
        Redis:  ZRANGE BYLEX on the index and MGET, a round each for a page.
        """
        key, prefix = index
        named = members(self._client, key, prefix, after=after, page=page)
        while chunk := list(islice(named, page)):
            for member, found in zip(chunk, self.load(partition, chunk), strict=True):
                if found is not None:
                    yield member, found

    def load(self, partition: int, named: Sequence[bytes]) -> list[T | None]:
        """Read the objects of index members, None where there is none. Redis: MGET."""
        prefix = self._bus.keys[partition].object_of(self._storage.kind.plural)
        with redis_errors():
            values: Any = self._client.mget([prefix + member[-KEY_CHARS:] for member in named])
        return [self._decode(value) for value in values]

    def _decode(self, packed: bytes | None) -> T | None:
        try:
            return None if packed is None else self._storage.decode(packed)
        except PoisonBatch:
            return None


__all__ = ["PAGE", "Scanner"]
