"""Who gets in to the page, and how: its files are open, its data is not; a token once, then a cookie."""

from __future__ import annotations

import http.client
import json
import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from http.cookies import SimpleCookie
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from eventbus.api.page import session
from eventbus.api.tls import ServerTls, own_files
from eventbus.broker.bus import Bus, open_bus
from eventbus.settings import Settings
from tests.support.api_in_process import serving

SESSION = "/eventbus/v1/session"
SAME = {"Sec-Fetch-Site": "same-origin"}


@pytest.fixture(scope="module")
def bus(embedded_url: str) -> Bus:
    return open_bus(embedded_url, Settings(prefix="page-door"))


@pytest.fixture(scope="module")
def url(bus: Bus, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    tokens = tmp_path_factory.mktemp("tokens") / "tokens.csv"
    tokens.write_text('admin-token,ann,1,"system:masters"\nview-token,vic,2\nshop-token,sam,3\n')
    with serving(bus, tokens=tokens, grants=["view=user:vic", "view=user:sam@shop"]) as url:
        yield url


def ask(
    url: str, method: str, path: str, body: Any = None, **headers: str
) -> tuple[int, http.client.HTTPMessage, bytes]:
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=30)
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    try:
        connection.request(method, path, None if body is None else json.dumps(body), named)
        answer = connection.getresponse()
        return answer.status, answer.headers, answer.read()
    finally:
        connection.close()


def signed_in(url: str, token: str) -> tuple[str, str, dict[str, Any]]:
    """The Cookie header to send, that which was set, and the answer."""
    status, headers, body = ask(
        url,
        "POST",
        SESSION,
        {"token": token},
        Content_Type="application/json",
        Origin=url,
        Sec_Fetch_Site="same-origin",
    )
    assert status == 200, body
    given = headers["Set-Cookie"]
    (name,) = (cookie := SimpleCookie(given))
    return f"{name}={cookie[name].value}", given, json.loads(body)


def test_the_page_is_served_to_all_under_a_strict_policy_and_a_link_to_it_may_stand_anywhere(url: str) -> None:
    status, headers, body = ask(url, "GET", "/page/", Sec_Fetch_Site="cross-site", Sec_Fetch_Mode="navigate")
    assert status == 200
    assert headers["Content-Type"] == "text/html; charset=utf-8"
    policy = headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert b"<script>" not in body
    assert b"style=" not in body
    assert ask(url, "GET", "/page/", If_None_Match=headers["ETag"])[0] == 304
    assert ask(url, "GET", "/", Accept="text/html")[1]["Location"] == "/page/"
    assert ask(url, "GET", "/", Accept="application/json")[0] == 404
    packed = ask(url, "GET", "/page/main.js", Accept_Encoding="gzip")
    assert packed[1]["Content-Encoding"] == "gzip"
    for path in ("/page/nothing.js", "/page/__init__.py", "/page/../server.py", "/page/%2e%2e/server.py"):
        assert ask(url, "GET", path)[0] in (401, 404), path


def test_a_token_once_then_a_cookie_that_no_script_reads_and_no_other_site_sends(url: str) -> None:
    assert ask(url, "GET", SESSION)[0] == 401
    cookie, given, said = signed_in(url, "admin-token")
    assert "HttpOnly" in given
    assert "SameSite=Strict" in given
    assert (said["user"], said["signedIn"], said["may"]["discard"]) == ("ann", True, True)
    assert ask(url, "GET", "/api/v1/events", Cookie=cookie)[0] == 200
    out = ask(url, "DELETE", SESSION, Cookie=cookie, Origin=url)
    assert out[0] == 204
    assert "Max-Age=0" in out[1]["Set-Cookie"]


def test_over_tls_the_cookie_is_of_this_host_and_goes_over_tls_alone(bus: Bus, tmp_path: Path) -> None:
    (tmp_path / "tokens.csv").write_text("t,ann,1\n")
    tls = ServerTls(own_files(tmp_path, ["127.0.0.1"])).context
    trusted = ssl.create_default_context(cafile=str(tmp_path / "ca.crt"))
    with serving(bus, tokens=tmp_path / "tokens.csv", tls=tls) as url:
        connection = http.client.HTTPSConnection(urlsplit(url).netloc, context=trusted, timeout=30)
        headers = {"Content-Type": "application/json", "Origin": url}
        connection.request("POST", SESSION, json.dumps({"token": "t"}), headers)
        answer = connection.getresponse()
        given = answer.headers["Set-Cookie"]
        connection.close()
    assert answer.status == 200
    assert given.startswith("__Host-eventbus-")
    assert {"Secure", "HttpOnly", "SameSite=Strict", "Path=/"} <= {part.strip() for part in given.split(";")}
    assert "Domain" not in given


def test_wrong_tokens_and_foreign_pages_are_refused(url: str) -> None:
    wrong = ask(url, "POST", SESSION, {"token": "no"}, Content_Type="application/json", Origin=url)
    assert wrong[0] == 401
    assert b"unknown token" in wrong[2]
    assert ask(url, "POST", SESSION, {"tok": 1}, Content_Type="application/json", Origin=url)[0] == 400
    foreign = {"Origin": "https://elsewhere.example", "Content_Type": "application/json"}
    assert ask(url, "POST", SESSION, {"token": "admin-token"}, **foreign)[0] == 403
    name = f"eventbus-{urlsplit(url).port}"
    assert ask(url, "GET", "/api/v1/events", Cookie=f"{name}=bm8")[0] == 401
    assert ask(url, "POST", "/eventbus/v1/verdicts", Cookie=f"{name}=bm8")[0] == 401


def test_workers_on_two_ports_of_a_host_do_not_sign_each_others_users_out(bus: Bus, url: str, tmp_path: Path) -> None:
    cookie, _, _ = signed_in(url, "admin-token")
    (tmp_path / "tokens.csv").write_text("other-token,otto,1\n")
    with serving(bus, tokens=tmp_path / "tokens.csv", grants=["view=user:otto"]) as other:
        theirs, _, _ = signed_in(other, "other-token")
        both = f"{cookie}; {theirs}"
        said = [json.loads(ask(one, "GET", SESSION, Cookie=both)[2])["user"] for one in (url, other)]
        assert said == ["ann", "otto"]


def test_a_cookie_of_nobody_keeps_nobody_out_who_is_known_otherwise(bus: Bus, tmp_path: Path, short_path: Path) -> None:
    (tmp_path / "tokens.csv").write_text("token,otto,1\n")
    path = short_path / "s"
    with serving(bus, tokens=tmp_path / "tokens.csv", socket=path):
        request = f"GET {SESSION} HTTP/1.1\r\nHost: localhost\r\nCookie: eventbus-80=bm8\r\nConnection: close\r\n\r\n"
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(str(path))
            connection.sendall(request.encode())
            answer = b"".join(iter(lambda: connection.recv(65_536), b""))
    assert answer.startswith(b"HTTP/1.1 200"), answer
    assert b'"signedIn":false' in answer


@contextmanager
def nobodies(url: str, count: int, sent: bytes) -> Iterator[list[socket.socket]]:
    """So many connections that have *sent* the body of a sign-in, or a part of it, and wait."""
    where = urlsplit(url)
    head = f"POST {SESSION} HTTP/1.1\r\nHost: {where.netloc}\r\nContent-Type: application/json\r\n"
    found: list[socket.socket] = []
    try:
        for _ in range(count):
            found.append(socket.create_connection((where.hostname, where.port)))
            found[-1].sendall(f"{head}Content-Length: 20\r\n\r\n".encode() + sent)
        yield found
    finally:
        for connection in found:
            connection.close()


@pytest.mark.parametrize("sent", [b"", b'{"token": "a wrong"}'], ids=["silent", "wrong"])
def test_who_is_nobody_yet_keeps_nobody_from_signing_in_and_writing(
    url: str, sent: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "_BODY_S", 1.0)
    with nobodies(url, 250, sent) as crowd:
        for _ in range(3):
            signed_in(url, "admin-token")
        assert ask(url, "POST", "/eventbus/v1/dead/0/1-1/replay", Authorization="Bearer admin-token")[0] == 404
        assert ask(url, "GET", "/api/v1/events", Authorization="Bearer admin-token")[0] == 200
        code = b" 408 " if not sent else b" 401 "
        assert all(code in connection.recv(65_536).split(b"\r\n")[0] for connection in crowd)


def test_who_is_nobody_yet_cannot_have_much_held_for_him(url: str) -> None:
    assert ask(url, "POST", SESSION, {"token": "x" * 9_000}, Content_Type="application/json")[0] == 413


def test_a_write_by_cookie_comes_from_our_own_page_or_is_refused(url: str) -> None:
    cookie, _, _ = signed_in(url, "admin-token")
    write = "/eventbus/v1/dead/0/1-1/replay"
    assert ask(url, "POST", write, Cookie=cookie)[0] == 403
    assert ask(url, "POST", write, Cookie=cookie, Origin="https://elsewhere.example")[0] == 403
    assert ask(url, "POST", write, Cookie=cookie, Sec_Fetch_Site="same-site", Origin=url)[0] == 403
    assert ask(url, "POST", write, Cookie=cookie, Origin=url)[0] == 404  # let in: there is no such entry
    assert ask(url, "POST", write, Authorization="Bearer admin-token")[0] == 404


def test_who_may_only_read_is_told_so_and_kept_from_writing(url: str) -> None:
    cookie, _, said = signed_in(url, "view-token")
    assert said["may"] == {"replay": False, "discard": False, "seeHealth": True, "silence": False}
    assert said["namespaces"] is None
    assert ask(url, "DELETE", "/eventbus/v1/dead/0/1-1", Cookie=cookie, Origin=url)[0] == 403
    _, _, shop = signed_in(url, "shop-token")
    assert shop["namespaces"] == ["shop"]


def test_on_loopback_without_users_there_is_no_door(bus: Bus) -> None:
    with serving(bus) as url:
        status, _, body = ask(url, "GET", SESSION)
        assert status == 200
        assert json.loads(body)["signedIn"] is False
        assert ask(url, "POST", SESSION, {"token": "x"}, Content_Type="application/json", Origin=url)[0] == 401
