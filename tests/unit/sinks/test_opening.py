"""Which sink an URL names, what it is called, and where its secrets come from."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from eventbus.errors import ConfigError
from eventbus.sinks import SinkOptions, make_sink
from eventbus.sinks.opening import SCHEMES, default_name, safe_sink_url


class OwnSink:
    """What `python:` loads here; a class whose constructor is a SinkMaker."""

    def __init__(self, url: str, options: SinkOptions) -> None:
        self.url, self.name, self.timeout_s = url, options.name, options.timeout_s


def test_a_sink_of_ones_own_is_loaded_by_its_place() -> None:
    url = "python:tests.unit.sinks.test_opening:OwnSink?table=x"
    sink = make_sink(url, {}, name="mine", timeout_s=3)
    assert isinstance(sink, OwnSink)
    assert (sink.url, sink.name, sink.timeout_s) == (url, "mine", 3)


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("redis://x", "must begin with one of .*postgresql:"),
        ("events.jsonl", "must begin with one of"),
        ("python:no.such.module:x", "cannot be loaded"),
        ("python:tests.unit.sinks.test_opening:missing", "has no 'missing'"),
    ],
)
def test_what_is_no_sink_is_refused_with_what_there_is(url: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        make_sink(url, {})


def test_a_refusal_shows_no_password() -> None:
    with pytest.raises(ConfigError) as refused:
        make_sink("mysql://me:secret@host/db?password=secret", {})
    assert "secret" not in str(refused.value)
    assert safe_sink_url("postgresql://me:secret@host:5432/db?password=secret") == "postgresql://host:5432/db"


def test_the_name_of_a_sink_follows_the_place_not_the_password() -> None:
    name = default_name("postgresql://me:old@host/db")
    assert re.fullmatch(r"postgresql-[0-9a-f]{6}", name)
    assert default_name("postgresql://me:new@host/db") == name
    assert default_name("postgresql://me:old@host/other") != name


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


def test_every_scheme_has_an_extra_that_exists(pytestconfig: pytest.Config) -> None:
    text = (pytestconfig.rootpath / "pyproject.toml").read_text("utf-8")
    for _, extra in SCHEMES.values():
        assert not extra or re.search(rf"^{extra} = \[", text, re.M), extra
