"""An export in the process that records, as client-go's StartRecordingToSink, and the examples of docs/sinks.md."""

from __future__ import annotations

import random
import re
import sqlite3
import threading
from pathlib import Path

import pytest

from eventbus import ConfigError, EventBroadcaster, ObjectReference, Settings
from eventbus.broker.bus import Bus, open_bus
from eventbus.export import worker
from eventbus.export.rules import ExportOptions
from eventbus.export.sinks import EventSink, make_sink
from eventbus.export.worker import ExportRunner
from eventbus.model.event import Event
from eventbus.settings import Options
from eventbus.store.object_store import ObjectStore
from eventbus.util.clock import SystemClock
from examples.sqlite_sink import SqliteSink
from tests.builders import make_event
from tests.support.exporting import MemoryBatchSink, MemorySink
from tests.support.harness import CuttingProxy, settings_of
from tests.waiting import PATIENCE_S, eventually

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(("partitions", "kind"), [(1, MemorySink), (3, MemoryBatchSink)])
def test_a_broadcaster_records_to_a_sink_of_ones_own(
    embedded_url: str, prefix: str, partitions: int, kind: type[MemorySink], caplog: pytest.LogCaptureFixture
) -> None:
    sink = kind()
    inside = threading.Lock()

    def alone(_event: Event) -> None:
        assert inside.acquire(blocking=False), "two threads at once"
        inside.release()

    sink.fail = alone
    with EventBroadcaster(embedded_url, settings=settings_of(prefix, partitions=partitions)) as broadcaster:
        broadcaster.start_recording_to_sink()
        broadcaster.start_recording_to_sink(sink)
        recorder = broadcaster.new_recorder("test")
        for number in range(30):
            for _ in range(3):
                recorder.event(ObjectReference("Pod", "default", f"pod-{number}"), "Normal", "Tested", f"m {number}")
        eventually(lambda: sink.counts() == {f"m {number}": 3 for number in range(30)})
        assert not sink.closed
    eventually(lambda: sink.closed)
    assert "does not close" not in caplog.text


def test_an_export_says_when_nobody_correlates(
    embedded_url: str, prefix: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for pause in ("FIRST_CHECK_S", "CHECK_EVERY_S", "HEARTBEAT_S"):
        monkeypatch.setattr(worker, pause, 0.01)
    runner = ExportRunner(
        bus=open_bus(embedded_url, settings_of(prefix)),
        make_sink=MemorySink,
        clock=SystemClock(),
        options=ExportOptions(),
        block_ms=20,
    )
    runner.start()
    try:
        eventually(lambda: "no sink worker is alive" in caplog.text)
    finally:
        runner.stop()


def test_an_export_of_a_broadcaster_has_the_options_of_the_command(embedded_url: str, prefix: str) -> None:
    sink = MemorySink()
    with EventBroadcaster(embedded_url, settings=settings_of(prefix)) as broadcaster:
        for wrong in (
            {"start": "yesterday"},
            {"match": "Warning"},
            {"repeats": "sometimes"},
            {"outage": "perhaps"},
            {"counts": "all"},
        ):
            with pytest.raises(ConfigError):
                broadcaster.start_recording_to_sink(sink, **wrong)  # type: ignore[arg-type]
        broadcaster.start_recording_to_sink()
        broadcaster.start_recording_to_sink(sink, repeats="at-most-every=1h", batch=10)
        recorder = broadcaster.new_recorder("test")
        for number in range(2):
            recorder.event(ObjectReference("Pod", "default", "pod-0"), "Normal", "Tested", "repeats")
            eventually(lambda: sink.counts().get("repeats") == 1)
            recorder.event(ObjectReference("Pod", "default", f"pod-{number}"), "Normal", "Tested", f"mark {number}")
            eventually(lambda number=number: f"mark {number}" in sink.counts())  # type: ignore[misc]
        assert sink.counts()["repeats"] == 1


@pytest.mark.parametrize("counts", ["written", "shown"])
def test_a_broadcaster_tells_its_sink_the_counts_that_it_is_asked_for(
    embedded_url: str, prefix: str, counts: str
) -> None:
    sink = MemorySink()
    open_bus(embedded_url, Settings(prefix=prefix), options=Options(burst=2, refresh_s=1))
    with EventBroadcaster(embedded_url, settings=settings_of(prefix)) as broadcaster:
        broadcaster.start_recording_to_sink()
        broadcaster.start_recording_to_sink(sink, counts=counts)
        recorder = broadcaster.new_recorder("test")
        for _ in range(9):
            recorder.event(ObjectReference("Pod", "default", "pod-0"), "Normal", "Tested", "repeats")
        assert broadcaster.flush(PATIENCE_S)
        eventually(lambda: shown(embedded_url, prefix) == 9)
        recorder.event(ObjectReference("Pod", "default", "pod-1"), "Normal", "Tested", "mark")
        eventually(lambda: "mark" in sink.counts())
        eventually(lambda: sink.counts()["repeats"] == (2 if counts == "written" else 9))


def shown(url: str, prefix: str) -> int:
    """The count of the event, as readers see it; 0: there is none yet."""
    bus = open_bus(url, Settings(prefix=prefix))
    with bus.client() as client:
        events = ObjectStore(bus, client).list().items
    return next((event.count for event in events if event.message == "repeats"), 0)


def test_what_is_no_sink_is_refused(embedded_url: str, prefix: str) -> None:
    with EventBroadcaster(embedded_url, settings=settings_of(prefix)) as broadcaster:
        with pytest.raises(ConfigError, match="is no sink"):
            broadcaster.start_recording_to_sink("postgres")  # type: ignore[arg-type]
        with pytest.raises(ConfigError, match="must match"):
            broadcaster.start_recording_to_sink(MemorySink("no/name"))


def test_the_example_keeps_the_newest_version_whatever_comes_late(tmp_path: Path) -> None:
    path = tmp_path / "events.db"
    sink: EventSink = make_sink(f"sqlite:{path}", {})
    assert isinstance(sink, SqliteSink)
    for count, version in ((1, "10"), (3, "12"), (2, "11"), (3, "12")):
        event = make_event(count=count)
        metadata = type(event.metadata)(name="n", namespace="default", uid="p:1", resource_version=version)
        sink.update(type(event)(metadata=metadata, count=count, message="hello"))
    sink.close()
    with sqlite3.connect(path) as database:
        assert database.execute("SELECT uid, version, count FROM events").fetchall() == [("p:1", 12, 3)]
    database.close()


def test_the_sink_in_the_documentation_is_the_example() -> None:
    page = (ROOT / "docs" / "sinks.md").read_text("utf-8")
    code = (ROOT / "examples" / "sqlite_sink.py").read_text("utf-8")
    assert code in re.findall(r"```python\n(.*?)```", page, re.S)


def test_replies_of_redis_that_are_lost_cost_nothing_but_repeats(embedded_url: str, prefix: str) -> None:
    if not embedded_url.startswith("unix:"):
        pytest.skip("the line that can be cut ends in a unix socket")
    dice = random.Random(7)
    sink = MemoryBatchSink()
    settings = settings_of(prefix)
    with EventBroadcaster(embedded_url, settings=settings) as broadcaster:
        broadcaster.start_recording_to_sink()
        recorder = broadcaster.new_recorder("test")
        bus = open_bus(embedded_url, settings)
        with CuttingProxy(embedded_url, lambda: dice.random() < 0.05) as line:
            cut_bus = Bus(
                line.url,
                cluster=False,
                prefix=prefix,
                partitions=1,
                options=bus.options,
                options_version=bus.options_version,
            )
            options = ExportOptions(batch_events=10)
            runner = ExportRunner(
                bus=cut_bus, make_sink=lambda: sink, clock=SystemClock(), options=options, block_ms=20
            )
            runner.start()
            try:
                for _ in range(3):
                    for number in range(100):
                        about = ObjectReference("Pod", "default", f"pod-{number}")
                        recorder.event(about, "Normal", "Tested", f"m {number}")
                    assert broadcaster.flush(60)
                eventually(lambda: sink.counts() == {f"m {number}": 3 for number in range(100)})
                assert line.cuts > 0
            finally:
                runner.stop(30)
