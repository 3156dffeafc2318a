"""The spool takes what was recorded from the flusher's buffer; the flusher sends it all the same, asleep or not."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from eventbus.record.broadcaster import EventBroadcaster
from eventbus.record.sender import Sender
from eventbus.settings import Settings
from tests.builders import make_reference
from tests.support.harness import messages, read_incoming, settings_of
from tests.waiting import PATIENCE_S, eventually


@pytest.fixture
def settings(prefix: str, tmp_path: Path) -> Settings:
    return settings_of(prefix, spool=str(tmp_path / "spool"))


@pytest.fixture
def broadcaster(embedded_url: str, settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Iterator[EventBroadcaster]:
    """One that has sent what is numbered 0, and sleeps. No check of acks will wake it."""
    monkeypatch.setattr(Sender, "check_in_s", lambda *_: math.inf)
    with EventBroadcaster(embedded_url, settings=settings) as made:
        record(made, "0")
        assert made.flush(PATIENCE_S)
        outbox: Any = made._outbox
        eventually(lambda: outbox._asleep)
        yield made


def record(broadcaster: EventBroadcaster, message: str) -> None:
    broadcaster.new_recorder("c").event(make_reference(name="web-0"), "Normal", "Counted", message)


def keep(outbox: Any) -> None:
    """What the spool's writer does when a round is late."""
    outbox.keep_waiting()


def test_what_is_taken_while_the_flusher_falls_asleep_is_sent(
    broadcaster: EventBroadcaster, embedded_url: str, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    outbox: Any = broadcaster._outbox
    can_send, armed = Sender.can_send, [True]

    def just_before(sender: Sender) -> bool:
        found: bool = can_send.__get__(sender)
        if armed:
            armed.clear()
            record(broadcaster, "1")
            keep(outbox)
        return found

    monkeypatch.setattr(Sender, "can_send", property(just_before))
    outbox._wake_up()
    eventually(lambda: messages(read_incoming(embedded_url, settings)) == ["0", "1"])


def test_what_is_taken_while_the_flusher_sleeps_is_sent(
    broadcaster: EventBroadcaster, embedded_url: str, settings: Settings
) -> None:
    """It was asleep before the spool's thread had numbered what it took, and awake before it was put."""
    outbox: Any = broadcaster._outbox
    recorder = broadcaster.new_recorder("c")
    recorder._put = outbox._items.append
    recorder.event(make_reference(name="web-0"), "Normal", "Counted", "1")
    keep(outbox)
    eventually(lambda: messages(read_incoming(embedded_url, settings)) == ["0", "1"])
