"""Events from what a program already does: its log, its functions, its kopf handlers. A few lines each.

`eventbus.contrib.kopf` is imported by itself, for it needs kopf.
"""

from eventbus.contrib.functions import recorded
from eventbus.contrib.logging import EventHandler

__all__ = ["EventHandler", "recorded"]
