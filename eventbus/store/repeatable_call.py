"""Calling a function of the library that the server may have lost."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from eventbus.broker import functions
from eventbus.broker.connection.client import Client
from eventbus.errors import FunctionsMissing

R = TypeVar("R")


def call(client: Client, function: Callable[[], R]) -> R:
    """What *function* returns; where the library is missing, it is loaded and *function* called again."""
    try:
        return function()
    except FunctionsMissing:  # it had no effect
        functions.load(client)
        return function()


__all__ = ["call"]
