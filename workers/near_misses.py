"""Warns of matchers that match no stored event, but nearly some: at the start of an export and of the notifier."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import Final

from eventbus.errors import EventBusError
from eventbus.model.matchers import Matcher, near_misses
from eventbus.store.object_store import stored_events
from eventbus.util.log import log
from eventbus.util.text import printable
from eventbus.workers.worker import Context

#: Stored events that are compared.
MOST: Final = 20_000


def warn_of_near_misses(context: Context, matchers: Iterable[Matcher]) -> None:
    """Compare *matchers* with stored events, and log the near misses. Without Redis it warns that it cannot."""
    try:
        with context.bus.client(name="eventbus-near-misses") as client:
            for miss in near_misses(matchers, islice(stored_events(context.bus, client), MOST)):
                log.warning("%s", printable(miss))
    except EventBusError as error:  # the worker itself waits for Redis
        log.warning("matchers are not compared with the stored events: %s", error)
