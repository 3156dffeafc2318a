"""A host that nobody knows is an error of the URL; a name server that does not answer is an outage."""

from __future__ import annotations

import socket
from typing import NoReturn

import pytest

from eventbus.errors import ConfigError
from eventbus.export.start import start_of
from eventbus.sinks.contract import SinkMode
from eventbus.sinks.start_checks import check_host


def _answers(monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    def look_up(*_: object, **__: object) -> NoReturn:
        raise socket.gaierror(code, "said the resolver")

    monkeypatch.setattr(socket, "getaddrinfo", look_up)


def test_an_unknown_host_is_a_config_error(monkeypatch: pytest.MonkeyPatch) -> None:
    _answers(monkeypatch, socket.EAI_NONAME)
    with pytest.raises(ConfigError, match="the sink's host dbb is unknown: correct the sink's URL"):
        check_host("dbb")


def test_of_several_hosts_one_has_to_be_known(monkeypatch: pytest.MonkeyPatch) -> None:
    _answers(monkeypatch, socket.EAI_NONAME)
    with pytest.raises(ConfigError, match="pg-0 or pg-1 is unknown"):
        check_host("pg-0", "pg-1")
    monkeypatch.undo()
    check_host("127.0.0.1.", "127.0.0.1")


def test_a_name_server_that_is_away_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    _answers(monkeypatch, socket.EAI_AGAIN)
    check_host("db")


def test_who_calls_people_begins_now_and_who_keeps_rows_at_the_beginning() -> None:
    assert (start_of(SinkMode.APPEND), start_of(SinkMode.UPSERT)) == ("now", "beginning")
