"""The sink that an URL names, its name, and the source of its secrets."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from eventbus.errors import ConfigError
from eventbus.export.sinks import EventPatch, SinkMode, SinkOptions, make_sink
from eventbus.export.sinks.registry import SCHEMES, check_name, default_name, given_url, safe_sink_url, split_counts
from eventbus.model.event import Event


class OwnSink:
    """The sink that `own:` loads here; a class whose constructor is a SinkMaker."""

    mode = SinkMode.UPSERT

    def __init__(self, url: str, options: SinkOptions) -> None:
        self.url, self.name, self.timeout_s = url, options.name, options.timeout_s

    def create(self, event: Event) -> Event:
        return event

    update = create

    def patch(self, event: Event, patch: EventPatch) -> Event:
        return event

    def close(self) -> None:
        pass


def make_nothing(url: str, options: SinkOptions) -> None:
    """No SinkMaker, though it can be called like one."""


def test_a_registered_sink_is_made_by_its_scheme() -> None:
    url = "own:?table=x"
    sink = make_sink(url, {}, name="mine", timeout_s=3)
    assert isinstance(sink, OwnSink)
    assert (sink.url, sink.name, sink.timeout_s) == (url, "mine", 3)


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("redis://x", "must begin with one of .*postgresql:"),
        ("events.jsonl", "must begin with one of"),
        ("redis://x", "must begin with one of .*, own:"),
        ("python:os:getcwd", "must begin with one of"),
        ("no-module:", "cannot be loaded"),
        ("no-name:", "has no 'missing'"),
        ("no-maker:", "no maker of sinks"),
        ("no-callable:", "no maker of sinks"),
        ("no-sink:", "no EventSink"),
        ("twice:", "registered more than once, for a:b, c:d: uninstall"),
        ("https://[::1", "cannot be read"),
        ("https://host:99999/hook", "its port must be a number from 1 to 65535"),
    ],
)
def test_what_is_no_sink_is_refused_with_what_there_is(url: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        make_sink(url, {})


def test_a_refusal_shows_no_password() -> None:
    with pytest.raises(ConfigError) as refused:
        make_sink("mysql://me:secret@host/db?password=secret", {})
    assert "secret" not in str(refused.value)


def test_a_parameter_that_postgresql_does_not_know_is_named_without_its_value() -> None:
    with pytest.raises(ConfigError, match=r"no parameter 'x', 'pool'$") as refused:
        make_sink("postgresql://me@host/db?sslmode=require&x=hunter2&pool=hunter2&ssl=true", {})
    assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://host/db?password=hun&ter2=x",
        "postgresql://host/db?sslpassword=hun&ter2=x",
        "postgresql://host/db?sslcert=a@b&ter2=x",
        "postgresql://host/db?ter2",
    ],
)
def test_what_may_be_a_piece_of_a_password_is_not_named(url: str) -> None:
    with pytest.raises(ConfigError, match=r"clients can read$") as refused:
        make_sink(url, {})
    assert "ter2" not in str(refused.value)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://me:secret@host:5432/db?password=secret", "postgresql://host:5432/db"),
        ("https://hooks.example/services/secret?key=secret", "https://hooks.example/…"),
        ("https://hooks.example", "https://hooks.example"),
        ("file:/var/log/events.jsonl?keep=9", "file:/var/log/events.jsonl"),
        ("file:events.jsonl", "file:events.jsonl"),
        ("kubernetes:?context=dev", "kubernetes:"),
        ("stdout:", "stdout:"),
        ("own:events?key=secret", "own:events"),
        ("events.jsonl", "events.jsonl"),
    ],
)
def test_a_url_is_shown_without_what_may_be_secret(url: str, shown: str) -> None:
    assert safe_sink_url(url) == shown


def test_the_name_of_a_sink_follows_the_place_not_the_password() -> None:
    name = default_name("postgresql://me:old@host/db")
    assert re.fullmatch(r"postgresql-[0-9a-f]{6}", name)
    assert default_name("postgresql://me:new@host/db") == name
    assert default_name("postgresql://me:old@host/other") != name


def test_a_scheme_of_two_words_gives_a_name_that_sinks_may_have() -> None:
    assert check_name(default_name("chat+https://host/room")).startswith("chat-https-")


@pytest.mark.parametrize(
    ("url", "same"),
    [
        ("file:/var/log/events.jsonl", "file:/var/log/events.jsonl?keep=9&fsync=never"),
        ("postgresql://me@host/db", "postgresql://me@host/db?sslmode=verify-full&connect_timeout=3"),
        ("postgresql://me@host/db", "postgres://host:5432/db?options=-c%20statement_timeout%3D5s"),
        ("postgresql://me@host/db", "postgresql:///db?host=host&application_name=x"),
        ("postgresql://me@host", "postgresql://me@host/me"),
        (
            "postgresql://host/db?options=-csearch_path%3Da%20-c%20jit%3Doff",
            "postgresql://host/db?options=--search-path%3Da",
        ),
    ],
)
def test_an_option_makes_no_other_sink(url: str, same: str) -> None:
    assert default_name(same) == default_name(url)


@pytest.mark.parametrize(
    ("url", "other"),
    [
        ("postgresql://me@host/db", "postgresql://me@other/db"),
        ("postgresql://me@host/db", "postgresql://me@host:5433/db"),
        ("postgresql://me@host/db", "postgresql://me@host/db?host=other"),
        ("postgresql://me@host/db", "postgresql://me@host/db?options=-c%20search_path%3Da"),
        ("postgresql://me@host/db?options=-csearch_path%3Da", "postgresql://me@host/db?options=-csearch_path%3Db"),
        ("https://host/path?team=a", "https://host/path?team=b"),
        ("sqlite:?events.db", "sqlite:?other.db"),
    ],
)
def test_what_leads_elsewhere_makes_another_sink(url: str, other: str) -> None:
    assert default_name(other) != default_name(url)


def test_where_the_url_leaves_it_open_the_environment_says_which_server_it_is() -> None:
    assert default_name("postgresql:///db", {"PGHOST": "host"}) == default_name("postgresql://host/db")
    assert default_name("postgresql:///db", {"PGHOST": "other"}) != default_name("postgresql://host/db")


@pytest.mark.parametrize("url", ["file:/var/log/events.jsonl", "stdout:"])
def test_the_same_file_on_two_hosts_is_two_sinks(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    names = set()
    for host in ("one", "two", "one"):
        monkeypatch.setattr("socket.gethostname", lambda host=host: host)
        names.add(default_name(url))
    assert len(names) == 2


def test_the_same_words_for_two_files_are_two_sinks_and_other_words_for_one_are_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path)
    here = default_name("file:events.jsonl")
    for same in (f"file:{tmp_path}/events.jsonl", f"file://{tmp_path}/other/../events.jsonl", "file:events%2Ejsonl"):
        assert default_name(same) == here
    monkeypatch.chdir(tmp_path / "other")
    assert default_name("file:events.jsonl") != here


@pytest.mark.parametrize("name", ["UPPER", "a/b", "-a", "a" * 64, "a b"])
def test_a_name_that_would_not_do_in_a_key_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="must match"):
        make_sink("stdout:", {}, name=name)


def test_a_secret_comes_from_a_file_before_the_environment(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text("from-file\n")
    environ = {"TOKEN": "from-environ"}
    assert SinkOptions(name="x", environ=environ).secret("TOKEN") == "from-environ"
    assert SinkOptions(name="x", environ=environ | {"TOKEN_FILE": str(file)}).secret("TOKEN") == "from-file"
    assert SinkOptions(name="x").secret("TOKEN") == ""
    with pytest.raises(ConfigError, match="TOKEN_FILE"):
        SinkOptions(name="x", environ={"TOKEN_FILE": str(tmp_path / "missing")}).secret("TOKEN")


def test_a_secret_of_the_environment_is_stripped_as_one_of_a_file_is() -> None:
    assert SinkOptions(name="x", environ={"TOKEN": " secret\n"}).secret("TOKEN") == "secret"


@pytest.mark.parametrize("value", ["hunter2\u00f6", "hunter2\nX-More: 1", "hunter2\x00", "hunter2\udcff"])
def test_what_cannot_stand_in_a_header_is_refused_without_its_value(value: str) -> None:
    with pytest.raises(ConfigError, match="TOKEN must be printable") as refused:
        SinkOptions(name="x", environ={"TOKEN": value}).ascii_secret("TOKEN")
    assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize(
    "url", ["postgresql://me:hunter2@host/db", "postgres://me@host/db?password=hunter2", "https://me:hunter2@host/"]
)
def test_a_password_on_the_command_line_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match="EVENTBUS_EXPORT_TO") as refused:
        given_url(url, {})
    assert "hunter2" not in str(refused.value)
    assert ("EVENTBUS_POSTGRES_PASSWORD" in str(refused.value)) == url.startswith("postgres")


def test_the_whole_url_may_come_from_the_environment_or_a_file(tmp_path: Path) -> None:
    file = tmp_path / "url"
    file.write_text("https://host/file\n")
    environ = {"EVENTBUS_EXPORT_TO": "https://me:secret@host/environ"}
    assert given_url("stdout:", environ) == "stdout:"
    assert given_url("", environ) == "https://me:secret@host/environ"
    assert given_url("", environ | {"EVENTBUS_EXPORT_TO_FILE": str(file)}) == "https://host/file"
    with pytest.raises(ConfigError, match="--to"):
        given_url("", {})


def test_every_scheme_has_an_extra_that_exists(pytestconfig: pytest.Config) -> None:
    text = (pytestconfig.rootpath / "pyproject.toml").read_text("utf-8")
    for _, extra in SCHEMES.values():
        assert not extra or re.search(rf"^{extra} = \[", text, re.M), extra


@pytest.mark.parametrize("scheme", ["postgresql", "kafka", "nats+tls", "clickhouse+https"])
@pytest.mark.parametrize("password", ["12?ss", "12/ss", "pa#ss"])
def test_a_password_that_is_not_escaped_is_refused_and_not_shown(scheme: str, password: str) -> None:
    for use in (given_url, make_sink):
        with pytest.raises(ConfigError, match="%3F") as refused:
            use(f"{scheme}://me:{password}@host/db", {})
        assert "ss" not in str(refused.value).replace("password", "")


def test_the_path_of_a_webhook_may_have_an_at_sign() -> None:
    assert given_url("https://host:8443/@team", {}) == "https://host:8443/@team"


@pytest.mark.parametrize(
    ("url", "rest", "counts"),
    [
        ("https://h/x?counts=shown", "https://h/x", "shown"),
        ("file:/a/b?max-size=1MiB&counts=written&keep=3", "file:/a/b?max-size=1MiB&keep=3", "written"),
        ("postgresql://db/e?sslmode=require", "postgresql://db/e?sslmode=require", "written"),
        ("python:a.b:c?x=1&counts=shown", "python:a.b:c?x=1", "shown"),
    ],
)
def test_which_counts_are_wanted_is_taken_off_the_url(url: str, rest: str, counts: str) -> None:
    assert split_counts(url) == (rest, counts)


def test_other_counts_are_refused() -> None:
    with pytest.raises(ConfigError, match="counts='all' in the sink's URL: give counts=written or counts=shown"):
        split_counts("stdout:?counts=all")
