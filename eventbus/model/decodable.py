"""Prepares types for msgspec's decoders, one thread at a time. msgspec itself does not lock."""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from typing import Any, TypeVar

import msgspec

T = TypeVar("T")

_ready: set[Any] = set()
_lock = threading.RLock()


def decodable(shape: T) -> T:
    """Return *shape*, a type that contains structs, prepared for msgspec calls in any thread.

    In msgspec up to 0.22 at least, if two threads are the first to decode to the same struct, the process crashes with
    a segmentation fault: the second uses a half-built type of the first. So every decoder gets `type=decodable(…)`.
    """
    if shape not in _ready:
        with _lock:
            msgspec.json.Decoder(shape)
            _ready.add(shape)
    return shape


# A fork waits until no type is half built: in the child it would never be finished. `process_hooks` takes its lock
# before this one, in the same order as imports do: its hooks are registered later, so they are called earlier.


def _after_fork_in_parent() -> None:
    with suppress(RuntimeError):  # this module was imported while the fork was being prepared
        _lock.release()


def _after_fork_in_child() -> None:
    global _lock
    _lock = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=lambda: _lock.acquire(), after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child
    )
