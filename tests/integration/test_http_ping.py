"""`/eventbus/v1/ping/…`: an event by a URL alone, with the rights of a token that no log shows."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path
from socket import create_connection
from typing import NamedTuple
from urllib.parse import urlsplit

import pytest

from eventbus import Event, Settings
from eventbus.api.auth.authentication import cookie_value
from eventbus.api.eventbus_v1.ping import MAX_BODY, MAX_MESSAGE, Pings
from eventbus.broker.bus import Bus
from eventbus.testing.clock import FakeClock
from tests.support.api_in_process import serving
from tests.support.harness import read_incoming

PING = "/eventbus/v1/ping/shop/Backup/db"
TOKEN = "s3cr3t%2Ftoken"  # as it stands in a path: s3cr3t/token
TOKEN_PING = f"/eventbus/v1/token/{TOKEN}/ping/shop/Backup/db"


class Reply(NamedTuple):
    """The parts of an answer that the tests look at."""

    status: int
    text: str


@pytest.fixture
def settings(prefix: str) -> Settings:
    return Settings(prefix=prefix)


@pytest.fixture
def url(bus: Bus, tmp_path: Path) -> Iterator[str]:
    """A worker with users: cron may record in shop, vic may read."""
    tokens = tmp_path / "tokens.csv"
    tokens.write_text("s3cr3t/token,cron,1\nview-token,vic,2\n")
    with serving(bus, tokens=tokens, grants=["record=user:cron@shop", "view=user:vic"], audit=True) as found:
        yield found


def ask(url: str, path: str, body: bytes | None = None, *, method: str = "", **headers: str) -> Reply:
    connection = HTTPConnection(urlsplit(url).netloc, timeout=30)
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    try:
        connection.request(method or ("GET" if body is None else "POST"), path, body, named)
        answer = connection.getresponse()
        return Reply(answer.status, answer.read().decode())
    finally:
        connection.close()


@pytest.fixture
def recorded(embedded_url: str, settings: Settings) -> Recorded:
    return Recorded(embedded_url, settings)


class Recorded:
    """Reads what was recorded."""

    def __init__(self, url: str, settings: Settings) -> None:
        self._url = url
        self._settings = settings

    def events(self) -> list[Event]:
        return read_incoming(self._url, self._settings)

    def rows(self) -> list[tuple[str, str, str]]:
        return [(event.type, event.reason, event.message) for event in self.events()]


def test_a_ping_records_an_event_by_its_user_and_answers_ok(url: str, recorded: Recorded) -> None:
    assert ask(url, TOKEN_PING) == (200, "OK\n")
    assert ask(url, PING, b"42 GiB\n", Authorization="Bearer s3cr3t/token") == (200, "OK\n")
    assert ask(url, f"{TOKEN_PING}/fail", b"disk full") == (200, "OK\n")
    assert recorded.rows() == [
        ("Normal", "Pinged", ""),
        ("Normal", "Pinged", "42 GiB"),
        ("Warning", "Failed", "disk full"),
    ]
    about = {(e.involved_object.namespace, e.involved_object.kind, e.involved_object.name) for e in recorded.events()}
    assert about == {("shop", "Backup", "db")}
    assert {event.source.component for event in recorded.events()} == {"cron"}


def test_the_ping_after_a_start_tells_how_long_it_took_once(
    bus: Bus, recorded: Recorded, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = FakeClock()
    monkeypatch.setattr(Pings.__init__, "__defaults__", (clock,))
    with serving(bus) as one, serving(bus) as two:
        ask(one, f"{PING}/start")
        clock.advance(207)
        ask(two, PING, b"42 GiB")
        ask(one, PING)
        ask(one, "/eventbus/v1/ping/shop/Backup/other/start")
        ask(one, f"{PING}/start")
        clock.advance(0.5)
        ask(two, f"{PING}/fail")
    assert recorded.rows() == [
        ("Normal", "Started", ""),
        ("Normal", "Pinged", "42 GiB; took 3m27s"),
        ("Normal", "Pinged", ""),
        ("Normal", "Started", ""),
        ("Normal", "Started", ""),
        ("Warning", "Failed", "took <1s"),
    ]


def test_a_body_is_cut_to_a_message_and_a_larger_one_is_refused(bus: Bus, recorded: Recorded) -> None:
    with serving(bus) as url:
        ask(url, f"{PING}/start")
        assert ask(url, PING, b"\0\xff" + "é".encode() * 5000).status == 200
        assert ask(url, PING, b"x" * (MAX_BODY + 1)).status == 413
    [_, (_, _, message)] = recorded.rows()
    assert len(message.encode()) <= MAX_MESSAGE
    assert message.startswith("\N{REPLACEMENT CHARACTER}" * 2 + "éé")
    assert message.endswith("...; took <1s")


def test_a_repeat_under_a_key_changes_nothing_and_another_body_is_refused(url: str, recorded: Recorded) -> None:
    ask(url, f"{TOKEN_PING}/start")
    for _ in range(2):
        assert ask(url, f"{TOKEN_PING}/fail", b"disk full", Idempotency_Key="k") == (200, "OK\n")
    assert ask(url, f"{TOKEN_PING}/fail", b"other", Idempotency_Key="k").status == 422
    assert ask(url, TOKEN_PING, b"disk full", Idempotency_Key="k").status == 422
    assert recorded.rows()[1:] == [("Warning", "Failed", "disk full; took <1s")]


def test_a_ping_needs_a_known_token_with_the_right_to_record_in_the_namespace(url: str, recorded: Recorded) -> None:
    assert ask(url, PING).status == 401
    assert ask(url, TOKEN_PING.replace(TOKEN, "wrong")).status == 401
    assert ask(url, TOKEN_PING.replace(TOKEN, "view-token")).status == 403
    assert ask(url, TOKEN_PING.replace("shop", "other")).status == 403
    assert ask(url, TOKEN_PING.replace("shop", "Not_A_Label")).status == 403
    assert ask(url, TOKEN_PING.replace("Backup", "k" * 2000)).status == 422
    assert ask(url, TOKEN_PING, method="DELETE").status == 405
    assert ask(url, TOKEN_PING + "/other").status in (400, 404)
    assert recorded.rows() == []


def test_a_token_in_a_path_is_for_pings_alone(url: str) -> None:
    assert ask(url, f"/eventbus/v1/token/{TOKEN}/record", b"{}").status == 401
    assert ask(url, f"/eventbus/v1/token/{TOKEN}/status").status == 401
    assert ask(url, f"/eventbus/v1/token/{TOKEN}/ping/../../../status").status in (401, 404)


def test_no_page_can_ping_with_the_cookie_or_the_machine_of_its_user(url: str, bus: Bus, recorded: Recorded) -> None:
    cookie = f"eventbus-{urlsplit(url).port}={cookie_value('s3cr3t/token')}"
    assert ask(url, "/eventbus/v1/session", Cookie=cookie).status == 200
    for headers in ({}, {"Sec_Fetch_Site": "same-origin"}, {"Origin": url}):
        for body in (None, b""):
            assert ask(url, PING, body, Cookie=cookie, **headers).status in (401, 403)
    with serving(bus) as local:
        assert ask(local, PING, Sec_Fetch_Site="none", Sec_Fetch_Mode="navigate").status == 403
        assert ask(local, TOKEN_PING, Sec_Fetch_Site="none", Sec_Fetch_Mode="navigate").status == 403
        assert ask(local, PING, Sec_Fetch_Site="cross-site").status == 403
        assert ask(local, PING, Origin="https://evil.example").status == 403
    assert recorded.rows() == []


def test_pings_are_audited_and_no_log_has_the_token(
    url: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    with caplog.at_level(logging.DEBUG):
        ask(url, TOKEN_PING)
        ask(url, f"http://user:s3cr3t@localhost:{urlsplit(url).port}{TOKEN_PING}/start", b"")
        ask(url, TOKEN_PING.replace("/ping/", "/pong/"), b"")
        ask(url, TOKEN_PING.replace("/token/", "//token//"), b"")
        ask(url, TOKEN_PING.replace("/token/", "/%74oken/"), b"")
        with create_connection(("127.0.0.1", urlsplit(url).port or 0), timeout=30) as connection:
            connection.sendall(f"GET {TOKEN_PING}\x01 HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
            assert b" 400 Bad Request" in connection.recv(65_536)
        ask(url, "/eventbus/v1/ping/s3cr3t/shop/Backup/db", b"")
        ask(url, "/eventbus/v1/ping/s3cr3t/Backup/db", b"")
        monkeypatch.setattr("eventbus.api.eventbus_v1.ping.duration", lambda _: 1 / 0)
        assert ask(url, TOKEN_PING).status == 500
    audited = [record.getMessage() for record in caplog.records if record.name == "eventbus.audit"]
    assert "GET /eventbus/v1/token/…/ping/shop/Backup/db -> 200" in audited[0]
    assert len(audited) >= 4
    everything = caplog.text + "".join(str(record.__dict__) for record in caplog.records)
    assert "s3cr3t" not in everything
