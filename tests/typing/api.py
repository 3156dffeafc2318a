"""Every public name as a user would use it. Only type-checked (`mypy --strict`), never run.

A `type: ignore` is a check as well: mypy complains about one that is not needed, so what must not type-check does not.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import assert_type

import eventbus
from eventbus import (
    BroadcasterStopped,
    BusRefused,
    BusUnavailable,
    ConfigError,
    Event,
    EventBroadcaster,
    EventBusError,
    EventRecorder,
    EventSeries,
    EventSource,
    EventsRecorder,
    EventType,
    Expired,
    FullBuffer,
    InvalidEvent,
    NotFound,
    ObjectMeta,
    ObjectReference,
    Options,
    Settings,
    make_event_recorder,
)
from eventbus.testing.clock import FakeClock
from eventbus.testing.recorder import FakeRecorder

assert_type(eventbus.__all__, list[str])


class Pod:
    """An object of the user's own."""

    kind = "Pod"

    def __init__(self, name: str) -> None:
        self.metadata = {"name": name, "namespace": "default"}


def record(recorder: EventRecorder) -> None:
    reference = ObjectReference("Pod", "default", "web-0", api_version="v1", field_path="spec.containers{web}")
    recorder.event(reference, "Normal", "Pulled", "pulled")
    recorder.event(reference, EventType.WARNING, "BackOff", "again")
    recorder.event(Pod("web-0"), "Normal", "Pulled", "pulled")
    recorder.eventf({"kind": "Pod", "metadata": {"name": "web-0"}}, "Normal", "Pulled", "%s in %.1f s", "nginx", 1.2)
    recorder.past_eventf(reference, datetime.now(UTC), "Normal", "Seen", "%d times", 3)
    recorder.annotated_eventf(reference, {"example.com/trace": "abc"}, "Normal", "Traced", "step")
    annotations: Mapping[str, str] = {"a": "b"}
    recorder.annotated_eventf(reference, annotations, "Normal", "Traced", "step %d", 1)

    recorder.event(reference, "Normal", "Pulled")  # type: ignore[call-arg]
    recorder.event(reference, "Normal", "Pulled", b"pulled")  # type: ignore[arg-type]
    recorder.event(reference, "Normal", "Pulled", "%s", "nginx")  # type: ignore[call-arg]
    recorder.past_eventf(reference, "yesterday", "Normal", "Seen", "x")  # type: ignore[arg-type]
    recorder.annotated_eventf(reference, {"a": 1}, "Normal", "Traced", "x")  # type: ignore[dict-item]


def broadcast() -> None:
    settings = Settings(redis_url="redis://localhost:6379/0", buffer_full=FullBuffer.WAIT, flush_s=1)
    assert_type(Settings.from_environ({"EVENTBUS_PREFIX": "eb"}), Settings)
    with EventBroadcaster("none", settings=settings, clock=FakeClock()) as broadcaster:
        assert_type(broadcaster, EventBroadcaster)
        assert_type(broadcaster.new_recorder("scheduler"), EventRecorder)
        record(broadcaster.new_recorder("scheduler", host="node-1"))
        events_recorder = broadcaster.new_events_recorder("example.com/scheduler", instance="one")
        assert_type(events_recorder, EventsRecorder)
        events_recorder.eventf("Pod/web-0", None, "Normal", "Bound", "Binding", "to %s", "n1")
        events_recorder.eventf("Pod/web-0", "Normal", "Bound", "Binding", "x")  # type: ignore[call-arg]

        def handle(event: Event) -> None:
            assert_type(event, Event)

        broadcaster.start_event_watcher(handle).stop()
        broadcaster.start_event_watcher(handle, scope="local", queue_length=10).stop(timeout_s=1)
        broadcaster.start_event_watcher(handle, group="audit", since=datetime.now(UTC)).stop()
        broadcaster.start_event_watcher(print)
        broadcaster.start_logging(logging.getLogger(__name__).info)
        broadcaster.start_logging(print)
        broadcaster.start_structured_logging()
        broadcaster.start_recording_to_sink().stop()
        assert_type(broadcaster.flush(), bool)
        assert_type(broadcaster.flush(timeout_s=0.1), bool)
        assert_type(broadcaster.shutdown(timeout_s=1), bool)

        broadcaster.start_event_watcher(handle, scope="galaxy")  # type: ignore[arg-type]
        broadcaster.start_event_watcher(lambda: None)  # type: ignore[arg-type, misc]
        broadcaster.start_recording_to_sink("postgres")  # type: ignore[arg-type]
    EventBroadcaster()
    record(make_event_recorder("scheduler"))


def values() -> None:
    event = Event(
        metadata=ObjectMeta(name="web-0.17", namespace="default", labels={"app": "web"}, annotations={}),
        involved_object=ObjectReference(kind="Pod", namespace="default", name="web-0"),
        reason="Pulled",
        message="pulled",
        source=EventSource("kubelet", "node-1"),
        first_timestamp=datetime.now(UTC),
        count=1,
        type=EventType.NORMAL,
        series=EventSeries(2, datetime.now(UTC)),
    )
    assert_type(event.last_seen, datetime | None)
    assert_type(event.metadata.labels, Mapping[str, str])
    assert_type(event.kind, str)
    event.reason = "Other"  # type: ignore[misc]
    event.metadata.labels["app"] = "db"  # type: ignore[index]
    assert_type({event: 1}, dict[Event, int])
    assert_type(Options(burst=10, qps=0.1, exempt_types=("Warning",)).burst, int)
    Options(burst="10")  # type: ignore[arg-type]


def errors() -> None:
    try:
        values()
    except InvalidEvent as error:
        assert_type(error.field, str)
        assert_type(error.problem, str)
    except (BusUnavailable, BusRefused, ConfigError, NotFound, Expired, BroadcasterStopped) as error:
        assert_type(error.exit_code, int)
    except EventBusError as error:
        raise SystemExit(error.exit_code) from error


def test() -> None:
    recorder = FakeRecorder(10, include_object=True)
    record(recorder)
    assert_type(recorder.lines(), list[str])
    assert_type(recorder.events.get(), str)
    assert_type(recorder.recorded, list[Event])
    assert_type(recorder.refused, int)
