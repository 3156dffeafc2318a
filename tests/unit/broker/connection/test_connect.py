"""Urls, passwords and options: everything about a connection that is decided before there is one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import redis

from eventbus.broker.connection.address import parse_address, safe_url, with_password
from eventbus.broker.connection.connect import make_client, resolve_url
from eventbus.broker.embedded.server import default_directory
from eventbus.broker.redis_errors import redis_errors, translate
from eventbus.errors import (
    BusRefused,
    BusUnavailable,
    ConfigError,
    EventBusError,
    FunctionsMissing,
    GroupMissing,
    PasswordRefused,
)
from eventbus.settings import Settings


def test_a_given_url_wins_over_the_environment() -> None:
    assert (
        resolve_url("redis://a:1/0", Settings.from_environ({"EVENTBUS_REDIS_URL": "redis://b:2/0"})) == "redis://a:1/0"
    )


def test_without_a_given_url_the_environment_decides() -> None:
    assert resolve_url(None, Settings.from_environ({"EVENTBUS_REDIS_URL": "rediss://b:2/0"})) == "rediss://b:2/0"


@pytest.mark.parametrize("word", ["none", "None"])
def test_none_means_no_bus(word: str) -> None:
    assert resolve_url(None, Settings.from_environ({"EVENTBUS_REDIS_URL": word})) is None
    assert resolve_url(word, Settings.from_environ({"EVENTBUS_REDIS_URL": "redis://b:2/0"})) is None


@pytest.mark.parametrize(
    ("url", "joined"),
    [
        ("redis://host:6379/2", "redis://:p%40s%2Fs@host:6379/2"),
        ("redis://worker@host", "redis://worker:p%40s%2Fs@host"),
        ("unix:///run/redis.sock", "unix://:p%40s%2Fs@/run/redis.sock"),
        ("redis://:own@host", "redis://:own@host"),
        ("redis://host?password=own", "redis://host?password=own"),
    ],
)
def test_a_password_of_the_environment_is_put_in_where_the_url_has_none(url: str, joined: str) -> None:
    assert resolve_url(url, Settings.from_environ({"EVENTBUS_REDIS_PASSWORD": "p@s/s"})) == joined


def test_a_password_file_wins_over_the_variable_and_loses_its_newline(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("filed\n")
    environ = {"EVENTBUS_REDIS_PASSWORD": "x", "EVENTBUS_REDIS_PASSWORD_FILE": str(tmp_path / "secret")}
    assert resolve_url("redis://host", Settings.from_environ(environ)) == "redis://:filed@host"


def test_a_password_file_that_is_missing_is_told() -> None:
    with pytest.raises(ConfigError, match="EVENTBUS_REDIS_PASSWORD_FILE"):
        resolve_url("redis://host", Settings.from_environ({"EVENTBUS_REDIS_PASSWORD_FILE": "/nowhere/secret"}))


@pytest.mark.parametrize("url", ["http://host", "localhost:6379", "redis+cluster://host", "host", "redis:/host"])
def test_an_url_of_another_scheme_is_refused_with_the_valid_ones(url: str) -> None:
    with pytest.raises(ConfigError, match=r"redis://.*rediss://.*unix://"):
        resolve_url(url, Settings())


@pytest.mark.parametrize(
    ("url", "about"),
    [
        ("redis://host:port", "port"),
        ("redis://host?retry_on_timeout=yes", "retry_on_timeout"),
        ("redis://host?protocol=3", "protocol"),
        ("redis://host?decode_responses=1", "decode_responses"),
        ("redis://:se#cret@host", "%23"),
        ("redis://:12?se@host", "%3F"),
        ("redis://[::1:6379", "%5B"),
        ("redis://host/events", "database"),
        ("redis://a:1,b:port", "port"),
        ("redis://a:1,[::1", "%5B"),
        ("redis+sentinel://s1,s2", "NAME"),
        ("redis+sentinel://s1/name/events", "database"),
        ("redis+sentinel://s1/name/0/1", "NAME"),
        ("redis://host?sentinel_password=x", "sentinel_password"),
        ("redis://host?ssl_ca_certs=/x", "rediss://"),
    ],
)
def test_an_url_that_redis_py_would_misread_is_refused(url: str, about: str) -> None:
    with pytest.raises(ConfigError, match=about):
        resolve_url(url, Settings())


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("redis://host:6379/0", "redis://host:6379/0"),
        ("redis://:secret@host:6379/0", "redis://@host:6379/0"),
        ("redis://worker:secret@host", "redis://worker@host"),
        ("rediss://[::1]:6379?password=secret&ssl_password=secret", "rediss://[::1]:6379"),
        ("unix:///run/a@b.sock", "unix:///run/a@b.sock"),
        ("unix://:secret@/run/a.sock", "unix://@/run/a.sock"),
        ("redis://SECRET@host", "redis://***@host"),
        ("redis://SECRET@a:1,b:2/0", "redis://***@a:1,b:2/0"),
        ("redis://worker@host?password=secret", "redis://worker@host"),
        ("redis://:secret@a:1,b:2,[::1]:3/0", "redis://@a:1,b:2,[::1]:3/0"),
        ("redis+sentinel://w:secret@s1,s2/main/0?sentinel_password=x", "redis+sentinel://w@s1,s2/main/0"),
    ],
)
def test_a_safe_url_shows_where_but_no_password(url: str, shown: str) -> None:
    assert safe_url(url) == shown


@pytest.mark.parametrize("sign", list("/?#@:%[] &=\\"))
@pytest.mark.parametrize("form", ["redis://:{}@host:6379/0", "unix://u:{}@/run/s", "{}@host", "redis://h?password={}"])
def test_no_part_of_a_password_shows_whatever_unquoted_sign_is_in_it(form: str, sign: str) -> None:
    url = form.format(f"hush{sign}quiet")
    told = ""
    try:
        make_client(url)
    except ConfigError as error:
        told = str(error)
    for text in (safe_url(url), told):
        assert "hush" not in text
        assert "quiet" not in text


@pytest.mark.parametrize(
    "told", ["redis://SECRET@host", "redis://SECRET@host:6379/0?ssl_ca_certs=/x", "redis://SECRET@h:p"]
)
def test_a_password_in_the_place_of_the_user_shows_in_no_message(told: str) -> None:
    error = translate(redis.AuthenticationError("invalid username-password pair", status_code="WRONGPASS"), told)
    refused = ""
    try:
        make_client(told)
    except ConfigError as problem:
        refused = str(problem)
    assert "SECRET" not in f"{error} {refused}"
    assert "redis://:PASSWORD@host" in str(error)


def test_an_unquoted_sign_in_a_password_names_no_part_of_it() -> None:
    with pytest.raises(ConfigError, match="%26") as caught:
        make_client("redis://host?password=hush&quiet=1")
    assert "quiet" not in str(caught.value)


def test_several_hosts_and_sentinels_are_taken_apart() -> None:
    cluster = parse_address("redis://u:p%40s@a:1,b,[::1]:3/0")
    assert [str(endpoint) for endpoint in cluster.endpoints] == ["a:1", "b:6379", "[::1]:3"]
    assert (cluster.username, cluster.password, cluster.primary, cluster.tls) == ("u", "p@s", "", False)
    sentinels = parse_address("rediss+sentinel://s1,s2:5/my%20main/3?sentinel_password=x")
    assert [str(endpoint) for endpoint in sentinels.endpoints] == ["s1:26379", "s2:5"]
    assert (sentinels.primary, sentinels.database, sentinels.tls) == ("my main", 3, True)
    assert sentinels.options == {"sentinel_password": "x"}


def test_a_client_retries_nothing_and_speaks_resp2_in_bytes() -> None:
    settings = make_client("redis://host:6379/3", block_ms=2_000, name="n").get_connection_kwargs()
    assert settings["retry"].get_retries() == 0
    assert settings["socket_timeout"] == 7.0
    assert settings["socket_connect_timeout"] == 5.0
    assert settings["health_check_interval"] == 0
    assert settings["protocol"] == 2
    assert settings["decode_responses"] is False
    assert settings["socket_keepalive"] is True
    assert settings["client_name"] == "n"
    assert settings["db"] == 3


def test_a_password_beside_the_url_is_used_where_the_url_has_none() -> None:
    assert make_client(with_password("redis://host", "p@s")).get_connection_kwargs()["password"] == "p@s"
    assert make_client(with_password("redis://:own@host", "p@s")).get_connection_kwargs()["password"] == "own"


@pytest.mark.parametrize(
    ("environ", "directory"),
    [
        ({"EVENTBUS_STATE_DIR": "/s", "XDG_STATE_HOME": "/x", "HOME": "/h"}, "/s"),
        ({"XDG_STATE_HOME": "/x", "HOME": "/h"}, "/x/eventbus"),
        ({"XDG_STATE_HOME": "relative", "HOME": "/h"}, "/h/.local/state/eventbus"),
        ({"HOME": "/h"}, "/h/.local/state/eventbus"),
    ],
)
def test_the_state_directory_follows_the_environment(environ: dict[str, str], directory: str) -> None:
    assert default_directory(environ) == Path(directory)


#: as redis-py 8 raises them: its class, the words without the code, the code
REPLIES: list[tuple[Exception, type[EventBusError], str]] = [
    (redis.ConnectionError("Connection closed by server."), BusUnavailable, "try again"),
    (redis.TimeoutError("Timeout reading from socket"), BusUnavailable, "in time"),
    (
        redis.BusyLoadingError("Redis is loading the dataset in memory", status_code="LOADING"),
        BusUnavailable,
        "loading",
    ),
    (
        redis.ReadOnlyError("You can't write against a read only replica.", status_code="READONLY"),
        BusUnavailable,
        "rep",
    ),
    (redis.exceptions.MasterDownError("Link with MASTER is down", status_code="MASTERDOWN"), BusUnavailable, "primary"),
    (redis.exceptions.ClusterDownError("The cluster is down", status_code="CLUSTERDOWN"), BusUnavailable, "failover"),
    (redis.exceptions.TryAgainError("Multiple keys request", status_code="TRYAGAIN"), BusUnavailable, "again"),
    (redis.ResponseError("BUSY Redis is busy running a script."), BusUnavailable, "busy"),
    (redis.ResponseError("MISCONF Errors writing to the AOF file"), BusUnavailable, "disk"),
    (redis.OutOfMemoryError("command not allowed", status_code="OOM"), BusUnavailable, "out of memory"),
    (
        redis.AuthenticationError("Authentication required.", status_code="NOAUTH"),
        PasswordRefused,
        "EVENTBUS_REDIS_PASSWORD",
    ),
    (redis.AuthenticationError("invalid username-password pair", status_code="WRONGPASS"), PasswordRefused, "password"),
    (redis.exceptions.NoPermissionError("no permissions", status_code="NOPERM"), BusRefused, "ACL"),
    (redis.ResponseError("Function not found", status_code="ERR"), FunctionsMissing, "load"),
    (redis.ResponseError("NOGROUP No such key 'k' or consumer group 'g'"), GroupMissing, "recreate it"),
    (redis.ResponseError("UNBLOCKED the stream key no longer exists"), GroupMissing, "recreate it"),
    (
        redis.ResponseError("UNBLOCKED force unblock from blocking operation, instance state changed"),
        BusUnavailable,
        "replica",
    ),
    (redis.exceptions.ClusterError("10.0.0.7:6379 is away: Connection refused"), BusUnavailable, "failover"),
    (redis.ResponseError("WRONGTYPE Operation against a key"), EventBusError, "WRONGTYPE"),
]


@pytest.mark.parametrize(("error", "leaf", "words"), REPLIES, ids=[str(error)[:30] for error, _, _ in REPLIES])
def test_each_error_of_redis_becomes_one_line_with_a_cure(
    error: Exception, leaf: type[EventBusError], words: str
) -> None:
    translated = translate(error, "redis://:secret@host:1/0")
    assert type(translated) is leaf
    assert words in str(translated)
    assert "redis://@host:1/0" in str(translated)
    assert "\n" not in str(translated)


def test_the_block_keeps_the_original_as_the_cause_and_lets_others_pass() -> None:
    original = redis.ConnectionError("gone")
    with pytest.raises(BusUnavailable) as caught, redis_errors():
        raise original
    assert caught.value.__cause__ is original
    with pytest.raises(KeyError), redis_errors():
        raise KeyError("mine")


def test_importing_the_module_does_not_import_redis() -> None:
    modules = "eventbus.broker.connection.connect, eventbus.broker.embedded.server"
    program = f"import sys, {modules}; sys.exit('redis' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


@pytest.mark.parametrize("url", ["unix://", "unix://?db=1", "unix://u:p@"])
def test_a_socket_without_a_path_is_told(url: str) -> None:
    with pytest.raises(ConfigError, match="names no socket"):
        make_client(url)


@pytest.mark.parametrize("option", ["ssl_ca_certs", "ssl_ca_path", "ssl_certfile", "ssl_keyfile"])
def test_a_file_of_tls_that_does_not_exist_is_told_by_its_option(option: str) -> None:
    with pytest.raises(ConfigError, match=f"{option}=/nope: there is no such file"):
        make_client(f"rediss://host:6379?{option}=/nope")
