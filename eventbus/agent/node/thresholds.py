"""Thresholds under which a machine is short of memory or disk: its Node is under pressure."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final, NamedTuple

from eventbus.errors import ConfigError
from eventbus.model.names import parse_quantity

MEMORY, DISK = "memory.available", "nodefs.available"
_TERM: Final = re.compile(r"([a-z.]+)<([0-9].*)")


class Threshold(NamedTuple):
    """The least that should be left: a share of all, or bytes."""

    share: float = 0.0
    amount: float = 0.0

    def least(self, total: float) -> float:
        """Return the bytes that should be left of *total*."""
        return self.share * total if self.share else self.amount


class Thresholds(NamedTuple):
    """Of memory, and of the file system of the state folder."""

    memory: Threshold = Threshold(amount=100 * 1024 * 1024)
    disk: Threshold = Threshold(share=0.10)


def parse_thresholds(text: str) -> Thresholds:
    """Read `memory.available<100Mi,nodefs.available<10%`; others keep their defaults. Raises: ConfigError.

    Source: kubelet --eviction-hard; nothing is evicted here.
    """
    thresholds: dict[str, Threshold] = {}
    for term in filter(None, text.replace(" ", "").split(",")):
        matched = _TERM.fullmatch(term)
        threshold = _threshold(matched[2]) if matched else None
        if matched is None or threshold is None or matched[1] not in (MEMORY, DISK):
            raise ConfigError(f"--pressure-thresholds {term!r}: give {MEMORY}<100Mi or {DISK}<10%")
        thresholds[matched[1]] = threshold
    usual = Thresholds()
    return Thresholds(thresholds.get(MEMORY, usual.memory), thresholds.get(DISK, usual.disk))


def _threshold(text: str) -> Threshold | None:
    read: Callable[[object], float | None] = parse_quantity
    if text.endswith("%"):
        percent = read(text[:-1])
        return Threshold(share=percent / 100) if percent is not None and 0 < percent <= 100 else None
    amount = read(text)
    return Threshold(amount=amount) if amount is not None else None
