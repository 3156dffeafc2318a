"""Events that several processes may record and that are recorded once."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from eventbus.broker.bus import Bus, open_bus
from eventbus.broker.redis_transport import RedisTransport
from eventbus.errors import BusFull
from eventbus.model.event import ObjectReference
from eventbus.record.occurrence import OccurrenceRecorder
from eventbus.settings import Options, Settings
from eventbus.util.clock import SystemClock
from tests.support.node_world import recorded_events

NODE = ObjectReference("Node", "", "n1", "uid-1", "v1")


@pytest.fixture
def bus(any_server_url: str, prefix: str) -> Bus:
    return open_bus(any_server_url, Settings(prefix=prefix, partitions=3))


@pytest.fixture
def recorders(bus: Bus) -> Iterator[list[OccurrenceRecorder]]:
    made = [OccurrenceRecorder(RedisTransport(bus), clock=SystemClock(), component="lifecycle") for _ in range(2)]
    yield made
    for recorder in made:
        recorder.close()


def reasons(bus: Bus) -> list[str]:
    client = bus.client()
    found = [event.reason for event in recorded_events(bus, client)]
    client.close()
    return found


def test_the_same_occurrence_is_recorded_once_whoever_records_it(bus: Bus, recorders: list[OccurrenceRecorder]) -> None:
    for recorder in recorders * 2:
        recorder.record("uid-1/NodeNotReady/1", NODE, "Warning", "NodeNotReady", "it is silent")
        recorder.flush()
    assert reasons(bus) == ["NodeNotReady"]
    assert [(recorder.recorded, recorder.known) for recorder in recorders] == [(1, 1), (0, 2)]
    recorders[1].record("uid-1/NodeNotReady/2", NODE, "Warning", "NodeNotReady", "it is silent")
    recorders[1].flush()
    assert reasons(bus) == ["NodeNotReady"] * 2


def test_what_is_no_event_is_dropped_and_counted(bus: Bus, recorders: list[OccurrenceRecorder]) -> None:
    recorders[0].record("x", NODE, "Warning", "TooLong", "m" * 1_000_000)
    recorders[0].flush()
    assert (recorders[0].dropped, recorders[0].waiting, reasons(bus)) == (1, 0, [])


def test_what_a_full_stream_does_not_take_waits(any_server_url: str, prefix: str) -> None:
    options = Options(incoming_bytes=1024 * 1024)
    bus = open_bus(any_server_url, Settings(prefix=prefix), options=options)
    recorder = OccurrenceRecorder(RedisTransport(bus), clock=SystemClock(), component="lifecycle")
    for number in range(2_000):
        recorder.record(f"{number}", NODE, "Normal", "NodeReady", os.urandom(500).hex())
    with pytest.raises(BusFull):
        recorder.flush()
    assert recorder.waiting + recorder.recorded == 2_000
    assert recorder.waiting
    recorder.close()


def test_a_stream_that_is_gone_is_made_anew(bus: Bus, recorders: list[OccurrenceRecorder]) -> None:
    client = bus.client()
    for keys in bus.keys:
        client.delete(keys.incoming)
    client.close()
    recorders[0].record("x", NODE, "Normal", "NodeReady", "ready")
    recorders[0].flush()
    assert reasons(bus) == ["NodeReady"]
