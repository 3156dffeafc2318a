"""The doctor's findings about keys of another type, calls that were cut off, and values that were not ours."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from eventbus import Settings
from eventbus.broker.access.roles import name_of
from eventbus.broker.bus import Bus, open_bus
from eventbus.broker.connection.connect import Client, make_client
from eventbus.broker.health.findings import Finding, Severity
from eventbus.broker.health.key_checks import (
    KEY_TYPES,
    NAMED,
    NOTE_S,
    check_keys,
    expected,
    notes,
    read_spoiled,
    scan_keys,
)
from eventbus.broker.keys import Keys
from eventbus.errors import EventBusError
from tests.functions.servers import one_node_cluster

FIXED = sorted(key.decode() for key in expected(Keys("eb", 0)))


@pytest.fixture
def bus(embedded_url: str, prefix: str) -> Bus:
    return open_bus(embedded_url, Settings(prefix=prefix, partitions=3))


def check(bus: Bus, sleep: Callable[[float], object] = lambda seconds: None) -> list[Finding]:
    with bus.client() as client:
        return check_keys(client, bus.prefix, sleep=sleep)


def test_a_bus_that_is_well_has_nothing_spoiled(bus: Bus) -> None:
    (finding,) = check(bus)
    assert finding.severity is Severity.OK


def test_no_bus_is_nothing_to_be_said(embedded_url: str, prefix: str) -> None:
    with make_client(embedded_url) as client:
        assert check_keys(client, prefix) == []


@pytest.mark.parametrize("name", FIXED)
def test_a_key_of_another_type_is_named_with_the_cure_that_mends_it(bus: Bus, name: str) -> None:
    key = name.replace("eb:{0}:", f"{bus.prefix}:{{0}}:")
    must = expected(bus.keys[0])[key.encode()]
    with bus.client() as client:
        client.delete(key)
        client.sadd(key, "somebody else's")
        (finding,) = check(bus)
        goes_on = must.type == "string" and "note:" not in name
        assert finding.severity is (Severity.WARNING if goes_on else Severity.ERROR)
        assert f"{key} is a set, and must be a {must.type}: " in finding.message
        rename, _, rest = finding.cure.partition("; ")
        assert rest.startswith("what was there before is lost already: ")
        client.execute_command(*rename.split())
        assert [found.severity for found in check(bus)] == [Severity.OK]


ARCHITECTURE = Path(__file__).resolve().parents[2] / "docs" / "architecture.md"


def sample(name: str) -> str:
    """A key of that name, behind `eb:{p}:`, as it could be called on the partition 1."""
    start = name_of("eb", Keys("eb", 1), name).decode()
    return start.partition(":")[2].partition(":")[2] + {"object": ":events:" + "0" * 18}.get(
        name, "x" if start.endswith(":") else ""
    )


def test_what_each_key_must_be_is_declared_of_every_key_that_there_is() -> None:
    slots = set(Keys.__slots__) - {"partition", "root"}
    assert set(KEY_TYPES) == slots | {"bus", "changes", "version", "note"}
    row = r"^\| `eb:\{[0p]\}:([\w:]+)[^`]*`(?:, `…:([\w:]+)`)? \| (\w+)"
    rows = re.findall(row, ARCHITECTURE.read_text("utf-8"), re.M)
    documented = {name: kind for *names, kind in sorted(rows, reverse=True) for name in names if name}
    for name, must in KEY_TYPES.items():
        key = name_of("eb", Keys("eb", 0), name).decode().removeprefix("eb:{0}:")
        found = next((kind for start, kind in documented.items() if f"{key}:".startswith(start)), None)
        assert {"sorted": "zset"}.get(str(found), found) == must.type, f"{key}: the page says {found}"


@pytest.mark.parametrize("name", sorted(set(KEY_TYPES) - {"bus"}))
def test_a_key_that_is_named_by_what_it_holds_is_found_all_the_same(bus: Bus, name: str) -> None:
    key = f"{bus.prefix}:{{1}}:{sample(name)}".encode()
    with bus.client() as client:
        client.delete(key)
        client.sadd(key, "somebody else's")
        (finding,) = check(bus)
        assert f"{key.decode()} is a set, and must be a {KEY_TYPES[name].type}: " in finding.message
        client.execute_command(*finding.cure.partition("; ")[0].split())
        assert [found.severity for found in check(bus)] == [Severity.OK]


def test_what_belongs_to_groups_and_sinks_is_named_in_the_status_too(bus: Bus) -> None:
    keys = bus.keys[2]
    with bus.client() as client:
        client.hset(keys.meta, "export:file", "1")
        spoiled = [keys.attempts + b"sink", keys.export + b"file", keys.later + b"file"]
        for key in spoiled:
            client.sadd(key, "somebody else's")
        lines = read_spoiled(client, bus.keys)
    assert [line.partition(" is a set")[0].encode() for line in lines] == spoiled


def test_of_many_some_are_named_and_all_are_counted(bus: Bus) -> None:
    with bus.client() as client:
        for n in range(NAMED + 4):
            client.sadd(bus.keys[0].producer + b"%d" % n, "somebody else's")
        *named, more = check(bus)
    assert len(named) == NAMED
    assert more.message == "partition 0: 4 more keys are something else than they must be"


def test_a_server_with_more_keys_than_are_looked_at_is_said_so(bus: Bus) -> None:
    with bus.client() as client:
        for n in range(30):
            client.hset(bus.keys[0].producer + b"%d" % n, "last", 1)
        scanned = scan_keys(client, bus.prefix, bus.keys, most=0)
    assert (scanned.spoiled, scanned.whole) == ({}, False)


def test_the_bus_key_itself_is_named(bus: Bus) -> None:
    key = f"{bus.prefix}:{{0}}:bus"
    with bus.client() as client:
        client.rename(key, "away")
        client.rpush(key, "x")
        (finding,) = check(bus)
        client.delete(key, "away")
    assert (finding.severity, f"{key} is a list, and must be a hash" in finding.message) == (Severity.ERROR, True)


def cut_off(bus: Bus, client: Client, group: str) -> bytes:
    """A call of a user who lacks one right of those that it takes; the note that it leaves."""
    user = f"{bus.prefix}-half"
    client.execute_command("ACL", "SETUSER", user, "on", ">half", "~*", "+@all", "-xgroup|create")
    with make_client(bus.url.replace("unix://", f"unix://{user}:half@")) as half, pytest.raises(EventBusError):
        bus.functions(half, 1).open("0" * 16, group)
    client.execute_command("ACL", "DELUSER", user)
    (note,) = [key for key in notes(bus.keys[1], client.hgetall(bus.keys[1].meta)) if client.exists(key)]
    return note


def test_a_call_that_was_cut_off_and_is_not_finished_is_told_with_the_cure(bus: Bus) -> None:
    slept: list[float] = []
    with bus.client() as client:
        note = cut_off(bus, client, "audit")
        (finding,) = check(bus, slept.append)
        assert slept == [NOTE_S]
        assert finding.severity is Severity.WARNING
        assert finding.message.startswith("partition 1: a call was cut off half-way")
        assert note.decode() in finding.message
        assert "eventbus doctor --role worker" in finding.cure
        client.delete(bus.keys[1].dead)
        client.set(bus.keys[1].dead, "x")
        spoiled, finding = check(bus)
        assert f"mend {bus.keys[1].dead.decode()}" in finding.cure
        assert spoiled.severity is Severity.ERROR
        client.delete(bus.keys[1].dead)
        bus.functions(client, 1).open("0" * 16, "other")  # whoever writes next finishes it
    assert [found.severity for found in check(bus, slept.append)] == [Severity.OK]
    assert slept == [NOTE_S]


def test_a_call_that_is_finished_while_the_doctor_waits_is_not_told(bus: Bus) -> None:
    with bus.client() as client:
        cut_off(bus, client, "audit")
        found = check(bus, lambda seconds: bus.functions(client, 1).open("0" * 16, "other"))
    assert [finding.severity for finding in found] == [Severity.OK]


def test_values_that_were_not_ours_are_told_with_the_last_key(bus: Bus) -> None:
    with bus.client() as client:
        client.hset(bus.keys[2].spoiled, mapping={"times": "2", "last_key": b"eb:{2}:spam:\xff"})
        (finding,) = check(bus)
        assert finding.severity is Severity.WARNING
        assert finding.message.startswith("partition 2: 2 values of the store were not ours")
        client.execute_command(*finding.cure.partition("; then ")[2].split())
        client.hset(bus.keys[2].spoiled, "times", "garbage")
        assert [found.severity for found in check(bus)] == [Severity.OK]


def test_who_may_not_ask_is_told_so(bus: Bus) -> None:
    user = f"{bus.prefix}-blind"
    with bus.client() as client:
        client.execute_command("ACL", "SETUSER", user, "on", ">blind", "~*", "+@all", "-type")
        try:
            with make_client(bus.url.replace("unix://", f"unix://{user}:blind@")) as blind:
                (finding,) = check_keys(blind, bus.prefix)
        finally:
            client.execute_command("ACL", "DELUSER", user)
    assert (finding.severity, "role metrics" in finding.message) == (Severity.OK, True)


def test_on_a_cluster_every_partition_is_looked_at_and_mended_in_its_place(short_path: Path, prefix: str) -> None:
    with one_node_cluster(short_path) as url:
        bus = open_bus(url, Settings(prefix=prefix, partitions=8))
        with bus.client() as client:
            assert [found.severity for found in check_keys(client, prefix)] == [Severity.OK]
            for keys in (bus.keys[2], bus.keys[7]):
                client.set(keys.suppressed, "x")
            found = check_keys(client, prefix)
            assert [bus.keys[n].suppressed.decode() in found[i].message for i, n in enumerate((2, 7))] == [True, True]
            for finding in found:
                client.execute_command(*finding.cure.partition("; ")[0].split())
            assert [found.severity for found in check_keys(client, prefix)] == [Severity.OK]
