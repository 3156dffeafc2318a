"""Sends one event for a command, and waits until it has arrived."""

from __future__ import annotations

import logging
from contextlib import suppress

from eventbus.broker.transport import Transport
from eventbus.cli.session import Session
from eventbus.clock import SystemClock
from eventbus.errors import BusRefused, BusUnavailable
from eventbus.record.losses import Losses
from eventbus.record.outbox import Outbox
from eventbus.record.pending import Pending


def send(session: Session, pending: Pending) -> None:
    """Send *pending*.

    Raises: BusUnavailable: nobody took it within `flush_s`; it may have arrived all the same.
            BusRefused: the bus never will take it from this user; the message has the cure.
    """
    # The exit code and the line below say what happened; the outbox's own lines would say it twice.
    logging.getLogger("eventbus").addHandler(logging.NullHandler())
    clock = SystemClock()
    losses = _Losses(clock)
    opened: list[Transport] = []
    with suppress(BusUnavailable):  # the outbox tries that again; whom the bus does not know, it would try for nothing
        opened.append(session.transport())
    outbox = Outbox(
        connect=lambda: opened.pop() if opened else session.transport(),
        settings=session.settings,
        clock=clock,
        losses=losses,
    )
    outbox.put(pending)
    arrived = outbox.flush(session.settings.flush_s)
    outbox.close(0.1)
    if not arrived:
        cause = f": {losses.last_line}" if losses.last_line else ""
        who = "Redis" if session.remote is None else "the API"
        raise BusUnavailable(
            f"not recorded: {who} did not take the event within {session.settings.flush_s:g} s{cause}; try again "
            "(it may still have arrived, if only the answer was lost)"
        )
    if "refused" in losses.counts:
        raise BusRefused(f"not recorded: {losses.last_line}")


class _Losses(Losses):
    """Keeps the last line instead of logging it, without what follows in brackets."""

    last_line = ""

    def count(self, cause: str, n: int = 1, detail: str = "", mistake: str = "") -> None:
        super().count(cause, n, detail, mistake)
        self.last_line = detail or cause

    def tell(self, cause: str, line: str) -> None:
        self.last_line = line.partition(" (")[0]


__all__ = ["send"]
