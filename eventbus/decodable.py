"""Makes a type ready for msgspec to decode to, in one thread at a time, which msgspec itself does not see to."""

from __future__ import annotations

import os
import threading
from typing import Any, Final, TypeVar

import msgspec

T = TypeVar("T")

_ready: set[Any] = set()
#: Not to be held by another thread at a fork: the child would find a type that is never finished.
_LOCK: Final = threading.RLock()
os.register_at_fork(before=_LOCK.acquire, after_in_parent=_LOCK.release, after_in_child=_LOCK.release)


def decodable(shape: T) -> T:
    """Return *shape*, a type with structs in it, ready to be given to msgspec by any thread.

    Up to msgspec 0.22 at least, two threads that are the first to decode to one struct end the process by a
    segmentation fault: the second uses what the first has half built. So whatever decodes says `type=decodable(…)`.
    """
    if shape not in _ready:
        with _LOCK:
            msgspec.json.Decoder(shape)
            _ready.add(shape)
    return shape


__all__ = ["decodable"]
