"""The time on this machine, in a form that another process, also after a reboot, can measure from."""

from __future__ import annotations

import time
from pathlib import Path

import msgspec

from eventbus.clock import Clock

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class Stamp(msgspec.Struct, frozen=True, array_like=True):
    """A moment by both clocks: ms since 1970, which people may set, and since the machine started, sleep and all."""

    wall_ms: int
    boot_ms: int


class MachineTime:
    """Makes stamps, and says how long ago one was. *boot*: which start of the machine it is; empty: unknown."""

    def __init__(self, clock: Clock, *, boot: str | None = None) -> None:
        self._clock = clock
        self.boot = _read_boot_id() if boot is None else boot

    def ago(self, ms: int) -> Stamp:
        """The moment *ms* ago."""
        return Stamp(self._clock.time_ns() // 1_000_000 - ms, since_boot_ms() - ms)

    def since_ms(self, stamp: Stamp, boot: str) -> int:
        """Milliseconds since *stamp*, made during *boot*; by the wall clock only if the machine was started since."""
        if boot and boot == self.boot:
            return max(0, since_boot_ms() - stamp.boot_ms)
        return max(0, self._clock.time_ns() // 1_000_000 - stamp.wall_ms)


def _read_boot_id() -> str:
    """Read the system's name for this start of the machine; empty where it has none."""
    try:
        return _BOOT_ID.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        return ""


def since_boot_ms() -> int:
    """Milliseconds since the machine started; where no clock says so, since some moment before."""
    clock = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
    return time.clock_gettime_ns(clock) // 1_000_000
