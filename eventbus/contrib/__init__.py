"""Records events from what a program already has: its log, its functions, its kopf handlers. A few lines each."""

from eventbus.contrib.functions import recorded
from eventbus.contrib.logging import EventHandler

__all__ = ["EventHandler", "recorded"]
