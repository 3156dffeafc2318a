"""An API worker behind a balancer that forwards TCP and sends PROXY headers, plain and with TLS."""

from __future__ import annotations

import logging
import re
import socket
import ssl
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from eventbus import Settings
from eventbus.api.tls import own_files
from eventbus.broker.bus import open_bus
from tests.support.api_in_process import serving
from tests.waiting import eventually

BALANCER, OTHER = "127.0.0.1", "127.0.0.2"
HEADER = b"PROXY TCP4 203.0.113.7 10.0.0.9 50000 443\r\n"


@pytest.fixture(params=["plain", "tls"])
def url(request: pytest.FixtureRequest, embedded_url: str, prefix: str, tmp_path: Path) -> Iterator[str]:
    tls = None
    if request.param == "tls":
        files = own_files(tmp_path, ["127.0.0.1"])
        tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        tls.load_cert_chain(files.certificate, files.key)
    tokens = tmp_path / "tokens.csv"
    tokens.write_text("secret,ann,1\n")
    bus = open_bus(embedded_url, Settings(prefix=prefix))
    with serving(bus, tokens=tokens, grants=["admin=user:ann"], tls=tls, proxies=[BALANCER]) as found:
        yield found


def ask(url: str, sender: str, header: bytes, method: str, path: str) -> bytes:
    """Return the response of a connection that begins with *header*; b"": it was closed."""
    where = urlsplit(url)
    assert where.hostname
    fields = (f"Host: {where.netloc}", "Authorization: Bearer secret", "Connection: close", "", "")
    head = "\r\n".join((f"{method} {path} HTTP/1.1", *fields))
    with ExitStack() as stack:
        to = (where.hostname, where.port or 0)
        connection = stack.enter_context(socket.create_connection(to, timeout=60, source_address=(sender, 0)))
        connection.sendall(header)
        try:
            if where.scheme == "https":
                context = ssl.create_default_context()
                context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
                connection = stack.enter_context(context.wrap_socket(connection))
            connection.sendall(head.encode())
            return b"".join(iter(lambda: connection.recv(65_536), b""))
        except (ConnectionError, ssl.SSLError):
            return b""


def refused(url: str) -> float:
    metrics = ask(url, OTHER, b"", "GET", "/metrics").decode()
    found = re.search(r'^eventbus_apiserver_proxy_headers_refused_total\{reason="invalid"\} (\S+)$', metrics, re.M)
    return float(found[1]) if found else 0.0


def test_the_audit_has_the_address_that_the_header_names(url: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "eventbus.audit"):
        assert b" 404 " in ask(url, BALANCER, HEADER, "DELETE", "/eventbus/v1/dead/0/1-1").partition(b"\r\n")[0]
        assert b" 404 " in ask(url, OTHER, b"", "DELETE", "/eventbus/v1/dead/0/1-2").partition(b"\r\n")[0]
        eventually(lambda: len(caplog.messages) >= 2)
    first, second = caplog.messages
    assert "user=ann from=203.0.113.7 via=127.0.0.1 DELETE /eventbus/v1/dead/0/1-1 -> 404" in first
    assert "user=ann from=127.0.0.2 DELETE /eventbus/v1/dead/0/1-2 -> 404" in second


def test_a_proxy_without_a_header_is_closed_and_counted(url: str) -> None:
    assert ask(url, BALANCER, b"", "GET", "/readyz") == b""
    eventually(lambda: refused(url) == 1)


def test_a_header_of_another_sender_is_not_read(url: str) -> None:
    answer = ask(url, OTHER, HEADER, "GET", "/readyz")
    assert b" 200 " not in answer.partition(b"\r\n")[0]
    assert refused(url) == 0
