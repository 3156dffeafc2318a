"""A host that nobody knows is an error of the URL; a name server that does not answer is an outage."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import NoReturn

import pytest

from eventbus.errors import ConfigError
from eventbus.export.rules import start_of
from eventbus.export.sinks import make_sink
from eventbus.export.sinks.common import check_host
from eventbus.export.sinks.contract import CheckedSink, SinkMode
from eventbus.workers.export import export


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


KUBECONFIG = """\
{apiVersion: v1, kind: Config, current-context: c, contexts: [{name: c, context: {cluster: c, user: u}}],
 clusters: [{name: c, cluster: {server: "https://nowhere:6443"}}], users: [{name: u, user: {token: t}}]}
"""
WITH_A_HOST = ("https://nowhere/hook", "postgresql://events@nowhere/events", "kubernetes:")


@pytest.fixture
def kubeconfig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    (tmp_path / "config").write_text(KUBECONFIG)
    (tmp_path / "config").chmod(0o600)
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))
    return {"KUBECONFIG": str(tmp_path / "config")}


@pytest.mark.parametrize("url", WITH_A_HOST)
def test_an_unknown_host_of_any_sink_ends_the_worker_at_its_start(
    url: str, kubeconfig: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EVENTBUS_REDIS_URL", "none")
    _answers(monkeypatch, socket.EAI_NONAME)
    with pytest.raises(ConfigError, match="the sink's host nowhere is unknown") as caught:
        export.main(["--to", url], standalone_mode=False)
    assert caught.value.exit_code == 2


@pytest.mark.parametrize("url", [url for url in WITH_A_HOST if not url.startswith("postgresql")])  # it looks up in C
def test_a_name_server_that_is_away_at_the_start_is_waited_for(
    url: str, kubeconfig: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    _answers(monkeypatch, socket.EAI_AGAIN)
    sink = make_sink(url, kubeconfig)
    try:
        assert isinstance(sink, CheckedSink)
        sink.check()
    finally:
        sink.close()


def test_who_calls_people_begins_now_and_who_keeps_rows_at_the_beginning() -> None:
    assert (start_of(SinkMode.APPEND), start_of(SinkMode.UPSERT)) == ("now", "beginning")
