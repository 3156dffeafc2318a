"""What no client should send: a Status or a closed connection, and the worker goes on."""

from __future__ import annotations

import gzip
import json
import re
import select
import socket
from collections.abc import Iterator
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.support.api_replay import EVENTS
from tests.support.api_worker import ApiWorker

JSON = "application/json"
YAML = "application/yaml"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
PROTOBUF = "application/vnd.kubernetes.protobuf"


@pytest.fixture
def worker(local_worker: ApiWorker) -> Iterator[ApiWorker]:
    yield local_worker
    assert local_worker.call("GET", "/readyz").status == 200
    assert "Traceback" not in local_worker.program.err


@pytest.mark.parametrize(
    ("body", "media_type", "code"),
    [
        (b"", JSON, 400),
        (b"[" * 100_000, JSON, 400),
        (b'{"metadata":' * 50_000, JSON, 400),
        (b'{"a":"\xff"}', JSON, 400),
        (b'{"message":"\\ud800"}', JSON, 400),
        (b'{"count":1e999}', JSON, 400),
        (b'{"count":"many"}', JSON, 400),
        (b"null", JSON, 422),  # an object without a name
        (b'{"metadata":{"name":"a\\u0000"}}', JSON, 400),
        (b'{"metadata":{"name":"a/b"},"involvedObject":{"namespace":"default"}}', JSON, 422),
        (b'{"metadata":{"name":"a\\r\\nX-Header: 1"},"involvedObject":{"namespace":"default"}}', JSON, 422),
        (b'{"count":' + b"9" * 100_000 + b"}", JSON, 400),
        (b'{"firstTimestamp":"yesterday"}', JSON, 400),
        (b"[" * 100_000, YAML, 400),
        (b"a: &a [x]\nb: *a\n", YAML, 400),
        (b"!!python/object/apply:os.getcwd []", YAML, 400),
        (b"x: y\n" * 100_000, YAML, 413),
        (b"", PROTOBUF, 400),
        (b"k8s\x00" + b"\xff" * 40, PROTOBUF, 400),
        (b"k8s\x00\x0a\x08\x0a\x02v1\x12\x02Po", PROTOBUF, 415),
        (b"x" * (3 * 1024 * 1024 + 1), JSON, 413),
        (b"{}", "text/plain", 415),
        (b"{}", "application/json; charset=utf-8", 422),
    ],
)
def test_a_body_that_cannot_be_used_is_refused(worker: ApiWorker, body: bytes, media_type: str, code: int) -> None:
    answer = worker.call("POST", EVENTS, body, Content_Type=media_type)
    assert (answer.status, answer.json["kind"]) == (code, "Status")


@pytest.mark.parametrize("path", ["record", "producers", "cloudevents", "verdicts", "session"])
@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"null",
        b'{"token":"\xff","producers":[[0,"\xff"]],"objects":[{"kind":"\xff"}]}',
        b'{"x":' + b"[" * 100_000,
        b'{"x":' + b'{"x":' * 100_000,
        b'{"token":"\\ud800","producers":[[0,"\\ud800"]],"objects":[{"kind":"\\ud800"}]}',
        b'{"producers":' + b"9" * 100_000 + b"}",
    ],
    ids=["nothing", "null", "no text", "lists", "objects", "surrogate", "number"],
)
def test_a_body_that_our_own_paths_cannot_use_is_refused(worker: ApiWorker, path: str, body: bytes) -> None:
    media_type = "application/cloudevents+json" if path == "cloudevents" else JSON
    answer = worker.call("POST", f"/eventbus/v1/{path}", body, Content_Type=media_type)
    assert answer.status in (400, 413, 422), answer.data


def test_a_bomb_of_gzip_is_refused(worker: ApiWorker) -> None:
    bomb = gzip.compress(b"x" * 50_000_000)
    assert worker.call("POST", EVENTS, bomb, Content_Type=JSON, Content_Encoding="gzip").status == 413


@pytest.mark.parametrize(
    ("token", "said"),
    [
        ("abc", "invalid character 'i' looking for beginning of value"),
        ("nonsense", r"invalid character '\u009e' looking for beginning of value"),
        ("e30", 'server does not recognize this encoded version ""'),
        ("bogus", "illegal base64 data at input byte 4"),
        ("a.b", "illegal base64 data at input byte 1"),
    ],
)
def test_a_token_that_is_none_is_refused_as_by_go(worker: ApiWorker, token: str, said: str) -> None:
    answer = worker.call("GET", f"{EVENTS}?continue={token}")
    told = f"invalid continue token: continue key is not valid: {said}"
    assert (answer.status, answer.json["message"]) == (400, told)


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("resourceVersion=" + "1" * 30, "value out of range"),
        ("watch=1&resourceVersion=" + "1" * 30, "value out of range"),
        ("resourceVersion=" + "1" * 20_000, "value out of range"),
        ("timeoutSeconds=soon", 'strconv.ParseInt: parsing "soon": invalid syntax'),
    ],
    ids=["of a list", "of a watch", "very long", "time"],
)
def test_a_number_that_cannot_be_is_refused(worker: ApiWorker, query: str, said: str) -> None:
    answer = worker.call("GET", f"{EVENTS}?{query}")
    assert (answer.status, answer.json["reason"]) == (400, "BadRequest")
    assert answer.json["message"].endswith(said)


def test_an_expectation_that_nobody_knows_is_refused_with_a_status(worker: ApiWorker) -> None:
    answer = worker.call("GET", EVENTS, Expect="tea")
    assert (answer.status, answer.json["kind"], answer.headers["Connection"]) == (417, "Status", "close")


@pytest.mark.parametrize(
    "path",
    [
        "/api/v1/namespaces/default/events/../../../nodes",
        "/api/v1/namespaces/default/events/%2e%2e",
        "/api/v1/namespaces/default/events/a%2fb",
        "/api/v1/namespaces/default/events/a%00b",
        "/api/v1/namespaces/default/events/a%0d%0aX:1",
        "/api/v1/namespaces/default/events/%ff",
        "//api/v1/nodes",
        "/api/v1/namespaces/default/nodes",
        "/apis/nowhere.io/v1/events",
        "/api/v1/namespaces/default/events/a/status",
        "/api/v1/" + "a" * 20_000,
        "/api/v1/events?limit=x",
        "/api/v1/events?continue=nonsense",
        "/api/v1/events?labelSelector=" + "a%3Db," * 500 + "%28",
        "/api/v1/events?resourceVersion=" + "9" * 400,
    ],
)
def test_a_path_or_query_that_means_nothing_is_refused(worker: ApiWorker, path: str) -> None:
    answer = worker.call("GET", path)
    assert 400 <= answer.status < 500 or answer.json["reason"] == "Timeout"
    assert answer.json["kind"] == "Status"


@pytest.mark.parametrize(
    "sent",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"GET\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: -5\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"a" * 100_000 + b"\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
    ],
)
def test_what_is_no_request_closes_its_connection(worker: ApiWorker, sent: bytes) -> None:
    answer = answer_to(worker, sent)
    assert answer == b"" or answer.startswith((b"HTTP/1.1 4", b"HTTP/1.0 4")), answer[:80]
    assert b"Traceback" not in answer


def answer_to(worker: ApiWorker, sent: bytes) -> bytes:
    """All that comes until the worker closes."""
    where, answer = urlsplit(worker.url), b""
    with socket.create_connection((where.hostname, where.port)) as connection, suppress(ConnectionError):
        connection.sendall(sent)
        while data := connection.recv(65_536):
            answer += data
    return answer


@pytest.mark.parametrize(
    ("line", "head", "code"),
    [
        ("GET / HTTP/1.1", b"Host: \xff\xfe", b"403"),
        ("GET / HTTP/1.1", b"Host: localhost@evil", b"403"),
        (f"GET http://evil{EVENTS} HTTP/1.1", b"Host: localhost", b"403"),
        (f"GET {EVENTS} HTTP/1.1", b"Host: localhost\r\nOrigin: http://[::1", b"403"),
        (f"POST {EVENTS} HTTP/1.1", b"Host: localhost\r\nContent-Encoding: gzip\r\nContent-Length: 2", b"400"),
        (f"POST {EVENTS} HTTP/1.1", b"Host: localhost\r\nContent-Length: 2\r\nContent-Length: 2", b"400"),
        (f"POST {EVENTS} HTTP/1.1", b"Host: localhost\r\nContent-Length: +2", b"400"),
        (f"POST {EVENTS} HTTP/1.1", b"Host: localhost\r\nTransfer-Encoding: xchunked", b"400"),
        (f"GET {EVENTS} HTTP/1.1", b"Host: localhost\r\n" + b"\r\n".join(b"X-%d: y" % i for i in range(10_000)), b"4"),
        (f"GET {EVENTS} HTTP/1.1", b"Host: localhost\r\nX: a\r\n b", b"400"),
        (f"GET {EVENTS} HTTP/1.1", b"Host: localhost\r\nX: a\0b", b"400"),
        ("CONNECT evil:443 HTTP/1.1", b"Host: localhost", b"403"),
        (f"GET {EVENTS} HTTP/1.0", b"Accept: */*", b"200"),
        (f"GET {EVENTS}?watch=1&timeoutSeconds=1 HTTP/1.0", b"Accept: */*", b"200"),
        (
            "POST /eventbus/v1/cloudevents HTTP/1.1",
            b"Host: localhost\r\nContent-Length: 2\r\nce-specversion: 1.0\r\nce-id: \xff\r\nce-type: t\r\nce-source: %",
            b"200",
        ),
    ],
)
def test_a_strange_head_is_no_fault_of_ours(worker: ApiWorker, line: str, head: bytes, code: bytes) -> None:
    body = b"{}" if line.startswith("POST") else b""
    answer = answer_to(worker, line.encode() + b"\r\n" + head + b"\r\nConnection: close\r\n\r\n" + body)
    assert answer[9:].startswith(code), answer[:80]


def test_a_refused_body_is_not_read_as_the_next_request(worker: ApiWorker) -> None:
    inside = b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n"
    head = f"POST /api/v1/nowhere HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(inside) + 9}\r\n\r\n".encode()
    assert answer_to(worker, head + inside).count(b"HTTP/1.") == 1


def test_requests_in_a_row_are_answered_in_order(worker: ApiWorker) -> None:
    row = b"".join(f"GET {EVENTS}/none{number} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode() for number in range(50))
    answer = answer_to(worker, row + b"GET /livez HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
    assert [int(found) for found in re.findall(rb'"events \\"none(\d+)\\" not found"', answer)] == list(range(50))


def test_a_body_that_is_cut_off_stores_nothing(worker: ApiWorker) -> None:
    where = urlsplit(worker.url)
    body = json.dumps({"metadata": {"name": "cut"}, "involvedObject": {"namespace": "default"}}).encode()
    head = f"POST {EVENTS} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body) + 5}\r\n\r\n".encode()
    with socket.create_connection((where.hostname, where.port)) as connection:
        connection.sendall(head + body)
    assert worker.call("GET", f"{EVENTS}/cut").status == 404


def test_a_patch_with_a_field_that_nobody_knows_is_invalid_where_that_is_asked(worker: ApiWorker) -> None:
    about = {"metadata": {"name": "p"}, "involvedObject": {"namespace": "default"}}
    assert worker.call("POST", EVENTS, about).status == 201
    for kind in ("merge-patch", "strategic-merge-patch"):
        media_type = f"application/{kind}+json"
        path = f"{EVENTS}/p?fieldValidation=Strict"
        answer = worker.call("PATCH", path, {"bogus": 1}, Content_Type=media_type)
        assert (answer.status, answer.json["details"]["causes"][0]["field"]) == (422, "patch")
        assert answer.json["message"].endswith('strict decoding error: unknown field "bogus"')
    assert worker.call("DELETE", f"{EVENTS}/p").status == 200


@pytest.mark.parametrize(
    ("media_type", "patch"),
    [
        ("json-patch", [{"op": "copy", "from": "", "path": f"/{number}"} for number in range(24)]),
        ("json-patch", [{"op": "test", "path": "/reason", "value": ""}] * 10_001),
        ("merge-patch", {"message": "x" * 600_000}),
    ],
    ids=["copies", "steps", "merge patch"],
)
def test_a_patch_that_is_large_or_makes_something_large_is_refused(
    worker: ApiWorker, media_type: str, patch: Any
) -> None:
    about = {"metadata": {"name": "bomb"}, "involvedObject": {"namespace": "default"}}
    assert worker.call("POST", EVENTS, about).status == 201
    answer = worker.call("PATCH", f"{EVENTS}/bomb", patch, Content_Type=f"application/{media_type}+json")
    assert (answer.status, answer.json["reason"]) == (413, "RequestEntityTooLarge")
    assert worker.call("DELETE", f"{EVENTS}/bomb").status == 200


def test_a_body_without_an_end_is_answered_and_cut_off(worker: ApiWorker) -> None:
    where, answer = urlsplit(worker.url), b""
    head = f"POST {EVENTS} HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n".encode()
    chunk = b"10000\r\n" + b"x" * 65_536 + b"\r\n"
    with socket.create_connection((where.hostname, where.port), timeout=30) as connection:
        connection.sendall(head)
        with suppress(ConnectionError):
            while True:
                connection.sendall(chunk)
                if select.select([connection], [], [], 0.005)[0]:
                    answer += connection.recv(65_536)
    assert answer.startswith(b"HTTP/1.1 413")


def test_who_sends_a_head_byte_by_byte_harms_no_other(worker: ApiWorker) -> None:
    where = urlsplit(worker.url)
    slow = [socket.create_connection((where.hostname, where.port)) for _ in range(300)]
    try:
        for connection in slow:
            connection.sendall(b"GET /api/v1/events HTTP/1.1\r\nHos")
        assert worker.call("GET", "/api/v1/events").status == 200
        for connection in slow:
            connection.sendall(b"t")
        assert worker.call("GET", "/api/v1/events").status == 200
    finally:
        for connection in slow:
            connection.close()


@pytest.mark.parametrize(
    ("metadata", "said"),
    [
        ({"name": "b"}, "the name of the object (b) does not match the name on the URL (a)"),
        (
            {"generateName": "a-"},
            "the name of the object (a based on URL) was undeterminable: name must be provided",
        ),
    ],
)
@pytest.mark.parametrize("there", [False, True])
def test_what_is_applied_is_what_the_path_names(
    worker: ApiWorker, metadata: dict[str, str], said: str, there: bool
) -> None:
    body = {"apiVersion": "v1", "kind": "Event", "involvedObject": {"namespace": "default", "name": "p", "kind": "Pod"}}
    apply = {"Content_Type": "application/apply-patch+yaml"}
    if there:
        made = worker.call("PATCH", f"{EVENTS}/a?fieldManager=t", body | {"metadata": {"name": "a"}}, **apply)
        assert made.status == 201
    answer = worker.call("PATCH", f"{EVENTS}/a?fieldManager=t", body | {"metadata": metadata}, **apply)
    if metadata.get("name") or not there:
        assert (answer.status, answer.json["message"]) == (400, said)
    assert worker.call("GET", f"{EVENTS}/b").status == 404
    names = [item["metadata"]["name"] for item in worker.call("GET", EVENTS).json["items"]]
    assert [name for name in names if name.startswith("a")] == ["a"] * there
    worker.call("DELETE", f"{EVENTS}/a")


@pytest.mark.parametrize(
    ("method", "path", "body", "code", "field"),
    [
        ("GET", f"{EVENTS}?continue=garbage", None, 400, ""),
        ("DELETE", f"{EVENTS}/kept", {"propagationPolicy": "Bogus"}, 422, "propagationPolicy"),
        ("DELETE", f"{EVENTS}/kept?propagationPolicy=Bogus", None, 422, "propagationPolicy"),
        (
            "DELETE",
            f"{EVENTS}/kept",
            {"propagationPolicy": "Orphan", "orphanDependents": True},
            422,
            "propagationPolicy",
        ),
        ("DELETE", f"{EVENTS}/kept", {"preconditions": {"resourceVersion": "1"}}, 409, ""),
        ("DELETE", f"{EVENTS}/kept", {"dryRun": ["Some"]}, 422, "dryRun"),
        ("PATCH", f"{EVENTS}/kept?force=true", {}, 422, "force"),
        ("PATCH", f"{EVENTS}/kept?fieldManager={'m' * 129}", {}, 422, "fieldManager"),
        (
            "POST",
            LEASES,
            {"metadata": {"name": "l"}, "spec": {"leaseDurationSeconds": 0}},
            422,
            "spec.leaseDurationSeconds",
        ),
        ("POST", LEASES, {"metadata": {"name": "l"}, "spec": {"leaseTransitions": -1}}, 422, "spec.leaseTransitions"),
    ],
)
def test_options_and_leases_are_checked_as_the_api_server_does(
    worker: ApiWorker, method: str, path: str, body: Any, code: int, field: str
) -> None:
    kept = {"metadata": {"name": "kept"}, "involvedObject": {"kind": "Pod", "name": "p", "namespace": "default"}}
    worker.call("PUT", f"{EVENTS}/kept", kept, Content_Type=JSON)
    media_type = "application/merge-patch+json" if method == "PATCH" else JSON
    answer = worker.call(method, path, body, Content_Type=media_type)
    assert answer.status == code, answer.data
    assert [cause["field"] for cause in answer.json.get("details", {}).get("causes", ())] == ([field] if field else [])
    assert worker.call("GET", f"{EVENTS}/kept").status == 200


@pytest.mark.parametrize("path", [EVENTS, f"{EVENTS}/nothing"])
def test_a_version_that_is_none_is_refused(worker: ApiWorker, path: str) -> None:
    answer = worker.call("GET", f"{path}?resourceVersion=x")
    assert answer.status == 400
    assert answer.json["message"].startswith('invalid resource version: resourceVersion: Invalid value: "x"')
    assert worker.call("GET", f"{EVENTS}/nothing?resourceVersion=1").status == 404
