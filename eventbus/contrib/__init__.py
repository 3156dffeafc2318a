"""Adapters that record events from a program's log records, function calls or kopf handlers."""

from eventbus.contrib.functions import recorded
from eventbus.contrib.logging import EventHandler

__all__ = ["EventHandler", "recorded"]
