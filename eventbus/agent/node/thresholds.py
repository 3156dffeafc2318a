"""Thresholds under which a machine is short of memory or disk: its Node is under pressure."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from typing import Final, NamedTuple

from eventbus.agent.node.machine import Machine
from eventbus.errors import ConfigError
from eventbus.model.names import parse_quantity
from eventbus.model.objects.cluster import DISK_PRESSURE, MEMORY_PRESSURE

MEMORY, DISK = "memory.available", "nodefs.available"
_TERM: Final = re.compile(r"([a-z.]+)<([0-9].*)")


class Threshold(NamedTuple):
    """The least that should be left: a share of all, or bytes. *text* is how it was written."""

    text: str
    share: float = 0.0
    amount: float = 0.0

    def least(self, total: float) -> float:
        """Return the bytes that should be left of *total*."""
        return self.share * total if self.share else self.amount


class Thresholds(NamedTuple):
    """Of memory, and of the file system of the state folder."""

    memory: Threshold = Threshold("100Mi", amount=100 * 1024 * 1024)
    disk: Threshold = Threshold("10%", share=0.10)


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
        return Threshold(text, share=percent / 100) if percent is not None and 0 < percent <= 100 else None
    amount = read(text)
    return Threshold(text, amount=amount) if amount is not None else None


def pressures(machine: Machine, thresholds: Thresholds) -> list[str]:
    """Return the node's pressure conditions that are true now; resources that cannot be measured are left out."""
    conditions = []
    with suppress(OSError):
        memory = machine.memory()
        if memory.available < thresholds.memory.least(memory.total):
            conditions.append(MEMORY_PRESSURE)
    with suppress(OSError):
        disk = machine.disk()
        if disk.free < thresholds.disk.least(disk.total):
            conditions.append(DISK_PRESSURE)
    return conditions
