"""A program that has only EVENTBUS_URL: its recorder's events come through an API worker, each once."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from eventbus import ConfigError, Event, EventBroadcaster, ObjectReference, Settings
from eventbus.broker.bus import Bus, open_bus
from eventbus.settings import FullBuffer
from tests.support.api_in_process import serving
from tests.support.harness import incoming_of
from tests.support.ports import free_port
from tests.thin import one
from tests.waiting import eventually


@pytest.fixture(params=one([3, 1]))
def bus(embedded_url: str, prefix: str, request: pytest.FixtureRequest) -> Bus:
    return open_bus(embedded_url, Settings(prefix=prefix, partitions=request.param, worker_block_ms=100))


@pytest.fixture
def url(bus: Bus) -> Iterator[str]:
    with serving(bus) as found:
        yield found


def say(broadcaster: EventBroadcaster, n: int, *, namespace: str = "default") -> None:
    recorder = broadcaster.new_recorder("tests", host="h")
    for i in range(n):
        pod = ObjectReference("Pod", namespace, f"web-{i % 7}", f"uid-{i % 7}", "v1")
        recorder.eventf(pod, "Normal", "Said", "message %d", i)


def test_the_setting_url_goes_before_that_of_redis(bus: Bus, url: str) -> None:
    settings = Settings(url=url, redis_url="redis://127.0.0.1:1/0")
    with EventBroadcaster(settings=settings) as broadcaster:
        say(broadcaster, 3)
        assert broadcaster.flush(60)
    assert len(incoming_of(bus)) == 3


def test_events_wait_for_an_api_that_is_away_and_come_when_it_is_there(bus: Bus) -> None:
    port = free_port()
    with EventBroadcaster(f"http://127.0.0.1:{port}") as broadcaster:
        say(broadcaster, 20)
        assert not broadcaster.flush(0.2)
        with serving(bus, port=port):
            assert broadcaster.flush(60)
    assert len(incoming_of(bus)) == 20


def test_a_recorder_goes_on_with_another_api_worker_without_doubles(bus: Bus) -> None:
    port = free_port()
    with serving(bus, port=port) as url, EventBroadcaster(url) as broadcaster:
        say(broadcaster, 100)
        assert broadcaster.flush(60)
    with EventBroadcaster(url) as broadcaster:
        with serving(bus, port=port):
            say(broadcaster, 100)
            assert broadcaster.flush(60)
        with serving(bus, port=port):
            say(broadcaster, 100)
            assert broadcaster.flush(60)
    assert len(incoming_of(bus)) == 300
    assert len({event.metadata.uid for event in incoming_of(bus)}) == 300


def test_what_redis_lost_of_what_it_acknowledged_is_sent_again(embedded_url: str, prefix: str) -> None:
    bus = open_bus(embedded_url, Settings(prefix=prefix))
    with serving(bus) as url, EventBroadcaster(url) as broadcaster:
        say(broadcaster, 50)
        assert broadcaster.flush(60)
        with bus.client() as client:  # as a fail-over to a replica that is behind
            client.delete(bus.keys[0].incoming, bus.keys[0].incoming_meta, *client.keys(bus.keys[0].producer + b"*"))
            bus.open_partition(client, 0)
        say(broadcaster, 1)
        assert broadcaster.flush(60)
    assert len(incoming_of(bus)) == 51


@pytest.fixture
def tokens(tmp_path: Path) -> Path:
    path = tmp_path / "tokens.csv"
    path.write_text("ann-token,ann,1\nbob-token,bob,2\n")
    return path


def test_events_of_a_namespace_one_may_not_write_are_refused_and_counted_and_the_rest_comes(
    bus: Bus, tokens: Path
) -> None:
    settings = Settings(token="ann-token")
    with (
        serving(bus, tokens=tokens, grants=["record=user:ann@shop"]) as url,
        EventBroadcaster(url, settings=settings) as broadcaster,
    ):
        for i in range(6):
            say(broadcaster, 10, namespace="shop" if i % 2 else "bank")
        assert broadcaster.flush(60)
    events = incoming_of(bus)
    assert Counter(event.metadata.namespace for event in events) == {"shop": 30}
    assert len({event.metadata.uid for event in events}) == 30
    assert broadcaster.losses.counts == {"refused": 30}


def test_a_token_that_nobody_knows_is_said_to_be_wrong(
    bus: Bus, tokens: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with serving(bus, tokens=tokens, grants=["record=user:ann"]) as url:
        broadcaster = EventBroadcaster(url, settings=Settings(token="wrong", flush_s=0.3))
        say(broadcaster, 1)
        eventually(lambda: "EVENTBUS_TOKEN_FILE" in caplog.text)
        broadcaster.shutdown()
    assert broadcaster.losses.counts == {"unsent": 1}


def test_a_token_does_not_travel_in_the_clear() -> None:
    with pytest.raises(ConfigError, match=r"a token must not travel in the clear: use https://bus\.example"):
        EventBroadcaster("http://bus.example", settings=Settings(token="t", flush_s=0.3))


# -- watchers -----------------------------------------------------------------------------------------------------


def test_a_watcher_goes_on_behind_the_last_event_when_the_api_worker_was_away(bus: Bus) -> None:
    seen: list[str] = []
    several = threading.Event()

    def see(event: Event) -> None:
        seen.append(event.metadata.uid)
        several.set()

    port = free_port()
    with serving(bus, port=port) as url:
        reader = EventBroadcaster(url)
        assert repr(reader.start_event_watcher(see)) == "<RemoteWatcher: running, 0 missed, 0 skipped>"
        with EventBroadcaster(url) as broadcaster:
            say(broadcaster, 30)
        assert several.wait(60)
    with EventBroadcaster(bus.url, settings=Settings(prefix=bus.prefix)) as broadcaster:
        say(broadcaster, 30)
    with serving(bus, port=port):
        eventually(lambda: len(seen) >= 60)
        reader.shutdown()
    assert Counter(seen) == Counter(event.metadata.uid for event in incoming_of(bus))


def test_groups_and_sinks_say_that_they_need_redis() -> None:
    broadcaster = EventBroadcaster("http://127.0.0.1:1", settings=Settings(buffer_full=FullBuffer.DROP))
    with pytest.raises(ConfigError, match="a watcher of a group needs Redis"):
        broadcaster.start_event_watcher(print, group="billing")
    with pytest.raises(ConfigError, match="a sink inside a program needs Redis"):
        broadcaster.start_recording_to_sink()
    broadcaster.shutdown()
