"""Calls a function of the library, once more if the server lacked the library, or has another bus than was opened."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

from eventbus.broker import functions
from eventbus.broker.bus import Bus
from eventbus.broker.connection.client import Client
from eventbus.errors import BusRefused, FunctionsMissing, OtherBus

R = TypeVar("R")


def call(bus: Bus, client: Client, partition: int, function: Callable[[], R]) -> R:
    """Call *function*; if the server lacks the library, or has another bus, see to that and call *function* once more.

    Neither refusal had an effect. Raises: ConfigError: the other bus has another format, or other partitions.
    """
    try:
        return function()
    except FunctionsMissing:
        functions.load(client)
    except OtherBus:
        with suppress(BusRefused):  # who may not open it goes on with one that others have opened
            bus.open_partition(client, partition)
    return function()


__all__ = ["call"]
