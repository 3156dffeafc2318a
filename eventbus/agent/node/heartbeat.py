"""Makes a block of code, a command or a cron job a node for as long as it runs."""

from __future__ import annotations

import math
import os
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Self

from eventbus.agent.node.lease_renewal import PASSING, LeaseRenewal
from eventbus.errors import BusUnavailable, ConfigError, EventBusError, NotFound
from eventbus.model.names import is_dns_subdomain
from eventbus.settings import Settings
from eventbus.util.clock import Clock, SystemClock
from eventbus.util.log import log
from eventbus.util.periodic import Periodic

if TYPE_CHECKING:
    from eventbus.broker.bus import Bus
    from eventbus.broker.connection.connect import Client

#: Seconds between two heartbeats; the grace is four times as long.
EVERY_S = 10.0
GRACES = 4


class Heartbeat:
    """A lease that a thread renews, and that is removed with its node at the end. A context manager.

        with eventbus.heartbeat("batch-7"):
            work()

    A lifecycle worker creates the node, and records NodeNotReady if no heartbeat came for the grace. The block is never
    delayed, and no error is raised into it: while Redis is unavailable, that is logged, and the next heartbeat is
    tried. A block that raises leaves the node, which falls silent. A block that ends removes it, within *flush_s*. A
    fork sends no heartbeats: a child begins its own.
    """

    def __init__(
        self,
        name: str,
        *,
        every_s: float | None = None,
        for_s: float | None = None,
        open_bus: Callable[[], Bus],
        flush_s: float,
        clock: Clock | None = None,
    ) -> None:
        check_name(name)
        self.name = name
        self._clock = clock or SystemClock()
        every_s, self._grace_s = pace_of(every_s, for_s)
        self._open_bus = open_bus
        self._flush_s = flush_s
        self._renewal: LeaseRenewal | None = None
        self._client: Client | None = None
        self._remove_node: Callable[[], None] = lambda: None
        self._is_away = False
        self._lock = threading.Lock()
        self._loop = Periodic(self.beat, every_s=every_s, name=f"eventbus-heartbeat-{name}")

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop(leave=kind is None)

    def start(self) -> None:
        """Begin to send heartbeats; returns at once."""
        self._loop.start()

    def stop(self, *, leave: bool = True) -> None:
        """Send no more heartbeats, and with *leave* remove lease and node. Waits for about *flush_s* at most."""
        if not self._loop.stop(self._flush_s):
            log.warning("node %s stays, and will be found silent: Redis does not answer", self.name)
            return
        try:
            if leave:
                self.leave()
        except EventBusError as error:
            log.warning("node %s stays, and will be found silent: %s", self.name, error)
        finally:
            self.close()

    def beat(self) -> None:
        """Renew the lease once. The reason why Redis did not take it is logged once."""
        try:
            self.renew()
            if self._is_away:
                log.warning("heartbeat of %s: Redis is back", self.name)
            self._is_away = False
        except EventBusError as error:
            if not self._is_away:
                log.warning("heartbeat of %s: %s", self.name, error)
            self._is_away = True

    def renew(self) -> None:
        """Send one heartbeat. Raises: BusUnavailable, BusRefused, ConfigError: it was not sent."""
        with self._lock:
            if self._renewal is None:
                self._renewal = self._open()
            for _ in range(3):  # another holder of this name may begin or end just now
                with suppress(*PASSING):
                    self._renewal.renew()
                    return
        raise BusUnavailable(f"another process writes the lease of {self.name} all the time")

    def leave(self) -> None:
        """Take the lease away, then the node. Raises: BusUnavailable, BusRefused."""
        with self._lock:
            if self._renewal is not None:
                self._renewal.remove()
                with suppress(NotFound):
                    self._remove_node()

    def close(self) -> None:
        """Close the connection."""
        if self._client is not None:
            self._client.close()

    def _open(self) -> LeaseRenewal:
        from eventbus.agent.node.factory import open_objects
        from eventbus.model.kinds import LEASE, NODE

        bus = self._open_bus()
        self._client = client = bus.client(name="eventbus-heartbeat")
        nodes = open_objects(bus, client, NODE, self._clock)
        self._remove_node = lambda: nodes.delete(self.name)
        return LeaseRenewal(
            leases=open_objects(bus, client, LEASE, self._clock),
            clock=self._clock,
            name=self.name,
            holder=f"{socket.gethostname()}_{os.getpid()}",
            duration_s=self._grace_s,
        )


def heartbeat(
    name: str,
    *,
    every_s: float | None = None,
    for_s: float | None = None,
    url: str | None = None,
    settings: Settings | None = None,
) -> Heartbeat:
    """Make this block of code a node called *name*: `with eventbus.heartbeat("batch-7"): ...`.

    Args:   name: lower case letters, digits, '-' and '.'.
            every_s: seconds between two heartbeats; None: 10.
            for_s: how long it may be silent; None: four times as long.
            url, settings: where the bus is; None: as a broadcaster's.
    Raises: ConfigError: an argument is invalid, or no bus is configured.
    """
    chosen = settings or Settings.from_environ(os.environ)

    def open_it() -> Bus:
        from eventbus.broker.bus import open_bus
        from eventbus.broker.connection.connect import resolve_url

        where = resolve_url(url, chosen)
        if where is None:
            raise ConfigError("no bus is configured (EVENTBUS_REDIS_URL=none), so a heartbeat would reach no one")
        return open_bus(where, chosen)

    return Heartbeat(name, every_s=every_s, for_s=for_s, open_bus=open_it, flush_s=chosen.flush_s)


def check_name(name: str) -> None:
    """Raises: ConfigError: *name* is no name of a node."""
    if not is_dns_subdomain(name):
        raise ConfigError(f"{name!r} is no name of a node: lower case letters, digits, '-' and '.', like batch-7")


def pace_of(every_s: float | None, for_s: float | None) -> tuple[float, int]:
    """Return the seconds between two heartbeats, and the grace in whole seconds.

    Raises: ConfigError: the grace is shorter.
    """
    if every_s is None:
        every_s = EVERY_S if for_s is None else min(EVERY_S, for_s / GRACES)
    grace_s = GRACES * every_s if for_s is None else for_s
    if not 0 < every_s < grace_s < 2**31:
        problem = f"a sign every {every_s:g} s does not come within {grace_s:g} s"
        raise ConfigError(f"{problem}: give a shorter --every (every_s) or a longer --for (for_s)")
    return every_s, max(1, math.ceil(grace_s))
