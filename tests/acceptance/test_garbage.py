"""Foreign values in our keys' places give one clear line, or the rest of the page, and never a traceback."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from eventbus import Settings
from eventbus.broker.bus import open_bus
from eventbus.broker.connection.connect import make_client
from eventbus.broker.exports import ExportStore
from eventbus.broker.functions import GroupPolicy
from eventbus.broker.stream_reader import GroupReader
from eventbus.errors import ConfigError
from tests.acceptance.programs import environment, run
from tests.thin import one

COMMANDS = [("status",), ("doctor",), ("options", "get"), ("get", "events"), ("get", "suppressed")]


@pytest.fixture
def env(embedded_url: str, prefix: str) -> dict[str, str]:
    open_bus(embedded_url, Settings(prefix=prefix))
    return environment(embedded_url, prefix)


def spoil(env: Mapping[str, str], command: str, key: str, *words: str | bytes) -> None:
    with make_client(env["EVENTBUS_REDIS_URL"]) as admin:
        admin.execute_command(command, f"{env['EVENTBUS_PREFIX']}:{{0}}:{key}", *words)


def assert_told(env: Mapping[str, str], *words: str) -> str:
    """No traceback; if it fails, one line. What it said."""
    ran = run(*words, env=env)
    said = ran.stdout + ran.stderr
    assert "Traceback" not in said, said
    if ran.returncode and words != ("doctor",):
        assert ran.stderr.startswith("error: "), said
        assert ran.stderr.count("\n") == 1, said
    return said


@pytest.mark.parametrize(
    ("field", "value", "told"),
    [
        ("partitions", "many", "'many' partitions, which is no number from 1 to 1024: HSET "),
        ("options_version", "x", "is 'x', no number: `eventbus options set`"),
        ("options", b"\xff", "options that this version cannot use"),
    ],
    ids=["partitions", "version", "options"],
)
@pytest.mark.parametrize("words", one(COMMANDS), ids=" ".join)
def test_garbage_in_the_bus_key(
    env: dict[str, str], words: tuple[str, ...], field: str, value: str | bytes, told: str
) -> None:
    spoil(env, "HSET", "bus", field, value)
    said = assert_told(env, *words)
    if words == ("status",):
        assert told in said


def test_an_options_version_that_is_no_number_is_mended_as_it_says(env: dict[str, str]) -> None:
    spoil(env, "HSET", "bus", "options_version", "x")
    assert run("options", "set", "burst=25", env=env).returncode == 0
    assert run("status", env=env).returncode == 0


@pytest.mark.parametrize("words", one(COMMANDS), ids=" ".join)
@pytest.mark.parametrize(
    ("command", "key", "value"),
    [
        ("HSET", "suppressed", ("S\0a\0Pod\0Normal\0Seen", "many")),
        ("HSET", "suppressed", ("S\0a\0Pod\0Normal\0Seen", "9" * 5000)),
        ("HSET", "suppressed", (b"\xff\0\xfe", b"\xff")),
        ("HSET", "meta", ("created", "9" * 5000, b"lost:\xff", b"\xff", b"floor:\xff", "x", b"export:\xff", "1")),
        ("HSET", "incoming:meta", ("events", "9" * 5000, "bytes", "-1", b"losses:\xff", "1")),
        ("HSET", "workers", (b"sink/\xff\xfe", b"\xff")),
        ("HSET", "meta", ("export:files", "1")),
        ("SET", "version:events", ("many",)),
        ("SET", "version:events", ("9" * 5000 + " " + "9" * 5000,)),
        ("SET", "version:events", (b"\xff\xfe",)),
        ("HSET", "meta", ("mended", "9" * 5000, "mended_last", b"\xff", "generation", b"\xff")),
    ],
    ids=[
        "word",
        "digits",
        "bytes",
        "meta",
        "incoming-meta",
        "workers",
        "sink",
        "version",
        "version-digits",
        "version-bytes",
        "mended",
    ],
)
def test_garbage_elsewhere(
    env: dict[str, str], words: tuple[str, ...], command: str, key: str, value: tuple[str | bytes, ...]
) -> None:
    spoil(env, command, key, *value)
    if "export:files" in value:
        garbage = ("holder", b"\xff\xfe", "position", "many", "sign_ms", "9" * 5000, b"\xff", "x", "lag", b"\xff")
        spoil(env, "HSET", "export:files", *garbage)
    assert_told(env, *words)


@pytest.mark.parametrize("interval", ["nan", "inf", "-inf", "1e300", "0"])
def test_an_interval_that_cannot_be_waited_for_is_refused(env: dict[str, str], interval: str) -> None:
    ran = run("status", "--watch", f"--interval={interval}", env=env)
    assert ran.returncode == 2
    assert "Traceback" not in ran.stderr
    assert "'--interval'" in ran.stderr


def test_a_worker_whose_name_is_not_utf8_is_taken_over_from_like_any_other(env: dict[str, str]) -> None:
    settings = Settings(prefix=env["EVENTBUS_PREFIX"], worker_block_ms=10)
    bus = open_bus(env["EVENTBUS_REDIS_URL"], settings)
    with bus.client() as client:
        reader = GroupReader(
            bus=bus, client=client, partition=0, group="sink", consumer="mine", policy=GroupPolicy.WAIT, start="0"
        )
        client.xadd(bus.keys[0].incoming, {"n": "1", "to": "1", "at": "0", "b": b"x"})
        client.xreadgroup("sink", b"\xff\xfe", {bus.keys[0].incoming: ">"})
        client.hset(bus.keys[0].workers, b"sink/\xff\xfe", b"7\xff")
        beats = reader.heartbeats()
        assert beats == {"\udcff\udcfe": "7\udcff"}
        (taken,) = reader.claim(*next(iter(beats.items())))
        assert taken.deaths == 1


def test_a_holder_of_a_sink_whose_name_is_not_utf8_is_taken_over_from(env: dict[str, str]) -> None:
    bus = open_bus(env["EVENTBUS_REDIS_URL"], Settings(prefix=env["EVENTBUS_PREFIX"]))
    with bus.client() as client:
        store = ExportStore(bus=bus, client=client, partition=0, sink="files", consumer="mine")
        assert store.acquire().ours
        spoil(env, "HSET", "export:files", "holder", b"\xff\xfe")
        spoil(env, "HSET", "workers", b"export:files/\xff\xfe", b"7\xff")
        held = store.acquire()
        assert (held.ours, held.holder, held.beats) == (False, "\udcff\udcfe", "7\udcff")
        assert store.acquire(held.holder, held.beats).ours
        spoil(env, "HSET", "export:files", "position", "many")
        with pytest.raises(ConfigError, match=r"position of sink files on partition 0 is no number: HDEL .* position"):
            store.acquire()
