"""Crowds before an API worker: ten thousand connections, and those that never finish a request."""

from __future__ import annotations

import resource
import selectors
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.support.api_replay import EVENTS
from tests.support.api_worker import ApiWorker, api_worker
from tests.waiting import eventually

pytestmark = pytest.mark.volume
CONNECTIONS = 10_000


@contextmanager
def connected(worker: ApiWorker, count: int) -> Iterator[list[socket.socket]]:
    """So many connections, or what the system lets one process have of them."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    where = urlsplit(worker.url)
    found: list[socket.socket] = []
    try:
        for _ in range(min(count, hard - 1_000)):
            found.append(socket.create_connection((where.hostname, where.port), timeout=60))
        yield found
    finally:
        for one in found:
            one.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def files_of(worker: ApiWorker) -> int:
    return len(list(Path(f"/proc/{worker.program.pid}/fd").iterdir()))


def test_ten_thousand_connections_harm_nobody_and_leave_nothing(embedded_url: str, prefix: str, tmp_path: Path) -> None:
    with api_worker(embedded_url, prefix, tmp_path) as worker:
        before = files_of(worker)
        with connected(worker, CONNECTIONS) as crowd:
            assert len(crowd) == CONNECTIONS
            crowd[-1].sendall(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert crowd[-1].recv(65_536).startswith(b"HTTP/1.1 200")
            body = {"metadata": {"name": "a"}, "involvedObject": {"namespace": "default"}}
            assert worker.call("POST", EVENTS, body).status == 201
            assert worker.call("GET", EVENTS).status == 200
        eventually(lambda: files_of(worker) < before + 50)
        assert "Traceback" not in worker.program.err


def test_who_never_ends_the_head_of_a_request_is_closed(embedded_url: str, prefix: str, tmp_path: Path) -> None:
    with api_worker(embedded_url, prefix, tmp_path) as worker, connected(worker, 200) as slow:
        waiting = selectors.DefaultSelector()
        with waiting:
            for one in slow:
                one.sendall(b"GET /api/v1/events HTTP/1.1\r\nHos")
                waiting.register(one, selectors.EVENT_READ)

            def all_closed() -> bool:
                for key, _ in waiting.select(0):
                    assert isinstance(key.fileobj, socket.socket)
                    if not key.fileobj.recv(65_536):
                        waiting.unregister(key.fileobj)
                return not waiting.get_map()

            eventually(all_closed, within_s=120)
        assert worker.call("GET", "/readyz").status == 200
