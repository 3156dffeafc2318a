"""A worker reports that it works after its group was created: it receives every event recorded from then on."""

from __future__ import annotations

import logging
import threading
from pathlib import Path
from typing import Any

import pytest

from eventbus.broker.bus import LOG_GROUP, Bus
from eventbus.errors import BusUnavailable
from eventbus.record.broadcaster import EventBroadcaster
from eventbus.settings import Settings
from eventbus.workers.log_lines import Format
from eventbus.workers.log_output import open_output
from eventbus.workers.log_runner import log_worker
from eventbus.workers.signals import Signals
from eventbus.workers.systemd import Systemd
from eventbus.workers.worker import Context, Part, Running, Worker
from tests.builders import make_reference
from tests.support.harness import settings_of
from tests.waiting import PATIENCE_S, eventually


def start_log_worker(settings: Settings, file: Path, signals: Signals) -> threading.Thread:
    def build(context: Context) -> Part:
        return log_worker(context, output=open_output(str(file)), form=Format.TEXT, take_over_s=15)

    worker = Worker(
        "eventbus-log",
        build,
        settings=settings,
        signals=signals,
        systemd=Systemd({}),
        running=Running(),
        doing="",
    )
    thread = threading.Thread(target=worker.run)
    thread.start()
    return thread


def test_a_log_worker_does_not_work_before_its_group_exists(
    any_server_url: str,
    prefix: str,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    refused, is_back = threading.Event(), threading.Event()
    open_partition = Bus.open_partition

    def open_later(bus: Bus, client: Any, partition: int, group: str = "", *more: Any) -> Any:
        if group == LOG_GROUP and not is_back.is_set():
            refused.set()
            raise BusUnavailable("the server is killed at this moment")
        return open_partition(bus, client, partition, group, *more)

    monkeypatch.setattr(Bus, "open_partition", open_later)
    caplog.set_level(logging.INFO, "eventbus")
    settings = settings_of(prefix, redis_url=any_server_url)
    signals = Signals()
    thread = start_log_worker(settings, tmp_path / "log", signals)
    try:
        assert refused.wait(PATIENCE_S)
        assert "works on" not in caplog.text
        is_back.set()
        eventually(lambda: "works on" in caplog.text)
        with EventBroadcaster(any_server_url, settings=settings) as broadcaster:
            broadcaster.new_recorder("test").event(make_reference(), "Normal", "Seen", "after it works")
        eventually(lambda: "after it works" in (tmp_path / "log").read_text())
    finally:
        signals.end(0)
        thread.join(PATIENCE_S)
