"""The options of an export, and how people write them."""

from __future__ import annotations

from typing import Any

import msgspec

from eventbus.errors import ConfigError
from eventbus.export.repeats import Every, Repeats, parse_repeats
from eventbus.export.sink_writer import Outage
from eventbus.export.start import BEGINNING, Start, parse_start
from eventbus.store.stored import View
from eventbus.util.clock import Clock


class ExportOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options of an export to one sink; the same in every worker of the sink."""

    start: Start = BEGINNING
    repeats: Repeats = Every()
    outage: Outage = Outage.PAUSE
    view: View = View.WRITTEN  #: which counts and times of an event are written
    batch_events: int = 500  #: events written at once
    rate_per_s: float = 0.0  #: events a second of a worker, all partitions together; 0: no limit
    take_over_s: float = 25.0  #: after so long without a sign of life a worker is dead


def make_options(
    clock: Clock, *, start: str, repeats: str, outage: str, counts: str = "written", **more: Any
) -> ExportOptions:
    """Parse the options as people write them; *more* is taken as it is. Raises: ConfigError."""
    if outage not in list(Outage):
        raise ConfigError(f"outage {outage!r}: give {' or '.join(Outage)}")
    if counts not in [view.value for view in View]:
        raise ConfigError(f"counts {counts!r}: give {' or '.join(sorted(view.value for view in View))}")
    return ExportOptions(
        start=parse_start(start, clock),
        repeats=parse_repeats(repeats),
        outage=Outage(outage),
        view=View(counts),
        **more,
    )


__all__ = ["ExportOptions", "make_options"]
