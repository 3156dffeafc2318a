"""Two calls of `correlate_and_store` under way: taken in order, and whatever one comes to, nothing counts twice."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

import pytest

from benchmarks.loads import all_distinct
from benchmarks.sink_worker import Worker
from eventbus.broker.bus import Bus
from eventbus.broker.calls import PendingCalls
from eventbus.errors import BusUnavailable
from eventbus.settings import Settings
from tests.support.harness import bus_with

EVENTS = 320  # five calls


@pytest.fixture
def bus(redis_url: str, settings: Settings) -> Bus:
    return bus_with(redis_url, settings)


@pytest.fixture
def worker(bus: Bus) -> Iterator[Worker]:
    made = Worker(bus)
    made.append(list(islice(all_distinct(), EVENTS)))
    with made.client:
        yield made


def recorded(bus: Bus) -> int:
    with bus.client() as client:
        return int(client.hget(bus.keys[0].meta, "events") or 0)


def test_commands_behind_one_another_share_a_connection_and_are_answered_in_order(bus: Bus) -> None:
    with bus.client() as client:
        first = PendingCalls(client, ("ECHO", "one"))
        second = PendingCalls(client, ("ECHO", "two"), after=first)
        third = PendingCalls(client, ("ECHO", "three"), after=second)
        assert first.replies() == [b"one"]
        assert client.echo("meanwhile") == b"meanwhile"  # on another connection
        assert [call.replies() for call in (second, third)] == [[b"two"], [b"three"]]
        ids = [PendingCalls(client, ("CLIENT", "ID")).replies() for _ in range(2)]
        assert ids[0] == ids[1]  # it was released, once


def test_abandoned_commands_leave_the_client_without_their_answers(bus: Bus) -> None:
    with bus.client() as client:
        first = PendingCalls(client, ("ECHO", "one"))
        second = PendingCalls(client, ("ECHO", "two"), after=first)
        first.abandon()
        second.abandon()
        assert client.ping()
        assert PendingCalls(client, ("ECHO", "three")).replies() == [b"three"]


def test_nothing_is_sent_behind_a_command_whose_connection_was_closed(bus: Bus) -> None:
    with bus.client() as client:
        first = PendingCalls(client, ("ECHO", "one"))
        client.connection_pool.disconnect()
        with pytest.raises(BusUnavailable):
            PendingCalls(client, ("ECHO", "two"), after=first)
        with pytest.raises(BusUnavailable):
            first.replies()
        assert PendingCalls(client, ("ECHO", "three")).replies() == [b"three"]


def test_while_the_server_works_on_a_call_the_next_is_there(
    bus: Bus, worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    under_way, most = 0, 0
    begin, replies = PendingCalls.__init__, PendingCalls.replies

    def count(call: PendingCalls, *args: Any, **options: PendingCalls | None) -> None:
        nonlocal under_way, most
        begin(call, *args, **options)
        under_way += 1
        most = max(most, under_way)

    def settle(call: PendingCalls) -> object:
        nonlocal under_way
        under_way -= 1
        return replies(call)

    monkeypatch.setattr(PendingCalls, "__init__", count)
    monkeypatch.setattr(PendingCalls, "replies", settle)
    worker.drain()
    assert most == 2
    assert under_way == 0
    assert recorded(bus) == EVENTS


def test_if_the_answer_of_one_is_lost_the_other_is_abandoned_and_all_is_recorded_once(
    bus: Bus, worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    replies, calls = PendingCalls.replies, 0

    def lose_the_second(call: PendingCalls) -> object:
        nonlocal calls
        calls += 1
        answer = replies(call)
        if calls == 2:
            raise BusUnavailable("no reply")
        return answer

    monkeypatch.setattr(PendingCalls, "replies", lose_the_second)
    with pytest.raises(BusUnavailable):
        worker.drain()
    while pending := worker._reader.own_pending():
        worker._sink.handle(worker._reader, pending)
    worker.drain()
    assert recorded(bus) == EVENTS
