"""What no client should send: a Status or a closed connection, and the worker goes on."""

from __future__ import annotations

import gzip
import json
import socket
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest

from tests.support.api_replay import EVENTS
from tests.support.api_worker import ApiWorker

pytestmark = pytest.mark.xdist_group("api bad input")
JSON = "application/json"
YAML = "application/yaml"
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
        (b'{"count":99999999999999999999999}', JSON, 400),
        (b'{"count":"many"}', JSON, 400),
        (b"null", JSON, 400),
        (b"3", JSON, 400),
        (b'{"metadata":[]}', JSON, 400),
        (b'{"metadata":{"name":"a\\u0000"}}', JSON, 400),
        (b'{"metadata":{"name":"a/b"},"involvedObject":{"namespace":"default"}}', JSON, 422),
        (b'{"metadata":{"name":".."},"involvedObject":{"namespace":"default"}}', JSON, 422),
        (b'{"firstTimestamp":"yesterday"}', JSON, 400),
        (b"[" * 100_000, YAML, 400),
        (b"- " * 100_000, YAML, 400),
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


def test_a_bomb_of_gzip_is_refused(worker: ApiWorker) -> None:
    bomb = gzip.compress(b"x" * 50_000_000)
    assert worker.call("POST", EVENTS, bomb, Content_Type=JSON, Content_Encoding="gzip").status == 413


@pytest.mark.parametrize(
    "path",
    [
        "/api/v1/namespaces/default/events/../../../nodes",
        "/api/v1/namespaces/default/events/%2e%2e",
        "/api/v1/namespaces/default/events/a%2fb",
        "/api/v1/namespaces/default/events/a%00b",
        "/api/v1/namespaces/default/events/a%0d%0aX:1",
        "/api/v1/namespaces/default/events/%ff",
        "/api/v1//nodes",
        "//api/v1/nodes",
        "/api/v1/namespaces/default/nodes",
        "/api/v1/events/a",
        "/api/v2/events",
        "/apis/nowhere.io/v1/events",
        "/api/v1/namespaces/default/events/a/status",
        "/api/v1/namespaces/default/events/a/b/c",
        "/api/v1/" + "a" * 20_000,
        "/api/v1/events?limit=x",
        "/api/v1/events?limit=-1",
        "/api/v1/events?limit=" + "9" * 5000,
        "/api/v1/events?continue=nonsense",
        "/api/v1/events?labelSelector=" + "a%3Db," * 500 + "%28",
        "/api/v1/events?resourceVersion=" + "9" * 400,
        "/api/v1/events?includeObject=Everything",
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
    where = urlsplit(worker.url)
    with socket.create_connection((where.hostname, where.port), timeout=30) as connection:
        connection.sendall(sent)
        connection.shutdown(socket.SHUT_WR)
        answer = b""
        while data := connection.recv(65_536):
            answer += data
    assert answer == b"" or answer.startswith((b"HTTP/1.1 4", b"HTTP/1.0 4")), answer[:80]
    assert b"Traceback" not in answer


def test_a_body_that_is_cut_off_stores_nothing(worker: ApiWorker) -> None:
    where = urlsplit(worker.url)
    body = json.dumps({"metadata": {"name": "cut"}, "involvedObject": {"namespace": "default"}}).encode()
    head = f"POST {EVENTS} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body) + 5}\r\n\r\n".encode()
    with socket.create_connection((where.hostname, where.port)) as connection:
        connection.sendall(head + body)
    assert worker.call("GET", f"{EVENTS}/cut").status == 404


def test_a_double_field_is_refused_where_that_is_asked(worker: ApiWorker) -> None:
    body = b'{"metadata":{"name":"d"},"involvedObject":{"namespace":"default"},"reason":"a","reason":"b"}'
    answer = worker.call("POST", f"{EVENTS}?fieldValidation=Strict", body, Content_Type=JSON)
    assert (answer.status, 'duplicate field "reason"' in answer.json["message"]) == (400, True)
    warned = worker.call("POST", f"{EVENTS}?fieldValidation=Warn", body, Content_Type=JSON)
    assert (warned.status, warned.headers["Warning"]) == (201, '299 - "duplicate field \\"reason\\""')
    assert worker.call("DELETE", f"{EVENTS}/d").status == 200
