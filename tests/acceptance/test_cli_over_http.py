"""The commands that record and read, with nothing but EVENTBUS_URL; the others say that they need Redis."""

from __future__ import annotations

import json
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest

from eventbus.api.eventbus_v1 import frames
from eventbus.api.tls import own_files
from eventbus.broker.bus import Bus, open_bus
from eventbus.correlate.store_recorded_events import sink_worker
from eventbus.errors import InvalidEvent
from eventbus.settings import Settings
from eventbus.util.clock import SystemClock
from tests.acceptance.both_ways import over_http
from tests.acceptance.programs import Program, run
from tests.support.api_in_process import serving
from tests.waiting import eventually

CURE = "give this user the role record there"
NOT_TAKEN = (
    "error: not recorded: the API did not accept the event within 2 s: {}; "
    "try again (it may have arrived, if only the answer was lost)\n"
)
KINDS = (
    *("events", "nodes", "leases.coordination.k8s.io", "pods", "configmaps"),
    *("silences.eventbus.dev", "acknowledgements.eventbus.dev"),
)


@pytest.fixture
def bus(embedded_url: str, prefix: str) -> Iterator[Bus]:
    """With a sink worker on it."""
    found = open_bus(embedded_url, Settings(prefix=prefix))
    runner = sink_worker(bus=found, clock=SystemClock(), block_ms=100)
    runner.start()
    try:
        yield found
    finally:
        runner.stop(30)


@pytest.fixture
def env(bus: Bus) -> Iterator[dict[str, str]]:
    with serving(bus) as url:
        yield over_http(url)


def record(env: dict[str, str], about: str, reason: str, *more: str) -> None:
    done = run("record", about, "--reason", reason, "--message", f"{reason} it is", *more, env=env)
    assert (done.returncode, done.stderr) == (0, "")


def test_what_is_recorded_is_listed_described_and_got(env: dict[str, str]) -> None:
    record(env, "Backup/nightly", "Completed")
    record(env, "Node/n1", "Slow", "-n", "", "--type", "Warning")
    eventually(lambda: len(json.loads(run("get", "events", "-o", "json", env=env).stdout)["items"]) == 2)
    table = run("get", "events", env=env)
    assert "backup/nightly" in table.stdout
    assert "node/n1" in run("get", "events", "--types", "warning", env=env).stdout
    assert "Completed" in run("events", env=env).stdout
    assert "Completed" in run("get", "events", "--for", "backup/nightly", env=env).stdout
    described = run("describe", "backup/nightly", env=env)
    assert (described.returncode, described.stderr) == (0, "")
    assert "Completed it is" in described.stdout
    assert run("describe", "node", "n1", env=env).returncode == 0
    missing = run("describe", "backup/weekly", env=env)
    assert (missing.returncode, "backup/weekly not found" in missing.stderr.lower()) == (1, True)


@pytest.mark.parametrize(
    ("token", "said"),
    [
        (
            "wrong-token",
            "does not accept our credentials (Unauthorized): set EVENTBUS_TOKEN_FILE or EVENTBUS_CLIENT_CERT",
        ),
        ("view-token", f"not recorded: 'eva' may not record events in namespace 'default': {CURE}"),
    ],
    ids=["unknown", "forbidden"],
)
def test_an_event_that_a_user_may_not_record_is_refused_for_good(
    bus: Bus, tmp_path: Path, token: str, said: str
) -> None:
    tokens = tmp_path / "tokens"
    tokens.write_text("view-token,eva,1\n")
    tokens.chmod(0o600)
    with serving(bus, tokens=tokens, grants=["view=user:eva"]) as url:
        env = over_http(url, token=token, flush_s="3600")
        done = run("record", "Backup/nightly", "--reason", "Completed", "--message", "m", "-v", env=env)
    assert (done.returncode, said in done.stderr, "event recorded" in done.stderr) == (2, True, False), done.stderr


def test_who_may_read_one_namespace_describes_a_pod_that_waits_in_it(bus: Bus, tmp_path: Path) -> None:
    containers = [{"name": "main", "command": ["/bin/true"]}]
    spec = {"nodeName": "n1", "containers": containers}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "job"}, "spec": spec}
    (tmp_path / "pod.json").write_text(json.dumps(pod))
    by_redis = {"EVENTBUS_REDIS_URL": bus.url, "EVENTBUS_PREFIX": bus.prefix}
    assert run("apply", "-f", str(tmp_path / "pod.json"), env=by_redis).returncode == 0
    tokens = tmp_path / "tokens"
    tokens.write_text("view-token,eva,1\n")
    tokens.chmod(0o600)
    with serving(bus, tokens=tokens, grants=["view=user:eva@default", "operator=user:eva@default"]) as url:
        env = over_http(url) | {"EVENTBUS_TOKEN": "view-token"}
        done = run("describe", "pod/job", "-n", "default", env=env)
        unknown = run("describe", "pod/other", "-n", "default", env=env)
    assert (done.returncode, "Name:" in done.stdout) == (0, True), done.stderr
    assert (unknown.returncode, "pod/other not found" in unknown.stderr.lower()) == (1, True)


def test_an_event_that_the_api_finds_invalid_is_refused_with_what_is_wrong_and_no_other_cure(
    bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(packed: bytes, *, partition: int, partitions: int) -> str:
        raise InvalidEvent("reason", "is not what this newer API takes")

    monkeypatch.setattr(frames, "check_packed", refuse)
    with serving(bus) as url:
        done = run("record", "Backup/nightly", "--reason", "R", "--message", "m", env=over_http(url))
    assert (done.returncode, done.stderr) == (2, "error: not recorded: reason: is not what this newer API takes\n")


def test_a_token_file_that_is_not_there_is_said_at_once(tmp_path: Path) -> None:
    env = over_http("http://127.0.0.1:1", token_file=str(tmp_path / "none"), flush_s="3600")
    done = run("record", "Backup/nightly", "--reason", "R", "--message", "m", env=env)
    assert (done.returncode, "error: EVENTBUS_TOKEN_FILE cannot be read" in done.stderr) == (2, True), done.stderr


def test_https_where_no_tls_is_spoken_names_the_cure(bus: Bus) -> None:
    with serving(bus) as url:
        done = run("get", "events", env=over_http(url.replace("http:", "https:")))
    assert (done.returncode, "does not speak TLS: use http:// in EVENTBUS_URL" in done.stderr) == (1, True), done.stderr


def test_http_where_tls_is_spoken_names_the_cure(bus: Bus, tmp_path: Path) -> None:
    files = own_files(tmp_path / "certificates", ["127.0.0.1"])
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files.certificate, files.key)
    with serving(bus, tls=context) as url:
        done = run("get", "events", env=over_http(url.replace("https:", "http:")))
    assert (done.returncode, "if it speaks TLS, use https:// in EVENTBUS_URL" in done.stderr) == (1, True), done.stderr


def test_events_are_followed(env: dict[str, str], tmp_path: Path) -> None:
    record(env, "Backup/nightly", "Started")
    with Program("get", "events", "-w", env=env, folder=tmp_path) as following:
        eventually(lambda: "Started" in following.out)
        record(env, "Backup/nightly", "Completed")
        eventually(lambda: "Completed" in following.out)


def test_a_name_is_looked_for_among_all_kinds_that_the_user_may_see(env: dict[str, str]) -> None:
    done = run("get", "all", "n1", env=env)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.splitlines() == [
        "left out: secrets: this user lacks the role operator",
        *(f'Error from server (NotFound): {kind} "n1" not found' for kind in KINDS),
    ]


def test_the_numbers_are_those_of_redis(env: dict[str, str]) -> None:
    record(env, "Backup/nightly", "Completed")
    found = json.loads(run("status", "-o", "json", env=env).stdout)
    assert found["counters"]["published"] >= 1
    assert [group["name"] for group in found["groups"]] == ["sink"]
    assert run("get", "suppressed", "-o", "json", env=env).stdout.strip() == "[]"


def test_an_empty_list_says_what_it_may_mean(env: dict[str, str]) -> None:
    listed = run("get", "events", env=env)
    assert "No resources found in default namespace." in listed.stderr
    assert "An event is kept for 60m after it was last seen." in listed.stderr


@pytest.mark.parametrize("words", [["group", "list"], ["dead", "list"]])
def test_what_needs_redis_says_so(env: dict[str, str], words: list[str]) -> None:
    done = run(*words, env=env)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: this command needs Redis, and EVENTBUS_URL names an API worker: ")


def test_doctor_says_that_it_looks_at_redis(env: dict[str, str]) -> None:
    done = run("doctor", env=env)
    assert "EVENTBUS_URL names an API worker; doctor looks at Redis itself" in done.stdout


def test_an_api_that_is_away_is_an_error_of_one_line() -> None:
    away = over_http("http://127.0.0.1:1") | {"EVENTBUS_FLUSH_S": "2"}
    for words in (["get", "events"], ["status"]):
        done = run(*words, env=away)
        assert (done.returncode, done.stderr.count("\n")) == (1, 1)
        assert "http://127.0.0.1:1 does not answer" in done.stderr
    done = run("record", "Backup/nightly", "--reason", "R", "--message", "m", env=away)
    assert (done.returncode, done.stderr) == (
        1,
        NOT_TAKEN.format("http://127.0.0.1:1 does not answer: Connection refused"),
    )


def test_an_api_that_is_silent_is_waited_for_no_longer_than_told() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        env = over_http(f"http://127.0.0.1:{silent.getsockname()[1]}", flush_s="2")
        done = run("record", "Backup/nightly", "--reason", "R", "--message", "m", env=env)
        assert (done.returncode, done.stderr) == (1, NOT_TAKEN.format("no answer"))
        silent.setblocking(False)
        silent.accept()[0].close()
        with pytest.raises(BlockingIOError):  # whoever waits until a connection has timed out opens another
            silent.accept()


def test_a_url_that_is_none_is_named() -> None:
    done = run("get", "events", env=over_http("redis://127.0.0.1:1"))
    assert done.returncode == 2
    assert "the url of Redis goes into EVENTBUS_REDIS_URL" in done.stderr
