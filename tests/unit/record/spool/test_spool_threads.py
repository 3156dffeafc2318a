"""The two threads of a spool go on, whatever comes out of a look and of the application's own log code."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from eventbus.record.losses import Losses
from eventbus.record.outbox import SpoolWriter
from eventbus.record.spool import adopter
from eventbus.record.spool.adopter import Adopter
from eventbus.settings import Settings
from eventbus.util.clock import SystemClock
from tests.waiting import PATIENCE_S


@pytest.fixture(autouse=True)
def log_filter_that_raises() -> Iterator[None]:
    def raises(_record: logging.LogRecord) -> bool:
        raise ValueError("no such field")

    logger = logging.getLogger("eventbus")
    logger.addFilter(raises)
    yield
    logger.removeFilter(raises)


class Looks:
    """Fails at the first call; *again* is set by the second."""

    def __init__(self) -> None:
        self.calls = 0
        self.again = threading.Event()

    def __call__(self, *_: object) -> int:
        self.calls += 1
        if self.calls == 1:
            raise AttributeError("unforeseen")
        self.again.set()
        return 0


def test_the_spools_writer_looks_again(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = Looks()
    monkeypatch.setattr(SpoolWriter, "_look", looks)
    idle: Any = SimpleNamespace(start=lambda: None, stop=lambda: None, thread=None)
    unsynced: Any = SimpleNamespace(unsynced=True)
    outbox: Any = SimpleNamespace(busy_since=0.0)
    writer = SpoolWriter(outbox, unsynced, idle, SystemClock())
    writer.start()
    try:
        assert looks.again.wait(PATIENCE_S)
    finally:
        writer.stop()


def test_the_adopter_looks_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    looks = Looks()
    monkeypatch.setattr(Adopter, "adopt", looks)
    monkeypatch.setattr(adopter, "EVERY_S", 0.01)
    unused: Any = None
    clock = SystemClock()
    adopts = Adopter(
        root=tmp_path, name_bus=unused, connect=unused, settings=Settings(), clock=clock, losses=Losses(clock)
    )
    adopts.start()
    try:
        assert looks.again.wait(PATIENCE_S)
    finally:
        adopts.stop()
        assert adopts.thread
        adopts.thread.join(PATIENCE_S)
