"""The time on this machine, in a form from which another process can measure, also after a reboot."""

from __future__ import annotations

import time
from pathlib import Path

import msgspec

from eventbus.clock import Clock

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class Stamp(msgspec.Struct, frozen=True, array_like=True):
    """A moment by two clocks: ms since 1970, which may be set, and ms since the boot, with time asleep."""

    wall_ms: int
    boot_ms: int


class MachineTime:
    """Makes stamps and measures their age. *boot*: the id of this boot; empty: unknown."""

    def __init__(self, clock: Clock, *, boot: str | None = None) -> None:
        self._clock = clock
        self.boot = _read_boot_id() if boot is None else boot

    def ago(self, ms: int) -> Stamp:
        """Return the moment *ms* ago."""
        return Stamp(self._clock.time_ns() // 1_000_000 - ms, since_boot_ms() - ms)

    def since_ms(self, stamp: Stamp, boot: str) -> int:
        """Return the ms since *stamp*, made during *boot*; by the wall clock only after a reboot."""
        if boot and boot == self.boot:
            return max(0, since_boot_ms() - stamp.boot_ms)
        return max(0, self._clock.time_ns() // 1_000_000 - stamp.wall_ms)


def _read_boot_id() -> str:
    """Read the id of this boot; empty if the system has none."""
    try:
        return _BOOT_ID.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        return ""


def since_boot_ms() -> int:
    """Return the ms since the boot, or since an unknown moment if there is no such clock."""
    clock = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
    return time.clock_gettime_ns(clock) // 1_000_000
