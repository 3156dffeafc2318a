"""Events that many connections write at once go to Redis together: each is answered as if it had come alone."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit

import pytest

from eventbus.api.thread_context import BlockingPool, ThreadContext
from eventbus.api.write_batcher import MAX_WRITES, WriteBatcher, send_calls
from eventbus.broker.bus import Bus, open_bus
from eventbus.broker.embedded.server import EmbeddedServer
from eventbus.errors import BusUnavailable
from eventbus.settings import Settings
from eventbus.store.calls import Call
from tests.support.api_in_process import serving

EVENTS = "/api/v1/namespaces/default/events"
TOO_MANY = MAX_WRITES + 16


def event(**metadata: str) -> dict[str, Any]:
    about = {"kind": "Pod", "namespace": "default", "name": "web-0"}
    return {"metadata": metadata, "involvedObject": about, "reason": "R", "type": "Normal"}


def post_at_once(url: str, bodies: list[Any]) -> list[tuple[int, Any]]:
    """Send all of them, each over a connection of its own, before any answer is read."""
    where = urlsplit(url).netloc
    with ExitStack() as opened:
        connections = [HTTPConnection(where, timeout=60) for _ in bodies]
        for connection in connections:
            opened.callback(connection.close)
            connection.connect()
        for connection, body in zip(connections, bodies, strict=True):
            connection.request("POST", EVENTS, json.dumps(body), {"Content-Type": "application/json"})
        answers = [connection.getresponse() for connection in connections]
        return [(answer.status, json.loads(answer.read())) for answer in answers]


def stored(url: str) -> list[str]:
    connection = HTTPConnection(urlsplit(url).netloc)
    connection.request("GET", EVENTS)
    items = json.loads(connection.getresponse().read())["items"]
    connection.close()
    return [item["metadata"]["name"] for item in items]


def test_each_of_many_is_answered_as_if_it_had_come_alone(bus: Bus) -> None:
    good = [event(name=f"e{number}") for number in range(TOO_MANY)]
    same, bad = (
        [event(name="same")] * 5,
        [event(), event(name="a/b"), {"kind": "Pod"}, event(name="x") | {"count": "y"}],
    )
    made = [event(generateName="g-")] * 3
    with serving(bus) as url:
        answers = post_at_once(url, [*good, *same, *bad, *made])
        assert Counter(code for code, _ in answers) == {201: TOO_MANY + 1 + 3, 409: 4, 422: 2, 400: 2}
        assert [body["metadata"]["name"] for _, body in answers[:TOO_MANY]] == [f"e{n}" for n in range(TOO_MANY)]
        versions = [int(body["metadata"]["resourceVersion"]) for code, body in answers if code == 201]
        assert len(set(versions)) == len(versions)
        names = stored(url)
    assert len(names) == len(set(names)) == TOO_MANY + 1 + 3


def test_a_generated_name_that_is_taken_is_replaced_by_another(bus: Bus, monkeypatch: pytest.MonkeyPatch) -> None:
    names = iter(["g-taken", "g-taken", "g-free"])
    monkeypatch.setattr("eventbus.store.writer.generated_name", lambda _begin: next(names))
    with serving(bus) as url:
        for expected in ("g-taken", "g-free"):
            [(code, body)] = post_at_once(url, [event(generateName="g-")])
            assert (code, body["metadata"]["name"]) == (201, expected)


def test_what_the_server_has_forgotten_is_brought_back_and_nothing_is_written_twice(tmp_path: Path) -> None:
    server = EmbeddedServer(tmp_path)
    try:
        bus = open_bus(server.start(), Settings())
        with bus.client() as client, serving(bus) as url:
            assert [code for code, _ in post_at_once(url, [event(name="first")])] == [201]
            for round_, forget in enumerate(("FUNCTION FLUSH", "FLUSHALL")):
                client.execute_command(*forget.split())
                answers = post_at_once(url, [event(name=f"r{round_}-{number}") for number in range(8)])
                assert Counter(code for code, _ in answers) == {201: 8}
            assert sorted(stored(url)) == [f"r1-{number}" for number in range(8)]
    finally:
        server.stop()


class Threadless:
    """A pool that works at once, and notes how many it was given; *broken*: it fails."""

    def __init__(self, bus: Bus) -> None:
        self.context = cast("ThreadContext", type("ThreadContext", (), {"bus": bus, "client": bus.client()}))
        self.broken = False
        self.begun: list[str] = []

    async def run(self, work: Callable[[ThreadContext], Any]) -> Any:
        await asyncio.sleep(0.01)
        if self.broken:
            raise BusUnavailable("away")
        return work(self.context)

    def echo(self, text: str) -> Callable[[ThreadContext], Call[str]]:
        def begin(_context: ThreadContext) -> Call[str]:
            self.begun.append(text)
            return Call(lambda: ("ECHO", text), bytes.decode)

        return begin


def test_writes_during_a_batch_form_the_next_one_without_those_that_were_cancelled(bus: Bus) -> None:
    async def run() -> None:
        pool = Threadless(bus)
        batcher = WriteBatcher(cast("BlockingPool", pool), send_calls)
        first = asyncio.create_task(batcher.write(pool.echo("first")))
        await asyncio.sleep(0.001)
        others = [asyncio.create_task(batcher.write(pool.echo(f"o{n}"))) for n in range(3)]
        gone = asyncio.create_task(batcher.write(pool.echo("gone")))
        await asyncio.sleep(0)
        gone.cancel()
        assert [await each for each in (first, *others)] == ["first", "o0", "o1", "o2"]
        assert "gone" not in pool.begun
        pool.context.client.close()

    asyncio.run(run())


def test_a_failure_of_the_pool_fails_each_write_and_later_writes_succeed(bus: Bus) -> None:
    async def run() -> None:
        pool = Threadless(bus)
        batcher = WriteBatcher(cast("BlockingPool", pool), send_calls)
        pool.broken = True
        failed = await asyncio.gather(*(batcher.write(pool.echo("x")) for _ in range(3)), return_exceptions=True)
        assert [type(each) for each in failed] == [BusUnavailable] * 3
        pool.broken = False
        assert await batcher.write(pool.echo("y")) == "y"
        pool.context.client.close()

    asyncio.run(run())
