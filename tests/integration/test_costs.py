"""Bounds what an event costs, counted and not timed: commands, bytes and Python calls.

A bound has a little slack; raising one needs a reason."""

from __future__ import annotations

import gc
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from benchmarks.ours.bus import reference
from benchmarks.sample import REASON, TYPE, message, numbers
from benchmarks.sink_worker import Worker
from eventbus.broker.bus import Bus, open_bus
from eventbus.broker.embedded.server import EmbeddedServer
from eventbus.broker.functions import GroupPolicy
from eventbus.broker.redis_transport import IN_FLIGHT_BATCHES, RedisTransport
from eventbus.broker.stream_reader import GroupReader
from eventbus.consume.watchers import GroupWatcher
from eventbus.model.encoding.wire import MAX_BATCH_EVENTS, pack_batch, unpack_event
from eventbus.model.event import Event, ObjectMeta, ObjectReference, OwnerReference
from eventbus.model.kinds import POD
from eventbus.model.objects.pod import Pod
from eventbus.record.broadcaster import EventBroadcaster
from eventbus.record.losses import Losses
from eventbus.record.outbox import Outbox
from eventbus.record.packing import Pending, pack
from eventbus.record.recorder import EventRecorder
from eventbus.settings import Settings
from eventbus.store.object_store import ObjectStore
from eventbus.store.story.reading import read_story
from eventbus.util.clock import SystemClock

EVENTS = 640
BATCHES = EVENTS // MAX_BATCH_EVENTS
NOW_NS = 1_763_719_000_000_000_000


@pytest.fixture
def bus(short_path: Path) -> Iterator[Bus]:
    """A server of its own: its counters count nobody else's commands."""
    server = EmbeddedServer(short_path)
    try:
        yield open_bus(server.start(), Settings())
    finally:
        server.stop()


def packed(load: str, action: str = "") -> list[bytes]:
    """The events of a load: of the recorder of core/v1, or, with an *action*, of that of events.k8s.io."""
    return [
        pack(Pending(("kubelet", "node-17"), reference(n), TYPE, REASON, message(n), NOW_NS + i, action=action))
        for i, n in enumerate(numbers(load, EVENTS))
    ]


def queue(bus: Bus, events: list[bytes]) -> None:
    client = bus.client()
    for start in range(0, EVENTS, MAX_BATCH_EVENTS):
        body = pack_batch("producer", start + 1, events[start : start + MAX_BATCH_EVENTS])
        client.xadd(bus.keys[0].incoming, {"n": MAX_BATCH_EVENTS, "to": start + MAX_BATCH_EVENTS, "at": 0, "b": body})
    client.config_resetstat()


def commands(bus: Bus) -> dict[str, int]:
    """Calls by command since the counters were reset, those made inside of functions included."""
    stats: Any = bus.client().info("commandstats")
    return {name.removeprefix("cmdstat_"): row["calls"] for name, row in stats.items()}


def received_bytes(bus: Bus) -> int:
    stats: Any = bus.client().info("stats")
    return int(stats["total_net_input_bytes"])


def python_calls(work: Callable[[], object]) -> int:
    """Functions of Python that *work* calls in this thread; none of a finalizer of what other tests have left."""
    found = 0

    def note(_frame: FrameType, what: str, _arg: object) -> None:
        nonlocal found
        found += what == "call"

    gc.disable()
    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
        gc.enable()
    return found - 1  # without *work* itself


def round_trips(work: Callable[[], object]) -> int:
    """Return how often *work* sends commands in this thread: redis-py sends a whole pipeline by one call."""
    sent = 0

    def note(frame: FrameType, what: str, _arg: object) -> None:
        nonlocal sent
        sent += what == "call" and frame.f_code.co_name == "send_packed_command"

    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
    return sent


def test_a_recorders_call_is_one_function_and_what_hands_the_event_over() -> None:
    taken: list[Pending] = []
    recorder = EventRecorder("kubelet", "a", put=taken.append, losses=Losses(SystemClock()), clock=SystemClock())
    about, text = reference(1), message(1)
    recorder.event(about, TYPE, REASON, text)  # the first about an object checks it
    calls = python_calls(lambda: recorder.event(about, TYPE, REASON, text))
    assert len(taken) == 2
    assert calls <= 2  # event, and the clock's time_ns


def test_putting_an_event_into_a_busy_outbox_calls_nothing_else() -> None:
    outbox = Outbox(
        connect=lambda: pytest.fail("no bus here"),
        settings=Settings(),
        clock=SystemClock(),
        losses=Losses(SystemClock()),
    )
    outbox._accepting_thread = threading.current_thread()  # as if its flusher were at work
    pending = Pending(("kubelet", "a"), reference(1), TYPE, REASON, message(1), NOW_NS)
    assert python_calls(lambda: outbox.put(pending)) == 1


def test_recording_with_a_local_log_builds_no_event_in_the_caller() -> None:
    broadcaster = EventBroadcaster("none", settings=Settings())
    go = threading.Event()
    broadcaster.start_event_watcher(lambda _event: go.wait(30), scope="local")
    pending = Pending(("kubelet", "a"), reference(1), TYPE, REASON, message(1), NOW_NS)
    assert python_calls(lambda: broadcaster._accept(pending)) <= 12
    go.set()
    broadcaster.shutdown()


def test_packing_and_decoding_an_event_takes_few_calls() -> None:
    pending = Pending(("kubelet", "a"), reference(1), TYPE, REASON, message(1), NOW_NS)
    body = pack(pending)
    unpack_event(body)  # msgspec looks at the types once
    assert python_calls(lambda: pack(pending)) <= 2
    assert python_calls(lambda: unpack_event(body, "p:1")) <= 2  # and that of ObjectMeta


def test_an_event_of_500_bytes_travels_alone_in_at_most_330_and_in_a_full_batch_in_an_eighth_of_that() -> None:
    events = packed("distinct")
    assert max(map(len, events)) <= 330
    assert len(pack_batch("producer", 1, events[:MAX_BATCH_EVENTS])) / MAX_BATCH_EVENTS <= 42


def test_publishing_costs_one_call_for_eight_batches_and_few_commands_inside(bus: Bus) -> None:
    outbox = Outbox(
        connect=lambda: RedisTransport(bus), settings=Settings(), clock=SystemClock(), losses=Losses(SystemClock())
    )
    outbox.put(Pending(("kubelet", "a"), reference(0), TYPE, REASON, message(0), NOW_NS))
    assert outbox.flush(60)  # the first round announces the build as well, later ones once in a while
    bus.client().config_resetstat()
    before = received_bytes(bus)
    for number in range(EVENTS):
        outbox._items.append(Pending(("kubelet", "a"), reference(number), TYPE, REASON, message(number), NOW_NS))
    assert outbox.flush(60)
    sent = commands(bus)
    arrived = received_bytes(bus) - before
    assert outbox.close(60)
    calls = BATCHES // IN_FLIGHT_BATCHES + 2  # its first events may go before the others are there
    assert sent["fcall"] <= calls
    assert sent["xadd"] <= BATCHES + 1
    assert sum(sent.get(name, 0) for name in ("hset", "pexpire", "hmget", "xlen")) <= 6 * calls
    others = set(sent) - {"fcall", "xadd", "hset", "pexpire", "hmget", "xlen"}
    assert others <= {"info", "config|resetstat", "client|setname"}
    assert arrived / EVENTS <= 42


def test_a_round_of_the_flusher_takes_few_python_calls_an_event(bus: Bus) -> None:
    losses = Losses(SystemClock())
    outbox = Outbox(connect=lambda: RedisTransport(bus), settings=Settings(), clock=SystemClock(), losses=losses)
    pendings = [
        Pending(("kubelet", "a"), reference(number), TYPE, REASON, message(number), NOW_NS) for number in range(512)
    ]
    outbox._items.extend(pendings)
    outbox._round()
    outbox._items.extend(pendings)
    calls = python_calls(outbox._round)
    assert outbox._sender.idle
    outbox.close(60)
    assert calls / len(pendings) <= 2.9


def test_opening_a_bus_takes_no_more_round_trips_for_more_partitions(bus: Bus) -> None:
    def reopened(partitions: int) -> int:
        settings = Settings(prefix=f"of{partitions}", partitions=partitions)
        open_bus(bus.url, settings)
        return round_trips(lambda: open_bus(bus.url, settings))

    assert reopened(64) == reopened(2)


def test_a_group_reads_and_acknowledges_in_as_many_commands_as_there_are_reads(bus: Bus) -> None:
    queue(bus, packed("distinct"))
    seen: list[Event] = []
    client = bus.client()
    reader = GroupReader(
        bus=bus, client=client, partition=0, group="g", consumer="c", policy=GroupPolicy.WAIT, start="0"
    )
    reader.open()
    client.config_resetstat()
    watcher = GroupWatcher(
        bus=bus, group="g", handler=seen.append, clock=SystemClock(), policy=GroupPolicy.WAIT, start="0", block_ms=50
    )
    deliveries = reader.read(0)
    reader.ack(watcher._handle(reader, deliveries))
    used = commands(bus)
    assert len(seen) == EVENTS
    assert used["xreadgroup"] == used["xack"] == 1
    assert python_calls(lambda: watcher._handle(reader, deliveries)) / EVENTS <= 8.2


def test_reading_pending_entries_takes_two_round_trips_however_many_they_are(bus: Bus) -> None:
    queue(bus, packed("distinct"))
    with bus.client() as client:
        reader = GroupReader(
            bus=bus, client=client, partition=0, group="g", consumer="c", policy=GroupPolicy.WAIT, start="0"
        )
        reader.open()
        assert len(reader.read(0)) == BATCHES
        assert round_trips(reader.own_pending) == 2  # XPENDING, and what it names


@pytest.mark.parametrize(
    ("load", "action", "most_calls", "most_commands", "most_bytes", "most_python"),
    [
        ("distinct", "", BATCHES, 3.43, 620, 32),
        ("hot", "", 1, 0.09, 16, 5),
        # Series need fewer bytes, since their events share more of their bodies.
        ("distinct", "Restarting", BATCHES, 3.43, 530, 22),
        ("hot", "Restarting", 2, 0.12, 66, 9),
    ],
)
def test_the_sink_works_in_few_commands(
    bus: Bus, load: str, action: str, most_calls: int, most_commands: float, most_bytes: float, most_python: float
) -> None:
    queue(bus, packed(load, action))
    worker = Worker(bus)
    before = received_bytes(bus)
    calls = python_calls(worker.drain)
    used = commands(bus)
    arrived = received_bytes(bus) - before
    assert used.pop("fcall") <= most_calls
    assert sum(used.values()) / EVENTS <= most_commands
    assert arrived / EVENTS <= most_bytes
    assert calls / EVENTS <= most_python


def test_a_list_takes_a_round_trip_a_page_and_few_python_calls_an_object(bus: Bus) -> None:
    queue(bus, packed("distinct"))
    Worker(bus).drain()
    with bus.client() as client:
        store = ObjectStore(bus, client)
        store.list()
        client.config_resetstat()
        calls = python_calls(store.list)
        used = commands(bus)
    assert {name: used[name] for name in ("zrange", "mget")} == {"zrange": 2, "mget": 2}
    assert calls / EVENTS <= 20


def test_the_story_of_a_node_lists_what_it_owns_once(bus: Bus) -> None:
    client = bus.client()
    owner = OwnerReference(api_version="v1", kind="Node", name="node-1", uid="u")
    with ObjectStore(bus, client) as store:
        for n in range(150):
            metadata = ObjectMeta(name=f"p-{n}", namespace="default", owner_references=(owner,))
            store.objects(POD).create(Pod(metadata=metadata))
    client.config_resetstat()
    story = read_story(bus, client, ObjectReference("Node", "", "node-1"))
    client.close()
    assert len(story.owned) == 150
    counts = commands(bus)
    assert counts["mget"] <= 6
    assert counts["get"] <= 6
    # The index of the pods, and what stands of each among the events: in one round.
    assert counts["zrange"] <= 150 + 10
