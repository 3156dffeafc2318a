"""The end-to-end vectors of client-go: what the sinks of its two recorders were called with, driven through our export.

The server of the vectors is a sink here, with the same faults; the exporter runs with `outage=count`, in the test's
own thread and time. Events are recorded by the real function at the vector's times. Those of tools/events are made by
our `EventsRecorder`, and the housekeeping of their series runs when it is due.
"""

from __future__ import annotations

import random
import secrets
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from eventbus.consume.dead_letter import DeadLetter
from eventbus.errors import (
    AlreadyExists,
    EventBusError,
    EventRejected,
    EventUnbuildable,
    NotFound,
    SinkUnreachable,
    Throttled,
    UnexpectedReply,
)
from eventbus.export.exporter import PartitionExporter
from eventbus.export.rules import ExportOptions, Outage
from eventbus.export.sink_writer import ExportStopped
from eventbus.export.sinks import EventPatch, EventSink, SinkMode
from eventbus.model.encoding.event_json import to_core, to_events_v1
from eventbus.model.encoding.wire import pack_event
from eventbus.model.event import Event, EventSource, ObjectMeta, ObjectReference
from eventbus.record.losses import Losses
from eventbus.record.packing import Pending, pack
from eventbus.record.recorder import EventsRecorder
from eventbus.settings import Options
from eventbus.util.clock import SystemClock
from tests.conformance.recording import Recording
from tests.conformance.runner import cut

VECTORS = Path(__file__).parents[1] / "vectors" / "end_to_end"

#: Vectors that say nothing about an export, and why.
NOT_OURS = {
    "003_record_inputs": "what the recorder refuses reaches no sink; tests/unit/record/test_recorder.py has the rules",
    "038_record_queue_full": "client-go drops what its queue of 1000 cannot hold; ours are streams",
    "073_events_finish_http": "a failed write of the last count is retried after seconds, not after six minutes",
    "075_events_refresh_http": "a failed write of a running count is retried after seconds, not after half an hour",
}
#: Fields that differ on purpose, by vector.
DIFFERENT = {
    "002_record_aggregate": {
        "rv": "client-go forgets what the server returned for an aggregate (its key is another); ours is kept"
    },
}
#: The same in all vectors of tools/events.
DIFFERENT_IN_SERIES = {
    "rv": "client-go forgets what the server returned, except for a refresh; ours is kept",
}

#: The vectors' time 0.
EPOCH = datetime(2000, 1, 1, tzinfo=UTC)

#: How each answer of the vectors' server reaches the loop. What answers everybody so (429, 503) is a pause for us,
#: but not under `outage=count`.
_FAULTS: dict[str, type[EventBusError]] = {
    "http": SinkUnreachable,
    "exists": AlreadyExists,
    "notfound": NotFound,
    "construct": EventUnbuildable,
    "unexpected": UnexpectedReply,
    "429": Throttled,
}


class Vector(msgspec.Struct, frozen=True):
    """One recording: what was done, and every line of what came of it.

    Of tools/events that is the outcome in v0.36 where it differs: later versions drop events when their queue is full,
    and counts when the program ends; ours are in Redis.
    """

    name: str
    options: Mapping[str, Any]
    steps: list[dict[str, Any]]
    wanted: list[dict[str, Any]]

    @property
    def in_series(self) -> bool:
        """Whether it is of tools/events."""
        return bool(self.options["api"] == "events")

    @property
    def calls(self) -> list[dict[str, Any]]:
        """The calls of the sink."""
        return [line for line in self.wanted if line["kind"] == "call"]


@cache
def recorded() -> Sequence[Vector]:
    """All of them, by number."""
    found = []
    for path in sorted(VECTORS.glob("*.in.jsonl")):
        first, *steps = _lines(path)
        out = path.with_name(path.name.replace(".in.", ".out."))
        older = out.with_name(out.name.replace(".out.", ".out.v0.36.3."))
        wanted = _lines(older if first["options"]["api"] == "events" and older.exists() else out)
        found.append(Vector(path.name.removesuffix(".in.jsonl"), first["options"], steps, wanted))
    return found


def _lines(path: Path) -> list[dict[str, Any]]:
    return [msgspec.json.decode(line) for line in path.read_bytes().splitlines() if line.strip()]


class OwnTime:
    """A clock that sleeping moves, until *end_s*, when whoever sleeps is told to stop."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.end_s = float("inf")

    def time_ns(self) -> int:
        return int(EPOCH.timestamp()) * 10**9 + round(self.now_s * 1e9)

    def monotonic(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds

    def wait(self, seconds: float) -> bool:
        self.now_s = min(self.now_s + seconds, self.end_s)
        return self.now_s >= self.end_s


class RecordedServer:
    """A sink that behaves as the server of the vectors did, and notes every call as they do."""

    name = "vectors"
    mode = SinkMode.UPSERT

    def __init__(self, faults: Iterable[str], time: OwnTime) -> None:
        self._faults = list(faults)
        self._time = time
        self._version = 0
        self.objects: dict[str, str] = {}
        self.calls: list[dict[str, Any]] = []

    def create(self, event: Event) -> Event:
        answer = self._answer("exists" if event.metadata.name in self.objects else "ok")
        core = to_events_v1(event) if event.event_time else to_core(event)
        core["metadata"] = {k: v for k, v in core["metadata"].items() if k in ("name", "namespace", "annotations")}
        del core["kind"], core["apiVersion"]
        self._note("create", answer, event, event=core)
        return self._returned(answer, event)

    def update(self, event: Event) -> Event:
        raise AssertionError("client-go never updates")

    def patch(self, event: Event, patch: EventPatch) -> Event:
        answer = self._answer("ok" if patch.name in self.objects else "notfound")
        more = {"rv": patch.version} if patch.version else {}
        self._note("patch", answer, event, patch=patch.body(), **more)
        return self._returned(answer, event)

    def close(self) -> None:
        pass

    def _answer(self, usual: str) -> str:
        if not self._faults:
            return usual
        fault = self._faults[0] if self._faults[0].startswith("*") else self._faults.pop(0)
        fault = fault.removeprefix("*")
        return usual if fault == "ok" else fault

    def _note(self, verb: str, answer: str, about: Event, **more: Any) -> None:
        count = about.occurrences if about.series or about.event_time is None else None
        self.calls.append(
            {
                "t_ms": round(self._time.now_s * 1000),
                "verb": verb,
                "answer": answer,
                "name": about.metadata.name,
                "ns": about.metadata.namespace,
                "count": count,
                "message": about.message,
                **more,
            }
        )

    def _returned(self, answer: str, event: Event) -> Event:
        if answer != "ok":
            # Whatever else has a status (forbidden, terminating, 409, 500, …) is a refusal of this event.
            raise _FAULTS.get(answer, EventRejected)(answer)
        self._version += 1
        self.objects[event.metadata.name] = str(self._version)
        metadata = msgspec.structs.replace(event.metadata, resource_version=str(self._version))
        return msgspec.structs.replace(event, metadata=metadata)


def run(vector: Vector, url: str) -> tuple[list[dict[str, Any]], int]:
    """The calls of the sink, and how many events were buried."""
    time = OwnTime()
    server = RecordedServer(vector.options.get("faults", ()), time)
    return server.calls, drive(vector, url, server, time, delete=server.objects.clear)


def drive(vector: Vector, url: str, sink: EventSink, time: OwnTime, *, delete: Callable[[], None]) -> int:
    """Do what the vector says, and export to *sink*, which is closed then. Returns: how many events were buried."""
    steps = _recorded_steps(vector)
    recording = Recording(url, f"e2e-{secrets.token_hex(6)}", Options(report_suppressed=False))
    exporter = PartitionExporter(
        bus=recording.bus,
        partition=0,
        sink=sink,
        consumer="driver",
        clock=time,
        options=ExportOptions(outage=Outage.COUNT),
        block_ms=1,
        sleep=time.wait,
        uniform=lambda low, high: (low + high) / 2,
    )
    try:
        assert exporter.acquire()
        cancelled = [step["t_ms"] / 1000 for step in vector.steps if step.get("op") == "cancel"]
        time.end_s = min(cancelled, default=time.end_s)
        for step, packed in steps:
            while (due_ms := recording.refresh_due(_ms_of(step))) is not None and time.now_s < time.end_s:
                time.now_s = max(time.now_s, due_ms / 1000 - EPOCH.timestamp())
                _run_until_idle(exporter)
            time.now_s = max(time.now_s, step["t_ms"] / 1000)
            if step.get("op") == "delete":
                delete()
            elif packed and time.now_s < time.end_s:
                recording.send(_ms_of(step), packed=packed)
                _run_until_idle(exporter)
        return sum(1 for _ in DeadLetter(recording.bus, recording.client).list())
    finally:
        exporter.stop()
        exporter.run()  # ends at once, and gives back what it has
        recording.close()


def _run_until_idle(exporter: PartitionExporter) -> None:
    while True:
        try:
            if not exporter.step(block_ms=0):
                return
        except ExportStopped:
            return


def _ms_of(step: Mapping[str, Any]) -> int:
    return int(EPOCH.timestamp()) * 1000 + int(step["t_ms"])


def _recorded_steps(vector: Vector) -> list[tuple[Mapping[str, Any], list[bytes]]]:
    """Each step with the event that the recorder makes of it: none if it is no event, or the recorder refuses it."""
    time, pendings = OwnTime(), deque[Pending]()
    found: list[tuple[Mapping[str, Any], list[bytes]]] = []
    controller = vector.options["controller"]
    recorder = EventsRecorder(
        controller, f"{controller}-HOSTNAME", put=pendings.append, losses=Losses(SystemClock()), clock=time
    )
    shut_down = False
    for step in vector.steps:
        packed: list[bytes] = []
        shut_down |= step.get("op") == "shutdown"
        if "op" in step or shut_down:
            pass
        elif vector.in_series:
            time.now_s = step["t_ms"] / 1000
            words = (step["type"], step["reason"], step.get("action", ""), step["message"])
            recorder.eventf(step["object"], step.get("related"), *words)
            packed = [pack(pendings.popleft()) for _ in range(len(pendings))]
        else:
            packed = [pack_event(_event(vector, step))]
        found.append((step, packed))
    return found


def shown_in_batches(vector: Vector, url: str, seed: int) -> dict[str, tuple[Any, ...]]:
    """What readers see of the series after all events, several a call: name → note, time, count, last time."""
    recording = Recording(url, f"e2e-{secrets.token_hex(6)}", Options(report_suppressed=False))
    events = [(step, packed) for step, packed in _recorded_steps(vector) if packed]
    try:
        for call in cut(events, random.Random(f"{seed} {vector.name}")):
            entries = [recording.append(_ms_of(step), packed=packed) for step, packed in call]
            recording.take("driver", len(entries))
            recording.record("driver", entries)
        shown = [to_events_v1(event) for event in recording.store.list().items]
    finally:
        recording.close()
    return {each["metadata"]["name"]: _of_series(each, each.get("series")) for each in shown}


def series_after(vector: Vector) -> dict[str, tuple[Any, ...]]:
    """The same as the calls of client-go have it."""
    created: dict[str, dict[str, Any]] = {}
    series: dict[str, Any] = {}
    for call in vector.calls:
        created.setdefault(call["name"], call.get("event", {}))
        found = call.get("patch") or call.get("event") or {}
        series[call["name"]] = found.get("series") or series.get(call["name"])
    return {name: _of_series(event, series[name]) for name, event in created.items()}


def _of_series(event: Mapping[str, Any], series: Any) -> tuple[Any, ...]:
    return event["note"], event["eventTime"], series


def _event(vector: Vector, step: Mapping[str, Any]) -> Event:
    """Make the event that client-go's recorder makes of the step."""
    about = msgspec.convert(step["object"], ObjectReference)
    now = EPOCH + timedelta(milliseconds=step["t_ms"])
    ns = int(EPOCH.timestamp()) * 10**9 + step["t_ms"] * 10**6
    source = EventSource(vector.options["controller"], vector.options["host"])
    return Event(
        metadata=ObjectMeta(
            name=f"{about.name}.{ns:x}",
            namespace=about.namespace or "default",
            annotations=step.get("annotations", {}),
        ),
        involved_object=about,
        reason=step["reason"],
        message=step["message"],
        source=source,
        first_timestamp=now,
        last_timestamp=now,
        count=1,
        type=step["type"],
        reporting_component=source.component,
        reporting_instance=source.host,
    )


def differences(vector: Vector, calls: list[dict[str, Any]], *, unseen: Collection[str] = ()) -> list[str]:
    """List the differences from the recording, call by call, except in the fields that are *unseen*."""
    wanted = vector.calls
    if vector.in_series:  # those of one moment have no order: client-go iterates over a map
        wanted, calls = (
            sorted(each, key=lambda call: (call.get("t_min", call["t_ms"]), call["name"])) for each in (wanted, calls)
        )
    found = [f"{len(calls)} calls, recorded were {len(wanted)}"] if len(calls) != len(wanted) else []
    ignored = {*DIFFERENT.get(vector.name, {}), *(DIFFERENT_IN_SERIES if vector.in_series else ()), *unseen}
    for number, (want, got) in enumerate(zip(wanted, calls, strict=False), 1):
        for field in ("verb", "answer", "name", "ns", "rv", "count", "message", "patch", "event"):
            if field not in ignored and field not in got.get("unseen", ()) and want.get(field) != got.get(field):
                found.append(f"call {number}, {field}: {got.get(field)!r}, recorded was {want.get(field)!r}")
        least, most = want.get("t_min", want["t_ms"]), want.get("t_max", want["t_ms"])
        if not least <= got["t_ms"] <= most:
            found.append(f"call {number} at {got['t_ms']} ms, recorded was {least} to {most}")
    return found


def given_up(vector: Vector) -> int:
    """Count the events that client-go gave up with an error in its log; if the event exists it lost nothing."""
    found, answer = 0, ""
    # Of tools/events, a line of the log comes before its call.
    for line in reversed(vector.wanted) if vector.in_series else vector.wanted:
        if line["kind"] == "call":
            answer = line["answer"]
        elif answer != "exists" and any(words in line["log"] for words in ("event (will not retry", "limit exceeded")):
            found += "record event" not in line["log"]
    return found
