"""Which pod has to go when something is short, and when nothing has to."""

from __future__ import annotations

from typing import cast

import pytest

from eventbus.agent.machine import Disk, Machine, Memory
from eventbus.agent.pods.admission import SYSTEM_CRITICAL
from eventbus.agent.pods.eviction import Eviction
from eventbus.agent.thresholds import parse_thresholds
from eventbus.errors import ConfigError
from eventbus.objects.pod import Pod
from eventbus.testing.clock import FakeClock
from tests.unit.agent.pods.pods import a_pod

MIB = 1024 * 1024


class Short:
    """A machine of 1000 MiB with so much left."""

    def __init__(self, memory: int = 900, disk: int = 900) -> None:
        self._memory, self._disk = memory, disk

    def memory(self) -> Memory:
        return Memory(1000 * MIB, self._memory * MIB)

    def disk(self) -> Disk:
        return Disk(1000 * MIB, self._disk * MIB)


def chosen(machine: Short, pods: list[Pod], used: dict[str, int], thresholds: str = "") -> str:
    eviction = Eviction(
        machine=cast(Machine, machine),
        thresholds=parse_thresholds(thresholds),
        usage=lambda pod, _resource: used[pod.metadata.name] * MIB,
        clock=FakeClock(),
    )
    found = eviction.choose(pods)
    return found[0].metadata.name if found else ""


def test_nothing_has_to_go_while_there_is_enough() -> None:
    assert chosen(Short(101, 101), [a_pod("web")], {"web": 500}) == ""


def test_who_uses_more_than_it_asked_for_goes_first_and_of_those_who_is_furthest_above() -> None:
    pods = [a_pod("fair", memory="800Mi"), a_pod("small"), a_pod("big")]
    assert chosen(Short(memory=99), pods, {"fair": 700, "small": 1, "big": 2}) == "big"
    assert chosen(Short(disk=99), pods, {"fair": 700, "small": 1, "big": 2}) == "fair", "it asked for no disk"


def test_the_lower_priority_goes_before_the_larger_use() -> None:
    pods = [a_pod("low", priority=1), a_pod("high", priority=2)]
    assert chosen(Short(memory=99), pods, {"low": 1, "high": 500}) == "low"


def test_what_is_critical_does_not_have_to_go() -> None:
    pods = [a_pod("vital", priority=SYSTEM_CRITICAL), a_pod("small")]
    assert chosen(Short(memory=99), pods, {"vital": 500, "small": 1}) == "small"
    assert chosen(Short(memory=99), pods[:1], {"vital": 500}) == ""


def test_it_looks_again_only_after_ten_seconds() -> None:
    clock = FakeClock()
    eviction = Eviction(
        machine=cast(Machine, Short(memory=1)), thresholds=parse_thresholds(""), usage=lambda *_: 1.0, clock=clock
    )
    first = eviction.choose([a_pod("web")])
    assert first is not None
    assert first[1].startswith("The node was low on resource: memory. Threshold quantity: 100Mi, available: 1024Ki.")
    assert eviction.choose([a_pod("web")]) is None
    clock.advance(10)
    assert eviction.choose([a_pod("web")]) is not None


def test_while_disk_is_short_no_pod_has_to_go_as_long_as_something_else_frees_some() -> None:
    clock, freed = FakeClock(), [True, False]
    eviction = Eviction(
        machine=cast(Machine, Short(disk=1)), thresholds=parse_thresholds(""), usage=lambda *_: 1.0, clock=clock
    )
    assert eviction.choose([a_pod("web")], lambda: freed.pop(0)) is None
    clock.advance(10)
    assert eviction.choose([a_pod("web")], lambda: freed.pop(0)) is not None
    assert freed == []


@pytest.mark.parametrize("text", ["memory<1", "memory.available<many", "memory.available>1Gi", "nodefs.available<101%"])
def test_a_threshold_that_cannot_be_read_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="--eviction-hard"):
        parse_thresholds(text)
