"""Makes the parts of a process's spool from its settings."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from eventbus.broker.transport import Transport
from eventbus.clock import Clock
from eventbus.record.losses import Losses
from eventbus.record.spool.adopter import Adopter
from eventbus.record.spool.keeper import SpoolKeeper
from eventbus.record.spool.spool import BusName, Spool
from eventbus.settings import Settings, SpoolWhen

if TYPE_CHECKING:
    from eventbus.broker.bus import Bus


def make_keeper(
    *,
    url: str | None,
    settings: Settings,
    open_bus: Callable[[], Bus],
    connect: Callable[[], Transport],
    clock: Clock,
    losses: Losses,
) -> SpoolKeeper:
    """Make the keeper of *settings*' spool, with a spool and an adopter. Touches no file yet."""
    name = name_before_opening(url, settings)

    def name_bus() -> BusName:
        bus = open_bus()
        return BusName(name.address, name.prefix, bus.id, bus.partitions)

    root = Path(settings.spool)
    spool = Spool(
        root=root,
        bus=name,
        limit_bytes=settings.spool_bytes,
        always=settings.spool_when is SpoolWhen.ALWAYS,
        clock=clock,
        losses=losses,
    )
    adopter = Adopter(root=root, name_bus=name_bus, connect=connect, settings=settings, clock=clock, losses=losses)
    return SpoolKeeper(spool=spool, adopter=adopter, clock=clock)


def name_before_opening(url: str | None, settings: Settings) -> BusName:
    """Name the bus before it has answered: by its address, without the password."""
    from eventbus.broker.connection.address import safe_url

    return BusName(safe_url(url) if url else f"embedded {settings.state_dir}".rstrip(), settings.prefix)
