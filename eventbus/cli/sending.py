"""Sends one event for a command, and waits until it has arrived."""

from __future__ import annotations

import logging

from eventbus.broker.transport import Transport
from eventbus.cli.session import Session
from eventbus.errors import BusRefused, BusUnavailable, ConfigError, EventBusError
from eventbus.record.losses import Losses
from eventbus.record.outbox import Outbox
from eventbus.record.packing import Pending
from eventbus.util.clock import SystemClock


def send(session: Session, pending: Pending) -> None:
    """Send *pending*.

    Raises: BusUnavailable: it was not acknowledged within `flush_s`; it may have arrived.
            BusRefused, ConfigError: the bus will never accept it; raised at once, and the message has the cure.
    """
    # The exit code and the line below report the failure; the outbox's log would repeat it.
    logging.getLogger("eventbus").addHandler(logging.NullHandler())
    clock = SystemClock()
    losses = _Losses(clock)
    refusals: list[EventBusError] = []

    def connect() -> Transport:
        try:
            return session.transport()
        except (BusRefused, ConfigError) as error:
            refusals.append(error)
            outbox.close(0)  # ends the wait below: a later try would do no better
            raise

    outbox = Outbox(connect=connect, settings=session.settings, clock=clock, losses=losses)
    outbox.put(pending)
    arrived = outbox.flush(session.settings.flush_s)
    outbox.close(0.1)
    if refusals:
        raise refusals[0]
    if not arrived:
        service = "Redis" if session.remote is None else "the API"
        raise BusUnavailable(
            f"not recorded: {service} did not accept the event within {session.settings.flush_s:g} s: {losses.trouble}"
            "; try again (it may have arrived, if only the answer was lost)"
        )
    if "refused" in losses.counts:
        raise BusRefused(f"not recorded: {losses.refusal}")


class _Losses(Losses):
    """Keeps the last problem of the outbox, and the reason why the event was refused."""

    trouble = "no answer"
    refusal = ""

    def count(self, cause: str, n: int = 1, detail: str = "", mistake: str = "") -> None:
        super().count(cause, n, detail, mistake)
        if cause == "refused":  # the count of `unsent` events, logged at each close, has no cause
            self.refusal = detail

    def log(self, cause: str, line: str) -> None:
        self.trouble = line.rpartition(" (")[0]
