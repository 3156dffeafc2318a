"""What all handlers share, and the keys under which they find it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, TypeVar

import msgspec
from aiohttp import web

from eventbus.api import status
from eventbus.api.access import Access, User
from eventbus.api.wire_versions import Bases, WireVersions
from eventbus.broker.bus import Bus
from eventbus.broker.connection.client import Client
from eventbus.kinds import Kind
from eventbus.store.change_hub import Hub
from eventbus.store.writer import ObjectWriter

R = TypeVar("R")

#: Threads that wait for Redis: more calls than these wait for each other.
THREADS: Final = 16


class Desk:
    """What one thread of the pool works with: a client of its own, and objects over it."""

    def __init__(self, bus: Bus, hub: Hub, bases: Bases) -> None:
        self.bus = bus
        self.client: Client = bus.client(name="eventbus-api")
        self._hub = hub
        self._bases = bases
        self._objects: dict[Kind[Any], ObjectWriter[Any]] = {}

    def objects(self, kind: Kind[Any]) -> ObjectWriter[Any]:
        """Get, list, watch and write *kind*, in this thread."""
        found = self._objects.get(kind)
        if found is None:
            found = ObjectWriter(bus=self.bus, client=self.client, hub=self._hub, kind=kind, remember=True)
            self._objects[kind] = found
        return found

    def versions(self, kind: Kind[Any]) -> WireVersions:
        """How clients see the versions of *kind*."""
        return self._bases.of(self.client, kind.plural, self.objects(kind).partitions)

    def keep_bases(self) -> None:
        """See `Bases.keep`."""
        self._bases.keep(self.client)


class BlockingPool:
    """Runs in threads what waits for Redis; each thread has a `Desk`."""

    def __init__(self, *, bus: Bus, hub: Hub, threads: int = THREADS) -> None:
        self.hub = hub
        self._bus = bus
        self._bases = Bases(bus)
        self._local = threading.local()
        self._lock = threading.Lock()
        self._desks: list[Desk] = []
        self._executor = ThreadPoolExecutor(threads, thread_name_prefix="eventbus-api")

    async def run(self, work: Callable[[Desk], R]) -> R:
        """What *work* returns or raises. It goes on to its end though the caller is cancelled."""
        return await asyncio.get_running_loop().run_in_executor(self._executor, self._work, work)

    def close(self) -> None:
        """Wait for what is begun, drop what is not, and close the clients."""
        self._executor.shutdown(wait=True, cancel_futures=True)
        with self._lock:
            while self._desks:
                self._desks.pop().client.close()

    def _work(self, work: Callable[[Desk], R]) -> R:
        desk = getattr(self._local, "desk", None)
        if desk is None:
            desk = self._local.desk = Desk(self._bus, self.hub, self._bases)
            with self._lock:
                self._desks.append(desk)
        return work(desk)


class Api(msgspec.Struct, frozen=True, kw_only=True):
    """One API worker, as its handlers see it."""

    bus: Bus
    pool: BlockingPool
    access: Access


API: Final = web.AppKey("api", Api)
#: Who asks; set for every request that is not open to all.
USER: Final = web.RequestKey("user", User)


def require(request: web.Request, verb: str, resource: str, namespace: str = "") -> User:
    """The user of *request*, who may do that. Raises: Refusal: 403, worded as the API server does."""
    user = request[USER]
    if not request.app[API].access.allowed(user, verb, resource, namespace):
        place = f'in the namespace "{namespace}"' if namespace else "at the cluster scope"
        raise status.forbidden(
            f"{resource}.eventbus", "", f'User "{user.name}" cannot {verb} resource "{resource}" {place}'
        )
    return user


__all__ = ["API", "USER", "Api", "BlockingPool", "Desk", "require"]
