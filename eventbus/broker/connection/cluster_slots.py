"""Computes the cluster slot of a key, or of a whole command."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from redis.crc import key_slot as slot_of_bytes

#: Commands that name no key; any node may answer.
_KEYLESS = frozenset(
    ("ACL", "CLIENT", "CLUSTER", "COMMAND", "CONFIG", "DBSIZE", "FUNCTION", "HELLO", "INFO", "PING", "SCRIPT", "TIME")
)
#: Those whose keys stand behind their number, from the fourth word on.
_COUNTED = frozenset(("FCALL", "FCALL_RO", "EVAL", "EVALSHA", "EVAL_RO", "EVALSHA_RO"))
#: Those whose keys stand behind the word STREAMS, before as many ids.
_STREAMS = frozenset(("XREAD", "XREADGROUP"))
#: Those of two words, whether they come as one string or as two.
_TWO_WORDS = frozenset(("XGROUP", "XINFO", "OBJECT", "MEMORY"))
#: Those that have nothing but keys.
_ALL_KEYS = frozenset(("MGET", "DEL", "EXISTS", "UNLINK", "TOUCH"))


def key_slot(key: bytes | str) -> int:
    """Return the slot of *key*: that of its hash tag, if it has one."""
    return slot_of_bytes(key if isinstance(key, bytes) else str(key).encode())


def slot_of(args: Sequence[Any]) -> int | None:
    """Return the slot of a command's keys; None: any node may answer.

    Raises: ValueError: its keys are of several slots.
    """
    name, _, second = _text(args[0]).upper().partition(" ")
    if name in _KEYLESS:
        return None
    keys: Sequence[Any]
    if name in _COUNTED:
        keys = args[3 : 3 + int(args[2])]
    elif name in _STREAMS:
        first = 4 if name == "XREADGROUP" else 1  # a group, or who reads in it, may have that name
        behind = next(i for i in range(first, len(args)) if _text(args[i]).upper() == "STREAMS") + 1
        keys = args[behind : behind + (len(args) - behind) // 2]
    elif name in _ALL_KEYS:
        keys = args[1:]
    else:
        keys = args[2:3] if name in _TWO_WORDS and not second else args[1:2]
    slots = {key_slot(key) for key in keys}
    if len(slots) > 1:
        raise ValueError(f"{name} has keys of several slots: on a cluster each is a call of its own")
    return slots.pop() if slots else None


def _text(word: Any) -> str:
    return word.decode("utf-8", "replace") if isinstance(word, bytes) else str(word)


__all__ = ["key_slot", "slot_of"]
