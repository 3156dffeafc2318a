"""`eventbus worker import` as real processes: kills at each step, two replicas, wrong usage."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from eventbus import Event, Settings
from eventbus.broker.bus import Bus, open_bus
from eventbus.model.kinds import EVENT
from eventbus.store.object_store import ObjectStore
from tests.acceptance.programs import Program, environment, run
from tests.builders import make_event
from tests.integration.test_http_own import stored
from tests.support.api_in_process import serving
from tests.support.kubeconfig import write_kubeconfig
from tests.thin import one
from tests.waiting import eventually

EVENTS = 60


@pytest.fixture
def env(embedded_url: str, prefix: str) -> dict[str, str]:
    return environment(embedded_url, prefix)


@pytest.fixture
def cluster(embedded_url: str, prefix: str) -> Bus:
    return open_bus(embedded_url, Settings(prefix=f"{prefix}c"))


@pytest.fixture
def command(cluster: Bus, tmp_path: Path) -> Iterator[tuple[str, ...]]:
    with serving(cluster) as url:
        config = write_kubeconfig(tmp_path / "kubeconfig", url)
        yield "worker", "import", "--kubeconfig", str(config), "--leader-lease-s", "2"


def named(number: int) -> Event:
    event = make_event()
    return replace(event, metadata=replace(event.metadata, name=f"e-{number}"))


def create(cluster: Bus, numbers: range) -> None:
    with ObjectStore.of(cluster) as store:
        for number in numbers:
            store.objects(EVENT).create(named(number))


def repeat(cluster: Bus, numbers: range, count: int) -> None:
    with ObjectStore.of(cluster) as store:
        events = store.objects(EVENT)
        for number in numbers:
            events.update(replace(events.get(f"e-{number}", "default"), count=count))


def imported(bus: Bus) -> dict[str, int]:
    with ObjectStore.of(bus) as store:
        return {event.metadata.name: event.times_seen for event in store.objects(EVENT).list().items}


def writes(bus: Bus) -> Counter[tuple[str, int]]:
    """Return how often each name and count was written: a write that changes it has a copy in the stream."""
    return Counter((event.metadata.name, event.count) for event in stored(bus) if event.metadata.name.startswith("e-"))


def changes(bus: Bus) -> int:
    """Return the number of all writes of events."""
    with bus.client() as client:
        return int(client.xlen(bus.keys[0].changes_of("events")))


@pytest.mark.parametrize("place", one(["import:written:2", "import:taken:2"]))
def test_a_killed_importer_is_taken_over_without_a_loss_or_a_second_write(
    place: str, env: dict[str, str], bus: Bus, cluster: Bus, command: tuple[str, ...], tmp_path: Path
) -> None:
    with Program(*command, env={**env, "EVENTBUS_CRASH": f"kill:{place}"}, folder=tmp_path) as one:
        eventually(lambda: "is active now" in one.err)
        with Program(*command, env=env, folder=tmp_path) as two:
            create(cluster, range(EVENTS // 2))
            eventually(lambda: imported(bus))
            create(cluster, range(EVENTS // 2, EVENTS))
            repeat(cluster, range(0, EVENTS, 2), 3)
            assert one.wait() == -9
            expected = {f"e-{number}": 1 if number % 2 else 3 for number in range(EVENTS)}
            eventually(lambda: imported(bus) == expected)
            assert "is active now" in two.err
            assert two.stop() == 0
    found = writes(bus)
    assert max(found.values()) == 1
    assert changes(bus) == found.total()


def test_an_api_worker_of_the_same_bus_ends_the_import(
    embedded_url: str, prefix: str, command: tuple[str, ...]
) -> None:
    found = run(*command, env=environment(embedded_url, f"{prefix}c"))
    assert found.returncode == 2
    assert "is an API worker of this bus: import another cluster" in found.stderr


@pytest.mark.parametrize(
    ("words", "cure"),
    [
        (("--kubeconfig", "/nowhere"), "the kubeconfig /nowhere cannot be used"),
        (("--context", "prod"), "Context 'prod' not found"),
        (("--match", "type=~["), "is no regular expression"),
    ],
    ids=["file", "context", "matcher"],
)
def test_wrong_usage_ends_with_a_cure(
    words: tuple[str, ...], cure: str, env: dict[str, str], command: tuple[str, ...]
) -> None:
    found = run(*command, *words, env=env)
    assert found.returncode == 2
    assert cure in found.stderr
