"""Over TLS: a token or a certificate says who we are, and whom we do not trust gets neither."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from eventbus import (
    NODE,
    BusRefused,
    BusUnavailable,
    ConfigError,
    EventBroadcaster,
    ListOptions,
    ObjectReference,
    ObjectStore,
    Settings,
)
from eventbus.api.tls import Files, own_files
from eventbus.broker.bus import Bus
from eventbus.client.address import parse_api_url
from eventbus.client.connection import ApiConnection
from tests.support.api_in_process import serving


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return own_files(tmp_path / "certificates", ["127.0.0.1"])


@pytest.fixture
def ca(tmp_path: Path, files: Files) -> str:
    return str(files.certificate.parent / "ca.crt")


@pytest.fixture
def url(bus: Bus, files: Files, ca: str, tmp_path: Path) -> Iterator[str]:
    tokens = tmp_path / "tokens.csv"
    tokens.write_text("ann-token,ann,1\n")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files.certificate, files.key)
    context.load_verify_locations(ca)
    context.verify_mode = ssl.CERT_OPTIONAL
    with serving(bus, tokens=tokens, grants=["edit=user:ann", "view=group:dev"], tls=context) as found:
        yield found


def published(bus: Bus) -> int:
    with bus.client() as client:
        return int(client.hget(bus.keys[0].incoming_meta, "events") or 0)


def test_a_recorder_with_a_token_file_records_and_reads(bus: Bus, url: str, ca: str, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("ann-token\n")
    settings = Settings(ca_file=ca, token_file=str(token))
    with EventBroadcaster(url, settings=settings) as broadcaster:
        recorder = broadcaster.new_recorder("tests")
        for i in range(300):
            recorder.eventf(ObjectReference("Pod", "default", "web-0"), "Normal", "Said", "message %d", i)
        assert broadcaster.flush(60)
    assert published(bus) == 300
    with ObjectStore.open(url, settings=settings) as store:
        watch = store.objects(NODE).watch(ListOptions(timeout_s=60))
        watch.stop()
        assert list(watch) == []


def test_a_server_that_is_not_trusted_is_named_and_sent_nothing(bus: Bus, url: str) -> None:
    said = "set EVENTBUS_CA_FILE to its authority's certificate"
    with ObjectStore.open(url, settings=Settings(token="ann-token")) as store, pytest.raises(BusRefused, match=said):
        store.list()


def test_without_a_token_the_api_does_not_know_us(url: str, ca: str) -> None:
    with (
        ObjectStore.open(url, settings=Settings(ca_file=ca)) as store,
        pytest.raises(BusRefused, match="does not accept our credentials"),
    ):
        store.list()


def test_files_that_cannot_be_used_are_named(url: str, ca: str, tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.write_text("")
    for variable, settings in {
        "EVENTBUS_CA_FILE": Settings(ca_file=str(tmp_path / "none")),
        "EVENTBUS_CLIENT_CERT": Settings(ca_file=ca, client_cert=str(empty)),
        "EVENTBUS_TOKEN_FILE": Settings(ca_file=ca, token_file=str(tmp_path / "none")),
    }.items():
        with ObjectStore.open(url, settings=settings) as store, pytest.raises(ConfigError, match=variable):
            store.list()


def test_a_line_that_breaks_behind_an_answer_says_nothing_of_tls() -> None:
    def answer_once() -> None:
        line, _ = listening.accept()
        with line:
            line.recv(4096)
            line.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
            line.recv(4096)

    with socket.create_server(("127.0.0.1", 0)) as listening, ThreadPoolExecutor(1) as pool:
        served = pool.submit(answer_once)
        connection = ApiConnection(parse_api_url(f"http://127.0.0.1:{listening.getsockname()[1]}", Settings()))
        assert connection.request("GET", "/").status == 200
        with pytest.raises(BusUnavailable, match=r"Remote end closed connection without response$"):
            connection.request("GET", "/")
        served.result()


def test_a_watch_ends_with_the_end_of_its_tls(url: str, ca: str) -> None:
    where = urlsplit(url)
    trusted = ssl.create_default_context(cafile=ca)
    head = "GET /api/v1/events?watch=1&timeoutSeconds=1 HTTP/1.1\r\nHost: localhost\r\n"
    plain = socket.create_connection((where.hostname, where.port), timeout=20)
    with trusted.wrap_socket(plain, server_hostname=where.hostname, suppress_ragged_eofs=False) as made:
        made.sendall(f"{head}Authorization: Bearer ann-token\r\n\r\n".encode())
        told = b"".join(iter(lambda: made.recv(4096), b""))  # raises where the connection is just cut
    assert told.endswith(b"\r\n\r\n0\r\n\r\n")
