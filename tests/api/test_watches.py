"""Watches over HTTP: where they begin, what they tell, how they end, and what a slow reader costs the others."""

from __future__ import annotations

import http.client
import json
import socket
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from eventbus.api import connection as protocol
from eventbus.broker.bus import open_bus
from eventbus.settings import Settings
from tests.acceptance.programs import environment, run
from tests.support.api_in_process import serving
from tests.support.api_replay import EVENTS
from tests.support.api_worker import ApiWorker, api_worker
from tests.support.metrics import value
from tests.waiting import eventually

EVENTS_V1 = "/apis/events.k8s.io/v1"
LIST_AS_WATCH = "watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"


def event(name: str, **fields: Any) -> dict[str, Any]:
    about = {"kind": "Pod", "namespace": "default", "name": "web-0"}
    return {"metadata": {"name": name}, "involvedObject": about, "reason": "R", "type": "Normal"} | fields


@pytest.fixture
def worker(local_worker: ApiWorker) -> ApiWorker:
    local_worker.call("DELETE", EVENTS)
    return local_worker


def test_a_watch_from_a_lists_version_tells_what_came_after_it(worker: ApiWorker) -> None:
    worker.call("POST", EVENTS, event("a"))
    version = worker.call("GET", EVENTS).json["metadata"]["resourceVersion"]
    worker.call("POST", EVENTS, event("b"))
    with worker.watch(f"{EVENTS}?watch=1&resourceVersion={version}") as frames:
        told = next(frames)
        assert (told["type"], told["object"]["metadata"]["name"]) == ("ADDED", "b")
        worker.call("PATCH", f"{EVENTS}/a", {"count": 7}, Content_Type="application/merge-patch+json")
        worker.call("DELETE", f"{EVENTS}/a")
        told, gone = next(frames), next(frames)
    assert (told["type"], told["object"]["count"]) == ("MODIFIED", 7)
    assert (gone["type"], gone["object"]["metadata"]["name"]) == ("DELETED", "a")
    assert int(gone["object"]["metadata"]["resourceVersion"]) > int(told["object"]["metadata"]["resourceVersion"])


def test_what_enters_a_selection_is_added_and_what_leaves_it_deleted(worker: ApiWorker) -> None:
    worker.call("POST", EVENTS, event("a"))
    version = worker.call("GET", EVENTS).json["metadata"]["resourceVersion"]
    with worker.watch(f"{EVENTS}?watch=1&resourceVersion={version}&labelSelector=app%3Dweb") as frames:
        for label in ("web", None):
            patch = {"metadata": {"labels": {"app": label}}}
            worker.call("PATCH", f"{EVENTS}/a", patch, Content_Type="application/merge-patch+json")
        assert [next(frames)["type"] for _ in range(2)] == ["ADDED", "DELETED"]


@pytest.mark.parametrize(
    ("path", "selector"), [(EVENTS, "involvedObject.name"), (EVENTS.replace("/api/v1", EVENTS_V1), "regarding.name")]
)
def test_what_leaves_a_selection_by_fields_is_deleted_for_both_groups(
    worker: ApiWorker, path: str, selector: str
) -> None:
    worker.call("POST", EVENTS, event("a"))
    version = worker.call("GET", EVENTS).json["metadata"]["resourceVersion"]
    with worker.watch(f"{path}?watch=1&resourceVersion={version}&fieldSelector={selector}%3Dweb-0") as frames:
        about = {"kind": "Pod", "namespace": "default", "name": "web-1"}
        worker.call("PUT", f"{EVENTS}/a", event("a", involvedObject=about))
        worker.call("POST", EVENTS, event("b"))
        told = next(frames)
    assert (told["type"], told["object"]["metadata"]["name"]) == ("DELETED", "a")
    assert (told["object"].get("involvedObject") or told["object"]["regarding"])["name"] == "web-0"


def test_a_list_as_a_watch_ends_its_beginning_with_a_bookmark(worker: ApiWorker) -> None:
    for name in ("b", "a"):
        worker.call("POST", EVENTS, event(name))
    with worker.watch(f"{EVENTS}?{LIST_AS_WATCH}") as frames:
        first = [next(frames) for _ in range(3)]
        worker.call("POST", EVENTS, event("c"))
        after = next(frames)
    assert [frame["type"] for frame in first] == ["ADDED", "ADDED", "BOOKMARK"]
    versions = [int(frame["object"]["metadata"]["resourceVersion"]) for frame in (*first, after)]
    assert versions == sorted(versions)
    bookmark = first[2]["object"]
    assert bookmark["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
    assert (bookmark["kind"], bookmark["involvedObject"]) == ("Event", {})
    assert after["object"]["metadata"]["name"] == "c"


def test_a_watch_ends_when_its_time_is_over_with_a_last_bookmark(worker: ApiWorker) -> None:
    worker.call("POST", EVENTS, event("a"))
    with worker.watch(f"{EVENTS}?watch=1&allowWatchBookmarks=true&timeoutSeconds=1") as frames:
        told = [frame["type"] for frame in frames]
    assert told == ["ADDED", "BOOKMARK"]


@pytest.mark.parametrize(
    ("query", "code", "reason"),
    [
        ("watch=1&resourceVersion=x", 400, "BadRequest"),
        ("watch=1&resourceVersion=99999999999999999", 410, "Expired"),
        ("watch=1&fieldSelector=bogus%3D1", 400, "BadRequest"),
        ("watch=1&sendInitialEvents=true", 422, "Invalid"),
        ("watch=1&resourceVersionMatch=NotOlderThan&resourceVersion=1", 422, "Invalid"),
        ("watch=1&timeoutSeconds=soon", 400, "BadRequest"),
    ],
)
def test_a_watch_that_cannot_begin_is_refused(worker: ApiWorker, query: str, code: int, reason: str) -> None:
    answer = worker.call("GET", f"{EVENTS}?{query}")
    assert (answer.status, answer.json["reason"]) == (code, reason)


def test_a_version_that_is_gone_is_answered_with_410(worker: ApiWorker) -> None:
    with worker.watch(f"{EVENTS}?watch=1&resourceVersion=5") as frames:
        told = next(frames)
    assert (told["type"], told["object"]["code"], told["object"]["reason"]) == ("ERROR", 410, "Expired")


def test_metadata_is_watched_without_the_rest(worker: ApiWorker) -> None:
    accept = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"
    with worker.watch(f"{EVENTS}?watch=1", Accept=accept) as frames:
        worker.call("POST", EVENTS, event("a"))
        told = next(frames)["object"]
    assert (told["kind"], told["metadata"]["name"]) == ("PartialObjectMetadata", "a")
    assert "reason" not in told


def test_a_client_that_never_reads_harms_no_other(worker: ApiWorker) -> None:
    where = urlsplit(worker.url)
    with socket.create_connection((where.hostname, where.port)) as deaf:
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        deaf.sendall(f"GET {EVENTS}?watch=1 HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        with worker.watch(f"{EVENTS}?watch=1") as frames:
            for number in range(300):
                worker.call("POST", EVENTS, event(f"e{number}", message="x" * 9000))
            told = [next(frames)["object"]["metadata"]["name"] for _ in range(300)]
    assert told == [f"e{number}" for number in range(300)]


@pytest.mark.parametrize(
    ("path", "counted"),
    [
        ("/api/v1/nodes?watch=1", {"verb": "WATCH", "resource": "nodes", "scope": "cluster"}),
        ("/eventbus/v1/stream", {"verb": "GET", "resource": ""}),
        ("/api/v1/nodes", {"verb": "LIST", "resource": "nodes", "scope": "cluster"}),
    ],
    ids=["watch", "raw stream", "large list"],
)
def test_a_client_that_never_reads_is_let_go_and_counted(
    embedded_url: str, prefix: str, monkeypatch: pytest.MonkeyPatch, path: str, counted: dict[str, str]
) -> None:
    monkeypatch.setattr(protocol, "STALLED_S", 0.05)
    with serving(open_bus(embedded_url, Settings(prefix=prefix))) as url, socket.socket() as deaf:
        where = urlsplit(url)
        calling = http.client.HTTPConnection(where.netloc)

        def call(method: str, path: str, body: Any = None) -> bytes:
            calling.request(method, path, json.dumps(body), {"Content-Type": "application/json"})
            return calling.getresponse().read()

        def is_over() -> bool:
            tell()
            text = call("GET", "/metrics").decode()
            return value(text, "eventbus_apiserver_request_aborts_total", **counted) == 1

        def tell() -> None:
            if path == "/eventbus/v1/stream":
                call("POST", "/eventbus/v1/record", [event("", message="x" * 9000)] * 30)
            else:
                annotations = {"x": "x" * 200_000}
                call("POST", "/api/v1/nodes", {"metadata": {"generateName": "n", "annotations": annotations}})

        for _ in range(40 if path == "/api/v1/nodes" else 0):
            tell()
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        deaf.connect((where.hostname, where.port))
        deaf.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        deaf.recv(4096, socket.MSG_PEEK)  # it has begun
        eventually(is_over)
        calling.close()
        told = b"".join(iter(lambda: deaf.recv(65_536), b""))
    assert told.endswith(b"x")  # cut off in the middle: nothing is kept for whoever never reads it


def test_metrics_tell_what_watches_were_told_and_how_large_lists_are(worker: ApiWorker) -> None:
    of_events = {"group": "", "version": "v1", "resource": "events"}
    of_lists = of_events | {"verb": "LIST", "scope": "namespace"}
    samples = [
        ("watch_events_total", of_events),
        ("watch_events_sizes_bucket", of_events | {"le": "1024.0"}),
        ("watch_events_sizes_bucket", of_events | {"le": "2048.0"}),
        ("response_sizes_bucket", of_lists | {"le": "1000.0"}),
        ("response_sizes_bucket", of_lists | {"le": "10000.0"}),
    ]

    def values() -> list[float]:
        text = worker.call("GET", "/metrics").data.decode()
        return [value(text, f"eventbus_apiserver_{name}", **labels) for name, labels in samples]

    before = values()
    with worker.watch(f"{EVENTS}?watch=1") as frames:
        for name, message in (("a", "short"), ("b", "x" * 1500)):
            worker.call("POST", EVENTS, event(name, message=message))
            next(frames)
    assert len(worker.call("GET", EVENTS).data) > 1000
    assert [now - former for now, former in zip(values(), before, strict=True)] == [2, 1, 2, 0, 1]


def test_a_stop_ends_watches_so_that_clients_go_on_elsewhere(embedded_url: str, prefix: str, tmp_path: Path) -> None:
    with api_worker(embedded_url, prefix, tmp_path) as worker:
        with worker.watch(f"{EVENTS}?watch=1") as frames:
            worker.call("POST", EVENTS, event("a"))
            assert next(frames)["type"] == "ADDED"
            assert worker.program.stop() == 0
            assert list(frames) == []  # an end of chunks, not a cut: http.client would raise IncompleteRead
        assert "Traceback" not in worker.program.err


def test_workers_share_a_port_and_one_of_them_can_go(embedded_url: str, prefix: str, tmp_path: Path) -> None:
    with api_worker(embedded_url, prefix, tmp_path, "--reuse-port") as first:
        where = urlsplit(first.url).netloc
        with api_worker(embedded_url, prefix, tmp_path, "--reuse-port", "--listen", where) as second:
            assert second.url == first.url
            assert first.program.stop() == 0
            assert second.call("GET", EVENTS).status == 200
    with api_worker(embedded_url, prefix, tmp_path, "--listen", where) as third:
        ran = run("worker", "api", "--listen", where, env=environment(embedded_url, prefix))
        assert (ran.returncode, "another process listens there" in ran.stderr) == (2, True)
        assert third.call("GET", EVENTS).status == 200
