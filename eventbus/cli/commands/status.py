"""`eventbus status`: groups and their lag, workers, fill level of the bus, and counters."""

from __future__ import annotations

import sys
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING

import click
import msgspec

from eventbus.cli.input.options import Finite
from eventbus.cli.printers.output import dump_json, is_terminal, wants_colour, write
from eventbus.cli.session import Session, open_session
from eventbus.cli.this_machine import up_page
from eventbus.errors import BusRefused, BusUnavailable
from eventbus.util.text import printable

if TYPE_CHECKING:
    from eventbus.broker.health.export_status import SinkStatus
    from eventbus.broker.health.status import BusStatus

#: Clears the terminal and moves the cursor to its first corner.
_CLEAR = "\x1b[H\x1b[2J"


@click.command()
@click.option("-w", "--watch", is_flag=True, help="Repeat until Ctrl-C.")
@click.option(
    "--interval",
    type=Finite(min=0.1, max=86_400),
    default=2.0,
    show_default=True,
    help="Seconds between two outputs of -w.",
)
@click.option("-o", "--output", type=click.Choice(["wide", "json"]), help="Every partition; or all numbers as JSON.")
def status(watch: bool, interval: float, output: str | None) -> None:
    """Show groups, workers, partitions and counters of the bus.

    \b
    LAG      events that the group has not acknowledged; <= if too many batches
             are pending to count them exactly
    DELAY    age of the oldest of them, by the server's clock
    PENDING  batches that workers have read but not acknowledged
    LOST     events that were deleted before the group read them: it blocked the stream for too long,
             or was deleted
    BLOCKS   partitions, like p0, that keep events only because this group has not read them:
             if their stream is full, fix this group first; -: none
    On a bus with several partitions each worker of a group has a share of them,
    shown as PARTITIONS: all, 0-3,7 or how many (-o wide and json name them).

    \b
    A worker is dead when it has left its entries, or when it has not asked for
    work for 15 s and its heartbeat counter does not change between two reads,
    1.5 s apart.

    With -w it waits for an unavailable bus, with a message on standard error.

    The address of the page is that of `eventbus up` on this machine, or of the API worker in EVENTBUS_URL.

    A sink is the target of `eventbus worker export`. LAG and DELAY are as above, in changes of the store. A paused
    sink is unavailable; no event is lost.

    \b
    Examples:
      eventbus status
      eventbus status -w
      eventbus status -o json | jq '.groups[] | {name, lag, behindS}'
    """
    redraws = is_terminal(sys.stdout) and output != "json"
    with ExitStack() as stack:
        session = _open(stack, wait_s=interval if watch else None)
        while True:
            try:
                bus_status = session.read_status()
                sinks = _read_sinks(session)
            except BusUnavailable as error:
                if not watch:
                    raise
                _report(error)
            else:
                page = _find_page(session)
                if output == "json":
                    text = _json(bus_status, sinks, page, watch)
                else:
                    text = _tables(bus_status, sinks, page, wide=output == "wide")
                write((_CLEAR if watch and redraws else "") + text)
            if not watch:
                return
            time.sleep(interval)
            if not redraws and output != "json":
                write("\n")


def _open(stack: ExitStack, *, wait_s: float | None) -> Session:
    """Open the bus, waiting for it as for one that goes away later, unless *wait_s* is None."""
    while True:
        try:
            return stack.enter_context(open_session())
        except BusUnavailable as error:
            if wait_s is None:
                raise
            _report(error)
            time.sleep(wait_s)


def _find_page(session: Session) -> str:
    """Return the address of the bus's page, if it is known here; else ""."""
    if session.remote is not None:
        address = session.remote.address
        return "" if address.socket else f"{address.url.rstrip('/')}/page/"
    return up_page(session.bus.id)


def _json(bus_status: BusStatus, sinks: tuple[SinkStatus, ...], page: str, watch: bool) -> str:
    every = msgspec.to_builtins(bus_status) | {"sinks": msgspec.to_builtins(sinks), "page": page}
    return dump_json(every, indent=None if watch else 4) + "\n"


def _tables(bus_status: BusStatus, sinks: tuple[SinkStatus, ...], page: str, *, wide: bool) -> str:
    from eventbus.cli.printers.status_table import format_sinks, format_status

    colour = wants_colour(sys.stdout)
    tables = [format_status(bus_status, page=page, wide=wide, colour=colour)]
    if sinks:
        tables.append(format_sinks(sinks, now_ms=int(time.time() * 1000), colour=colour))
    return "\n".join(tables) + _warn_unfed(bus_status)


def _report(error: BusUnavailable) -> None:
    click.echo(f"error: {printable(str(error))}", err=True)


def _read_sinks(session: Session) -> tuple[SinkStatus, ...]:
    """The external sinks; none if this user may not see them."""
    try:
        return session.read_sinks()
    except BusRefused:
        return ()


def _warn_unfed(status: BusStatus) -> str:
    """Return a line if a partition has no living sink worker: nothing is correlated there, and sinks get nothing."""
    from eventbus.broker.health.export_status import describe_missing

    text = describe_missing(status.unfed, len(status.partitions))
    return f"\nN{text[1:]}\n" if text else ""
