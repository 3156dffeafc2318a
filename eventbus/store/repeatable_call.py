"""Calls a function of the library, loading the library first if the server has lost it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from eventbus.broker import functions
from eventbus.broker.connection.client import Client
from eventbus.errors import FunctionsMissing

R = TypeVar("R")


def call(client: Client, function: Callable[[], R]) -> R:
    """Call *function*; if the server lacks the library, load it and call *function* again."""
    try:
        return function()
    except FunctionsMissing:  # it had no effect
        functions.load(client)
        return function()


__all__ = ["call"]
