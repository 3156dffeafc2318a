"""The main path as processes, without faults: 3 producers × 20 000 events, 2 log workers and 2 sink workers.

Only in `make test-long`: a tenth of the events, and all. `make test` has the demo.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from eventbus.broker.bus import Bus, open_bus
from eventbus.model.event import SUPPRESSED_REASON, Event
from eventbus.settings import Options, Settings
from eventbus.store.object_store import ObjectStore
from eventbus.store.stored import decode_stored
from tests.acceptance.programs import Program, environment
from tests.stored_layout import decode_counts
from tests.support.mirror import Reader, reading
from tests.waiting import PATIENCE_S, eventually

PRODUCERS, OBJECTS = 3, 40
#: Of each producer.
EVENTS = pytest.mark.parametrize("events", [2_000, 20_000])

#: Records argv[1] events about 40 objects, with messages that repeat and messages that do not, from 4 threads.
PRODUCER = """
import sys, threading
from eventbus import EventBroadcaster, FullBuffer, ObjectReference, Settings
import os

events, threads = int(sys.argv[1]), 4
settings = Settings(
    redis_url=os.environ["EVENTBUS_REDIS_URL"],
    prefix=os.environ["EVENTBUS_PREFIX"],
    buffer_full=FullBuffer.WAIT,
    buffer_wait_s=60,
    flush_s=100,
)
with EventBroadcaster(settings=settings) as broadcaster:
    recorder = broadcaster.new_recorder("producer", host=sys.argv[2])

    def record(thread):
        for i in range(thread, events, threads):
            pod = ObjectReference("Pod", "default", f"web-{i % 40}", f"uid-{i % 40}", "v1")
            if i % 10:
                recorder.eventf(pod, "Normal", "Repeated", "message %d", i % 50)
            else:
                recorder.eventf(pod, "Warning", "Unique", "message %d", i)

    running = [threading.Thread(target=record, args=(n,)) for n in range(threads)]
    for each in running:
        each.start()
    for each in running:
        each.join()
sys.exit(1 if broadcaster.losses.counts else 0)
"""


@pytest.fixture
def env(embedded_url: str, prefix: str) -> dict[str, str]:
    return environment(embedded_url, prefix, worker_block_ms="100")


def open_with(embedded_url: str, prefix: str, options: Options) -> Bus:
    return open_bus(embedded_url, Settings(prefix=prefix, worker_block_ms=100), options=options)


@contextmanager
def workers(bus: Bus, env: dict[str, str], folder: Path) -> Iterator[Sequence[Path]]:
    """Two log workers that share their group, each with a file of its own, and two sink workers. Drained at the end."""
    files = [folder / "one.log", folder / "two.log"]
    commands = [["worker", "log", "--format", "json", "--output", str(file)] for file in files]
    commands += [["worker", "sink"]] * 2
    with ExitStack() as stack:
        programs = [stack.enter_context(Program(*command, env=env, folder=folder)) for command in commands]
        # What is recorded before a group exists is not the group's.
        eventually(lambda: consumers(bus) == {b"log": 2, b"sink": 2})
        yield files
        for program in programs:
            assert program.stop() == 0


def produce(env: dict[str, str], events: int) -> None:
    """Run the producers at the same time, to their end."""
    running = [
        subprocess.Popen([sys.executable, "-c", PRODUCER, str(events), f"host-{n}"], env=env) for n in range(PRODUCERS)
    ]
    assert [producer.wait(PATIENCE_S) for producer in running] == [0] * PRODUCERS


def counters(bus: Bus) -> dict[str, int]:
    """Return the counters of the functions, summed over all partitions."""
    total: Counter[str] = Counter()
    with bus.client() as client:
        for keys in bus.keys:
            for field, value in client.hgetall(keys.meta).items():
                if value.isdigit():
                    total[field.decode()] += int(value)
    return total


def consumers(bus: Bus) -> dict[bytes, int]:
    """Count the workers that have read, by group; each may have a share of the partitions alone."""
    found: dict[bytes, set[bytes]] = {}
    with bus.client() as client:
        for keys in bus.keys:
            for info in client.xinfo_groups(keys.incoming):
                names = {consumer["name"] for consumer in client.xinfo_consumers(keys.incoming, info["name"])}
                found.setdefault(info["name"], set()).update(names)
    return {group: len(names) for group, names in found.items()}


def waits(bus: Bus) -> int:
    """Entries that some group has not finished with."""
    with bus.client() as client:
        found = [client.xinfo_groups(keys.incoming) for keys in bus.keys]
    return sum(info["pending"] + (info["lag"] or 0) for infos in found for info in infos)


def logged(files: Sequence[Path]) -> Counter[tuple[str, str]]:
    """Count how often each event of the producers is in the files: (host, uid)."""
    lines = [json.loads(line) for file in files for line in file.read_text("utf-8").splitlines()]
    return Counter(
        (line["source"]["host"], line["metadata"]["uid"]) for line in lines if line["source"]["component"] == "producer"
    )


def check_log(files: Sequence[Path], events: int) -> None:
    found = logged(files)
    assert len(found) == PRODUCERS * events
    assert set(found.values()) == {1}
    assert Counter(host for host, _ in found) == {f"host-{n}": events for n in range(PRODUCERS)}


def check_reader(bus: Bus, reader: Reader) -> None:
    with bus.client() as client:
        store = ObjectStore(bus, client)

        def stored() -> dict[str, Event]:
            return {f"{event.metadata.namespace}/{event.metadata.name}": event for event in store.list().items}

        eventually(lambda: reader.state == stored())
    assert reader.problems == []
    assert reader.relists == 0


def ours(reader: Reader) -> list[int]:
    """The counts shown of what the producers said; reports of suppression are the store's own."""
    events = [event for event in reader.state.values() if event.source.component == "producer"]
    return [event.count for event in events if event.reason != SUPPRESSED_REASON]


@pytest.mark.volume
@EVENTS
def test_with_the_defaults_what_is_written_and_what_is_held_back_add_up_to_all_events(
    embedded_url: str, prefix: str, env: dict[str, str], tmp_path: Path, events: int
) -> None:
    sent = PRODUCERS * events
    bus = open_with(embedded_url, prefix, Options(refresh_s=1))  # what is held back is not waited for as long
    with reading(bus) as reader:
        with workers(bus, env, tmp_path) as files:
            produce(env, events)
            eventually(lambda: waits(bus) == 0)
            check_reader(bus, reader)  # workers refresh what it sees of repeats that were suppressed
        check_log(files, events)
    counted, remembered = counters(bus), remembered_counts(bus)
    assert sum(n for name, n in remembered if name.startswith("web-")) == sent
    workers_own = sum(n for name, n in remembered if not name.startswith("web-"))
    written = counted["created"] + counted["patched"] - workers_own  # what they say about themselves is never held back
    assert written + counted["suppressed"] == sent
    at_once = PRODUCERS * OBJECTS * Options().burst  # what each source may say of each object before it is held back
    assert counted["suppressed"] > (sent - at_once) * 0.95
    # What was held back shows in the count of what is stored; what was never stored, in the reports alone.
    assert written < sum(ours(reader)) <= sent


def remembered_counts(bus: Bus) -> list[tuple[str, int]]:
    """Name and running count of every key the correlator knows, also of those whose events were all held back."""
    found: list[tuple[str, int]] = []
    with bus.client() as client:
        for keys in bus.keys:
            for key in client.scan_iter(match=keys.object + b"*", count=1000):
                packed = client.get(key)
                event = decode_stored(packed)
                if event is None or event.reason != SUPPRESSED_REASON:
                    counts = decode_counts(packed)
                    found.append((counts.name, counts.count))
    return found
