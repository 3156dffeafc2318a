"""Rows of events that the store has lost: which are looked for, and which of those that came back stay."""

from __future__ import annotations

from collections.abc import Generator, Sequence, Set
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest

from eventbus.broker.exports import ExportCheckpoint
from eventbus.export.lost_rows import LostRows
from eventbus.export.sinks.common import AppendsBatches
from eventbus.export.sinks.contract import SinkAnswer, SinkMode, SinkWrite
from eventbus.model.event import Event, ObjectMeta
from eventbus.settings import Options
from eventbus.testing import FakeClock
from tests.builders import make_event


class Sink(AppendsBatches):
    """Has *rows*, and removes all that it is asked to."""

    mode = SinkMode.APPEND
    name = "sink"

    def __init__(self, *rows: Event) -> None:
        self.rows = rows
        self.asked = 0
        self.deleted: list[str] = []

    def held(self, origin: str, *, after: int, until: int, since: datetime, most: int) -> Sequence[Event]:
        self.asked += 1
        return self.rows

    def delete(self, events: Sequence[Event]) -> int:
        self.deleted += [event.metadata.uid for event in events]
        return len(events)

    def write(self, writes: Sequence[SinkWrite]) -> Sequence[SinkAnswer]:
        raise AssertionError

    def close(self) -> None:
        pass


class Scene:
    """The rows of one sink. *before*: the entry before the loss; *stored*: uids that the store has."""

    def __init__(self, sink: Sink, *, before: int | None = 1, stored: Set[str] = frozenset()) -> None:
        self.sink = sink
        self.kept: list[ExportCheckpoint] = []
        store: Any = SimpleNamespace(
            entry_before=lambda _after: before, newest_version=lambda: 9, lost_among=lambda versions: set(versions)
        )
        writer: Any = SimpleNamespace(ask=self._ask)
        bus: Any = SimpleNamespace(id="bus", options=Options())
        self.rows = LostRows(
            sink,
            bus=bus,
            partition=0,
            store=store,
            writer=writer,
            clock=FakeClock(),
            keep=self._keep,
            scan=lambda _after: (),
            uids=lambda _names: stored,
            title="export:sink",
        )

    def _ask(self, call: Any) -> Generator[float, Any, Any]:
        yield 0.0
        return call()

    def _keep(self, checkpoint: ExportCheckpoint) -> Generator[float, Any, None]:
        yield 0.0
        self.kept.append(checkpoint)


def event_of(uid: str, version: int) -> Event:
    at = datetime.fromtimestamp(FakeClock().time_ns() / 1e9, UTC)
    metadata = ObjectMeta(name=f"web-0.{uid}", namespace="default", uid=uid, resource_version=str(version))
    return make_event(metadata=metadata, first_timestamp=at, last_timestamp=at)


def test_a_stream_that_begins_after_the_loss_shows_no_lost_rows() -> None:
    scene = Scene(Sink(event_of("a", 5)), before=None)
    list(scene.rows.find(7))
    assert (scene.sink.asked, scene.rows.note) == (0, {})
    scene = Scene(Sink(event_of("a", 5)), before=3)
    list(scene.rows.find(7))
    assert (scene.sink.asked, list(scene.rows.note)) == (1, ["lost"])


@pytest.mark.parametrize("stored", [frozenset(), frozenset({"a"})], ids=["gone", "stored"])
def test_a_row_whose_own_uid_the_store_has_again_stays(stored: Set[str]) -> None:
    scene = Scene(Sink(event_of("a", 5)), stored=stored)
    list(scene.rows.find(7))
    scene.rows.see(event_of("b", 12))
    list(scene.rows.remove())
    assert scene.sink.deleted == [uid for uid in ("a",) if uid not in stored]
    assert [checkpoint.raised for checkpoint in scene.kept] == [{"deleted": len(scene.sink.deleted), "kept": 0}]
