"""Releases a lock while its holder waits for the network."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from threading import RLock

from eventbus.broker.publish_call import PublishReply
from eventbus.broker.transport import BusDescription, PublishRequest, Transport, nothing
from eventbus.errors import EventBusError


@contextmanager
def released(lock: RLock) -> Iterator[None]:
    """Release *lock*, which this thread holds, during the block."""
    lock.release()
    try:
        yield
    finally:
        lock.acquire()


class UnlockedTransport:
    """A `Transport` whose caller holds *lock*; it is released during a round trip."""

    def __init__(self, transport: Transport, lock: RLock) -> None:
        self._transport = transport
        self._lock = lock

    def describe(self) -> BusDescription:
        return self._transport.describe()

    def publish(
        self, requests: Sequence[PublishRequest], meanwhile: Callable[[], object] = nothing
    ) -> list[PublishReply | EventBusError]:
        """Publish *requests*. *meanwhile* is not called: it needs the lock."""
        with released(self._lock):
            return self._transport.publish(requests)

    def last(self, producers: Sequence[tuple[int, str]]) -> list[int | None]:
        with released(self._lock):
            return self._transport.last(producers)

    def shorten_life(self, producers: Sequence[tuple[int, str]]) -> None:
        self._transport.shorten_life(producers)

    def close(self) -> None:
        self._transport.close()
