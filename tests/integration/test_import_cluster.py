"""The import's reader of a cluster, with a server that answers as kube-apiserver does: other APIs, errors, bounds."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from eventbus import Event
from eventbus.errors import Expired, InvalidEvent, SinkUnreachable, UnexpectedReply
from eventbus.export.sinks.kubernetes import load_config
from eventbus.imports import cluster as module
from eventbus.imports.cluster import Change, Cluster
from tests.support.kubeconfig import TOKEN, write_kubeconfig

API = "/apis/events.k8s.io/v1"
NEW, OLD = f"{API}/events", "/api/v1/events"
GONE = {"kind": "Status", "code": 410, "message": "too old resource version"}
FORBIDDEN = {"kind": "Status", "code": 403, "message": "events is forbidden"}


def event(name: str, version: str = "7", **fields: Any) -> dict[str, Any]:
    metadata = {"name": name, "namespace": "shop", "uid": f"uid-{name}", "resourceVersion": version}
    return {"metadata": metadata, "involvedObject": {"kind": "Pod", "namespace": "shop", "name": "web-0"}, **fields}


def line(type_: str, found: Any) -> bytes:
    return json.dumps({"type": type_, "object": found}).encode() + b"\n"


class Server(ThreadingHTTPServer):
    """Answers each path with its list of (status, body): the next one for each request, the last one again."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.answers: dict[str, list[tuple[int, bytes]]] = {API: [(200, b"{}")]}
        self.requests: list[tuple[str, str, str]] = []


class _Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        path, _, query = self.path.partition("?")
        self.server.requests.append((path, query, self.headers["Authorization"]))
        answers = self.server.answers.get(path + ("?watch" if "watch=true" in query else ""), [(404, b"{}")])
        status, body = answers[0] if len(answers) == 1 else answers.pop(0)
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_args: Any) -> None:
        pass


@contextmanager
def _serving() -> Iterator[Server]:
    with Server() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture
def server() -> Iterator[Server]:
    with _serving() as server:
        yield server


@pytest.fixture
def cluster(server: Server, tmp_path: Path) -> Iterator[Cluster]:
    config = write_kubeconfig(tmp_path / "config", f"http://127.0.0.1:{server.server_address[1]}")
    cluster = Cluster(load_config(str(config), ""))
    yield cluster
    cluster.close()


def listed(*events: Any, version: str = "9", continue_: str = "") -> tuple[int, bytes]:
    return 200, json.dumps({"metadata": {"resourceVersion": version, "continue": continue_}, "items": events}).encode()


def taken(cluster: Cluster) -> list[Change]:
    watch = cluster.watch("9")
    try:
        found: list[Change] = []
        while (changes := watch.take(100, 30)) is not None:
            found += changes
        return found
    finally:
        watch.close()


def test_an_older_cluster_is_read_by_core_v1(server: Server, cluster: Cluster) -> None:
    del server.answers[API]
    server.answers[OLD] = [listed(event("a", count=3), event("b"), continue_="next"), listed(event("c"))]
    changes = line("MODIFIED", event("a", "11", count=4)) + line("DELETED", event("b", "12"))
    server.answers[OLD + "?watch"] = [(200, changes)]
    pages = list(cluster.pages())
    names = [[found.metadata.name for found in page.events if not isinstance(found, InvalidEvent)] for page in pages]
    assert (names, pages[-1].version) == ([["a", "b"], ["c"]], "9")
    changed, deleted = taken(cluster)
    assert isinstance(changed.event, Event)
    assert (changed.version, changed.event.count, changed.event.metadata.uid) == ("11", 4, "uid-a")
    assert deleted == Change("12", None)
    paths = [path for path, _, _ in server.requests]
    assert paths == [API, OLD, OLD, OLD]
    assert "continue=next" in server.requests[2][1]
    assert "resourceVersion=9" in server.requests[3][1]
    assert {token for _, _, token in server.requests} == {f"Bearer {TOKEN}"}


def test_an_event_that_cannot_be_read_leaves_the_others(server: Server, cluster: Cluster) -> None:
    server.answers[NEW] = [listed({"metadata": {"name": "a"}, "type": 5}, event("b"))]
    [page] = cluster.pages()
    assert [isinstance(found, InvalidEvent) for found in page.events] == [True, False]


def test_bookmarks_move_the_version_alone(server: Server, cluster: Cluster) -> None:
    server.answers[NEW] = [listed()]
    server.answers[NEW + "?watch"] = [(200, line("BOOKMARK", {"metadata": {"resourceVersion": "40"}}))]
    assert taken(cluster) == [Change("40", None)]


@pytest.mark.parametrize(
    "answer", [(410, json.dumps(GONE).encode()), (200, line("ERROR", GONE))], ids=["status", "line"]
)
def test_a_version_that_is_too_old_is_reported_as_expired(
    server: Server, cluster: Cluster, answer: tuple[int, bytes]
) -> None:
    server.answers |= {NEW: [listed()], NEW + "?watch": [answer]}
    with pytest.raises(Expired):
        taken(cluster)


def test_changes_before_an_error_are_taken(server: Server, cluster: Cluster) -> None:
    server.answers |= {NEW: [listed()], NEW + "?watch": [(200, line("ADDED", event("a", "10")) + line("ERROR", GONE))]}
    watch = cluster.watch("9")
    changes = watch.take(100, 30)
    while changes is not None and not changes:
        changes = watch.take(100, 30)
    assert [change.version for change in changes or ()] == ["10"]
    with pytest.raises(Expired):
        watch.take(100, 30)
    watch.close()


def test_a_refusal_names_its_reason(server: Server, cluster: Cluster) -> None:
    server.answers |= {NEW: [(403, json.dumps(FORBIDDEN).encode())]}
    with pytest.raises(SinkUnreachable, match="403 events is forbidden"):
        list(cluster.pages())


def test_answers_beyond_the_bounds_are_refused(
    server: Server, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.answers |= {NEW: [listed(event("a"))], NEW + "?watch": [(200, b'"' + b"x" * 5000)]}
    monkeypatch.setattr(module, "MAX_LINE", 1000)
    with pytest.raises(UnexpectedReply, match="more than 1000 bytes"):
        taken(cluster)
    monkeypatch.setattr(module, "MAX_PAGE", 10)
    with pytest.raises(UnexpectedReply, match="more than 10 bytes"):
        list(cluster.pages())


def test_only_an_api_worker_has_the_id_of_a_bus(server: Server, cluster: Cluster) -> None:
    assert cluster.bus_id() == ""
    server.answers["/eventbus/v1/bus"] = [(200, b'{"id": "b1", "partitions": 1}')]
    assert cluster.bus_id() == "b1"
    server.answers["/eventbus/v1/bus"] = [(200, b"<html>")]
    assert cluster.bus_id() == ""
