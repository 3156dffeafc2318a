"""Lifecycle workers that die, or all believe that they act: a node that falls silent is one event all the same."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from eventbus.broker.bus import Bus, open_bus
from eventbus.broker.connection.connect import Client
from eventbus.broker.health.status import read_lifecycle
from eventbus.errors import NotFound
from eventbus.model.kinds import NODE
from eventbus.settings import Settings
from eventbus.store.object_store import ObjectStore
from tests.acceptance.programs import environment
from tests.faults.checker import Verdict
from tests.faults.conftest import Note, NoteControl
from tests.faults.scene import Process
from tests.support.node_world import recorded_events
from tests.waiting import eventually, reached

KILLED, TWO_ACT = "36 acting lifecycle worker killed", "36 two lifecycle workers act"
PACE = ("--node-monitor-period", "0.5", "--leader-lease-s", "2")

pytestmark = [pytest.mark.short]

Start = Callable[..., Process]


@pytest.fixture
def bus(embedded_url: str, prefix: str) -> Bus:
    return open_bus(embedded_url, Settings(prefix=prefix))


@pytest.fixture
def client(bus: Bus) -> Iterator[Client]:
    made = bus.client()
    yield made
    made.close()


@pytest.fixture
def start(embedded_url: str, prefix: str, tmp_path: Path) -> Iterator[Start]:
    """Starts a lifecycle worker with these breakages; *heartbeat*: a heartbeat of that node instead."""
    started: list[Process] = []
    env = environment(embedded_url, prefix)

    def begin(breakages: str = "", heartbeat: str = "") -> Process:
        words = ["-m", "tests.faults.lifecycle_worker", breakages, *PACE]
        if heartbeat:
            words = ["-m", "eventbus", "heartbeat", heartbeat, "--every", "250ms", "--for", "2s"]
        log = tmp_path / f"{len(started)}.log"
        started.append(Process([sys.executable, *words], env, log, afresh=bool(breakages)))
        return started[-1]

    yield begin
    for process in started:
        process.kill()


def lost(bus: Bus, client: Client) -> Counter[str]:
    """How often each node was said to be lost."""
    found = recorded_events(bus, client)
    return Counter(event.involved_object.name for event in found if event.reason == "NodeNotReady")


def ready(bus: Bus, client: Client, name: str) -> str:
    with ObjectStore(bus, client) as store:
        condition = store.objects(NODE).get(name).status.condition("Ready")
    return condition.status if condition else ""


def lose(bus: Bus, client: Client, start: Start, name: str) -> None:
    """A node that dies; waits until it is said to be lost."""
    beats = start(heartbeat=name)
    eventually(lambda: ready(bus, client, name) == "True", despite=NotFound)
    beats.kill()
    eventually(lambda: lost(bus, client)[name])


def fall_silent(bus: Bus, client: Client, start: Start, breakages: str) -> Counter[str]:
    """Two workers, a node that dies; waits until both have looked at it for long enough."""
    workers = [start(breakages), start(breakages)]
    lose(bus, client, start, "n1")
    # Each has judged again since: a second node, which both have to look at after the first.
    lose(bus, client, start, "n2")
    assert [worker.ended for worker in workers] == [False, False]
    return lost(bus, client)


def test_the_acting_worker_is_killed_and_another_one_records_the_loss_once(
    bus: Bus, client: Client, start: Start, note: Note
) -> None:
    workers = {}
    for _ in range(2):
        worker = start()
        workers[worker.pid] = worker
    eventually(lambda: read_lifecycle(bus, client).holder)
    beats = start(heartbeat="n1")
    eventually(lambda: ready(bus, client, "n1") == "True", despite=NotFound)
    holder = read_lifecycle(bus, client).holder
    workers[int(holder.rsplit("-", 2)[1])].kill()  # first, so that it cannot have recorded the loss
    killed = time.monotonic()
    beats.kill()
    eventually(lambda: lost(bus, client)["n1"])
    assert read_lifecycle(bus, client).holder != holder
    note(KILLED, verdict_of(lost(bus, client), nodes=1, recovery_s=time.monotonic() - killed))
    assert lost(bus, client) == {"n1": 1}


def verdict_of(found: Counter[str], *, nodes: int, recovery_s: float | None = None) -> Verdict:
    return Verdict(accepted=nodes, lost=nodes - len(found), duplicate=found.total() - len(found), recovery_s=recovery_s)


@pytest.mark.volume
def test_two_workers_that_both_act_and_are_slow_record_one_loss(
    bus: Bus, client: Client, start: Start, note: Note
) -> None:
    found = fall_silent(bus, client, start, "everyone-leads,slow-to-write")
    note(TWO_ACT, verdict_of(found, nodes=2))
    assert found == {"n1": 1, "n2": 1}


@pytest.mark.volume
def test_control_two_workers_that_write_over_anything_record_two(
    bus: Bus, client: Client, start: Start, note_control: NoteControl
) -> None:
    fall_silent(bus, client, start, "everyone-leads,slow-to-write,unconditional")
    for number in range(3, 8):
        if reached(lambda: lost(bus, client).total() > len(lost(bus, client)), 5):
            break
        lose(bus, client, start, f"n{number}")  # one of the two looked only when the other had written
    found = lost(bus, client)
    note_control(TWO_ACT, verdict_of(found, nodes=len(found)), "writes over anything")
