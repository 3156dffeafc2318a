"""thresholds.py: when a machine is short of memory or disk."""

from __future__ import annotations

from typing import cast

import pytest

from eventbus.agent.node.machine import Disk, Machine, Memory
from eventbus.agent.node.thresholds import parse_thresholds, pressures
from eventbus.errors import ConfigError

MIB = 1024 * 1024


class Short:
    """A machine of 1000 MiB of each, with so many left."""

    def __init__(self, memory: int = 900, disk: int = 900) -> None:
        self._memory, self._disk = memory, disk

    def memory(self) -> Memory:
        return Memory(1000 * MIB, self._memory * MIB)

    def disk(self) -> Disk:
        return Disk(1000 * MIB, self._disk * MIB)


class Unmeasured(Short):
    """Its memory cannot be read."""

    def memory(self) -> Memory:
        raise OSError("no /proc")


@pytest.mark.parametrize(
    ("machine", "found"),
    [
        (Short(), []),
        (Short(100, 100), []),
        (Short(memory=99), ["MemoryPressure"]),
        (Short(disk=99), ["DiskPressure"]),
        (Short(99, 99), ["MemoryPressure", "DiskPressure"]),
        (Unmeasured(disk=99), ["DiskPressure"]),
    ],
)
def test_a_machine_is_under_pressure_below_a_threshold_only(machine: Short, found: list[str]) -> None:
    assert pressures(cast(Machine, machine), parse_thresholds("")) == found


@pytest.mark.parametrize("text", ["memory<1", "memory.available<many", "memory.available>1Gi", "nodefs.available<101%"])
def test_a_threshold_that_cannot_be_read_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="--pressure-thresholds"):
        parse_thresholds(text)
