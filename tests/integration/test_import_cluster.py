"""The import's reader of a cluster, with a server that answers as kube-apiserver does: other APIs, errors, bounds."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from eventbus import Event
from eventbus.errors import Expired, InvalidEvent, SinkUnreachable, UnexpectedReply
from eventbus.export.sinks.kubernetes import load_config
from eventbus.imports import cluster as module
from eventbus.imports.cluster import Change, Cluster
from tests.support.kubeconfig import TOKEN, write_kubeconfig
from tests.support.webhook_server import Answer, Delivery, Endpoint, receiving

API = "/apis/events.k8s.io/v1"
NEW, OLD = f"{API}/events", "/api/v1/events"
GONE = {"kind": "Status", "code": 410, "message": "too old resource version"}
FORBIDDEN = {"kind": "Status", "code": 403, "message": "events is forbidden"}


def event(name: str, version: str = "7", **fields: Any) -> dict[str, Any]:
    metadata = {"name": name, "namespace": "shop", "uid": f"uid-{name}", "resourceVersion": version}
    return {"metadata": metadata, "involvedObject": {"kind": "Pod", "namespace": "shop", "name": "web-0"}, **fields}


def line(type_: str, found: Any) -> bytes:
    return json.dumps({"type": type_, "object": found}).encode() + b"\n"


class Server(Endpoint):
    """Answers each path with its list of (status, body): the next one for each request, the last one again."""

    def __init__(self) -> None:
        super().__init__()
        self.replies: dict[str, list[tuple[int, bytes]]] = {API: [(200, b"{}")]}
        self.port = 0

    def answer(self, delivery: Delivery) -> Answer:
        self.deliveries.append(delivery)
        path, _, query = delivery.path.partition("?")
        replies = self.replies.get(path + ("?watch" if "watch=true" in query else ""), [(404, b"{}")])
        status, body = replies[0] if len(replies) == 1 else replies.pop(0)
        return Answer(status, body=body)


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server()
    with receiving(server) as server.port:
        yield server


@pytest.fixture
def cluster(server: Server, tmp_path: Path) -> Iterator[Cluster]:
    config = write_kubeconfig(tmp_path / "config", f"http://127.0.0.1:{server.port}")
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
    del server.replies[API]
    server.replies[OLD] = [listed(event("a", count=3), event("b"), continue_="next"), listed(event("c"))]
    changes = line("MODIFIED", event("a", "11", count=4)) + line("DELETED", event("b", "12"))
    server.replies[OLD + "?watch"] = [(200, changes)]
    pages = list(cluster.pages())
    names = [[found.metadata.name for found in page.events if not isinstance(found, InvalidEvent)] for page in pages]
    assert (names, pages[-1].version) == ([["a", "b"], ["c"]], "9")
    changed, deleted = taken(cluster)
    assert isinstance(changed.event, Event)
    assert (changed.version, changed.event.count, changed.event.metadata.uid) == ("11", 4, "uid-a")
    assert deleted == Change("12", None)
    paths = [delivery.path.partition("?")[0] for delivery in server.deliveries]
    assert paths == [API, OLD, OLD, OLD]
    assert "continue=next" in server.deliveries[2].path
    assert "resourceVersion=9" in server.deliveries[3].path
    assert {delivery.headers["authorization"] for delivery in server.deliveries} == {f"Bearer {TOKEN}"}


def test_an_event_that_cannot_be_read_leaves_the_others(server: Server, cluster: Cluster) -> None:
    server.replies[NEW] = [listed({"metadata": {"name": "a"}, "type": 5}, event("b"))]
    [page] = cluster.pages()
    assert [isinstance(found, InvalidEvent) for found in page.events] == [True, False]


def test_bookmarks_move_the_version_alone(server: Server, cluster: Cluster) -> None:
    server.replies[NEW] = [listed()]
    server.replies[NEW + "?watch"] = [(200, line("BOOKMARK", {"metadata": {"resourceVersion": "40"}}))]
    assert taken(cluster) == [Change("40", None)]


@pytest.mark.parametrize(
    "answer", [(410, json.dumps(GONE).encode()), (200, line("ERROR", GONE))], ids=["status", "line"]
)
def test_a_version_that_is_too_old_is_reported_as_expired(
    server: Server, cluster: Cluster, answer: tuple[int, bytes]
) -> None:
    server.replies |= {NEW: [listed()], NEW + "?watch": [answer]}
    with pytest.raises(Expired):
        taken(cluster)


def test_changes_before_an_error_are_taken(server: Server, cluster: Cluster) -> None:
    server.replies |= {NEW: [listed()], NEW + "?watch": [(200, line("ADDED", event("a", "10")) + line("ERROR", GONE))]}
    watch = cluster.watch("9")
    changes = watch.take(100, 30)
    while changes is not None and not changes:
        changes = watch.take(100, 30)
    assert [change.version for change in changes or ()] == ["10"]
    with pytest.raises(Expired):
        watch.take(100, 30)
    watch.close()


def test_a_refusal_names_its_reason(server: Server, cluster: Cluster) -> None:
    server.replies |= {NEW: [(403, json.dumps(FORBIDDEN).encode())]}
    with pytest.raises(SinkUnreachable, match="403 events is forbidden"):
        list(cluster.pages())


def test_answers_beyond_the_bounds_are_refused(
    server: Server, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.replies |= {NEW: [listed(event("a"))], NEW + "?watch": [(200, b'"' + b"x" * 5000)]}
    monkeypatch.setattr(module, "MAX_LINE", 1000)
    with pytest.raises(UnexpectedReply, match="more than 1000 bytes"):
        taken(cluster)
    server.replies[NEW + "?watch"] = [(500, b"x" * 5000)]
    monkeypatch.setattr(module, "MAX_ANSWER", 100)
    with pytest.raises(UnexpectedReply, match="more than 100 bytes"):
        taken(cluster)
    monkeypatch.setattr(module, "MAX_PAGE", 10)
    with pytest.raises(UnexpectedReply, match="more than 10 bytes"):
        list(cluster.pages())


def test_only_an_api_worker_has_the_id_of_a_bus(server: Server, cluster: Cluster) -> None:
    assert cluster.bus_id() == ""
    server.replies["/eventbus/v1/bus"] = [(200, b'{"id": "b1", "partitions": 1}')]
    assert cluster.bus_id() == "b1"
    server.replies["/eventbus/v1/bus"] = [(200, b"<html>")]
    assert cluster.bus_id() == ""
