"""What holds up an API worker: its loop, and its threads that wait for Redis."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Sequence
from typing import Any
from urllib.request import Request, urlopen

import pytest

from eventbus.api import server as server_module
from eventbus.api.auth.access import Access
from eventbus.api.auth.authentication import Authenticator
from eventbus.api.listeners import Address, Listener
from eventbus.api.server import ApiOptions, ApiServer
from eventbus.api.thread_context import THREADS
from eventbus.broker.bus import Bus
from eventbus.broker.redis_transport import RedisTransport
from tests.support.api_in_process import serving
from tests.waiting import eventually


def test_recorders_that_wait_for_redis_leave_threads_to_readers(bus: Bus, monkeypatch: pytest.MonkeyPatch) -> None:
    redis_answers, publish = threading.Event(), RedisTransport.publish

    def slow(self: RedisTransport, requests: Sequence[Any]) -> Any:
        assert redis_answers.wait(120)
        return publish(self, requests)

    monkeypatch.setattr(RedisTransport, "publish", slow)
    replies: list[int] = []
    with serving(bus) as url:

        def get(path: str) -> bytes:
            with urlopen(url + path, timeout=20) as reply:
                return bytes(reply.read())

        def record() -> None:
            body = json.dumps({"involvedObject": "Backup/nightly", "reason": "Done"}).encode()
            request = Request(f"{url}/eventbus/v1/record", body, {"Content-Type": "application/json"})
            with urlopen(request, timeout=120) as reply:
                replies.append(json.load(reply)["accepted"])

        recorders = [threading.Thread(target=record) for _ in range(2 * THREADS)]
        try:
            for recorder in recorders:
                recorder.start()
            waiting = f'current_inflight_requests{{request_kind="mutating"}} {len(recorders)}.0\n'.encode()
            eventually(lambda: waiting in get("/metrics"))
            assert json.loads(get("/api/v1/events"))["items"] == []
            assert get("/readyz") == b"ok"
        finally:
            redis_answers.set()
            for recorder in recorders:
                recorder.join()
    assert replies == [1] * len(recorders)


def test_a_loop_that_hangs_is_not_alive(bus: Bus, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "ROUND_S", 0.001)
    listener = Listener(Address("127.0.0.1", 0), tls=None, reuse_port=False)
    options = ApiOptions(access=Access(), authenticator=Authenticator(tokens=None))
    server = ApiServer(bus=bus, options=options, listeners=[listener])
    hangs, goes_on, since = threading.Event(), threading.Event(), []

    def progress() -> float:
        return server.loop_health()[0].last_progress

    def hang() -> None:
        since.append(time.monotonic())
        hangs.set()
        assert goes_on.wait(60)

    try:
        server.start()
        begun = progress()
        eventually(lambda: progress() > begun)
        loop = server._loop
        assert loop is not None
        loop.call_soon_threadsafe(hang)
        assert hangs.wait(60)
        assert progress() <= since[0]
        goes_on.set()
        eventually(lambda: progress() > since[0])
    finally:
        goes_on.set()
        server.stop(30)
        listener.close()
