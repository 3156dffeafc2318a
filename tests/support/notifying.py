"""A notifier in this process, with the rules of a test."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from eventbus.broker.bus import Bus
from eventbus.notify.notifier import Notifier, NotifySetup
from eventbus.notify.receivers.contract import Opening
from eventbus.notify.rules import parse_rules
from eventbus.util.clock import SystemClock


@contextmanager
def notifying(bus: Bus, rules: str, consumer: str = "one") -> Iterator[Notifier]:
    """Run one from the first event of *bus*; its webhooks may go to this machine."""
    setup = NotifySetup(
        bus=bus,
        consumer=consumer,
        clock=SystemClock(),
        links=lambda _labels: {},
        opening=Opening(environ={"EVENTBUS_WEBHOOK_ALLOW_HOSTS": "127.0.0.1"}, bus_id=bus.id),
        on_change=lambda _reason, _message: None,
        since=0.0,
        settle_s=0.0,
    )
    notifier = Notifier(setup, parse_rules(rules), load=lambda: None, beat=lambda: None)
    notifier.start()
    try:
        yield notifier
    finally:
        notifier.stop(60)
