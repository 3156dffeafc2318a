"""The lifecycle generator over real processes: differences become events, none is lost."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from eventbus.agent.pods.pleg import DEAD_AFTER_S, Pleg
from eventbus.agent.runtime.contract import Change, PodLifecycleEvent
from eventbus.testing.clock import FakeClock
from tests.support.runtime_world import UID, RuntimeWorld, make_pod, runtime_world
from tests.waiting import eventually


class Generating:
    """A world, and the reports of its generator."""

    def __init__(self, world: RuntimeWorld) -> None:
        self.world = world
        self.room = True
        self.told: list[PodLifecycleEvent] = []
        self.pleg = Pleg(world.runtime, self.tell, world.clock)

    def tell(self, event: PodLifecycleEvent) -> bool:
        if self.room:
            self.told.append(event)
        return self.room

    def take(self) -> set[tuple[Change, str]]:
        self.pleg.relist()
        told, self.told = self.told, []
        assert {event.uid for event in told} <= {UID}
        return {(event.change, event.container) for event in told}


@pytest.fixture
def generating(tmp_path: Path) -> Iterator[Generating]:
    with runtime_world(tmp_path / "state") as world:
        made = Generating(world)
        yield made
        made.pleg.stop()


def test_each_difference_is_told_once(generating: Generating) -> None:
    world, pod = generating.world, make_pod("exec sleep 1000", "exit 3")
    assert generating.take() == set()
    world.sync(pod)
    world.ended("c1")

    assert generating.take() == {
        (Change.CONTAINER_STARTED, "c0"),
        (Change.CONTAINER_DIED, "c1"),
        (Change.CONTAINER_CHANGED, ""),
    }
    assert generating.take() == set()
    world.runtime.kill_pod(UID, pod, 0.0)
    assert generating.take() == {(Change.CONTAINER_DIED, "c0"), (Change.CONTAINER_CHANGED, "")}
    world.runtime.remove(UID)
    assert generating.take() >= {(Change.CONTAINER_REMOVED, "c0"), (Change.CONTAINER_REMOVED, "c1")}


def test_a_shim_that_died_is_told(generating: Generating) -> None:
    world = generating.world
    world.sync(make_pod("exec sleep 1000"))
    generating.take()
    sandbox = world.status().sandbox
    assert sandbox is not None
    os.kill(sandbox.shim_pid, signal.SIGKILL)

    eventually(lambda: generating.take() == {(Change.CONTAINER_CHANGED, "")})


def test_what_there_is_no_room_for_is_told_by_the_next_relist(generating: Generating) -> None:
    generating.world.sync(make_pod("exec sleep 1000"))
    generating.room = False
    assert generating.take() == set()
    generating.room = True

    assert (Change.CONTAINER_STARTED, "main") in generating.take()
    assert generating.pleg.unreported > 0


def test_the_end_of_a_process_wakes_it(generating: Generating) -> None:
    world = generating.world
    world.sync(make_pod("exec sleep 1000"))
    pleg = Pleg(world.runtime, generating.tell, world.clock, every_s=3600.0)
    pleg.start()
    try:
        eventually(lambda: generating.told)
        os.kill(world.run().pid, signal.SIGKILL)
        eventually(lambda: PodLifecycleEvent(UID, Change.CONTAINER_DIED, "main") in generating.told)
    finally:
        pleg.stop()


def test_it_says_when_it_has_not_listed_for_long(generating: Generating) -> None:
    clock = FakeClock()
    pleg = Pleg(generating.world.runtime, generating.tell, clock)
    clock.advance(DEAD_AFTER_S)
    assert pleg.problem() == ""
    clock.advance(1.0)
    assert "pleg was last seen active 181s ago" in pleg.problem()
    pleg.relist()

    assert pleg.problem() == ""
    pleg.stop()
