"""The findings of `doctor` about keys of a wrong type, interrupted calls, and corrupt values."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from eventbus import Settings
from eventbus.broker.bus import Bus, open_bus
from eventbus.broker.connection.connect import Client, make_client
from eventbus.broker.health.findings import Finding, Severity
from eventbus.broker.health.key_checks import NOTE_S, check_keys, expected, notes
from eventbus.broker.keys import EVENTS, Keys
from eventbus.errors import EventBusError
from eventbus.model.kinds import KINDS
from tests.functions.servers import one_node_cluster


@pytest.fixture
def bus(embedded_url: str, prefix: str) -> Bus:
    return open_bus(embedded_url, Settings(prefix=prefix, partitions=3))


def check(bus: Bus, sleep: Callable[[float], object] = lambda seconds: None) -> list[Finding]:
    with bus.client() as client:
        return check_keys(client, bus.prefix, sleep=sleep)


def test_a_healthy_bus_has_one_finding(bus: Bus) -> None:
    (finding,) = check(bus)
    assert finding.severity is Severity.OK


def test_without_a_bus_there_is_no_finding(embedded_url: str, prefix: str) -> None:
    with make_client(embedded_url) as client:
        assert check_keys(client, prefix) == []


ARCHITECTURE = Path(__file__).resolve().parents[2] / "docs" / "architecture.md"


#: Every key with a known name on the first partition, without the start, and its type; of all kinds only events.
KNOWN = {
    key.decode().removeprefix("eb:{0}:"): must
    for key, must in expected(Keys("eb", 0), {b"floor:sink": b"", b"export:file": b""}).items()
    if not any(f":{kind.plural}" in key.decode() for kind in KINDS if kind.plural != EVENTS)
}


def test_every_type_is_that_of_the_architecture_page() -> None:
    row = r"^\| `eb:\{[0p]\}:([\w:]+)[^`]*`(?:, `…:([\w:]+)`)? \| (\w+)"
    rows = re.findall(row, ARCHITECTURE.read_text("utf-8"), re.M)
    documented = {name: kind for *names, kind in sorted(rows, reverse=True) for name in names if name}
    assert len(KNOWN) > 20
    for key, must in KNOWN.items():
        kind = documented.get(key) or next(kind for start, kind in documented.items() if key.startswith(start))
        assert {"sorted": "zset"}.get(kind, kind) == must, f"{key}: the page says {kind}"


def test_a_key_of_a_wrong_type_is_named_with_a_cure_that_works(bus: Bus) -> None:
    with bus.client() as client:
        for name, must in KNOWN.items():
            key = f"{bus.prefix}:{{0}}:{name}"
            client.hset(bus.keys[0].meta, mapping={"floor:sink": "0-0", "export:file": "1"})
            client.delete(key)
            client.sadd(key, "not ours")
            (finding,) = check_keys(client, bus.prefix, sleep=lambda _s: None)
            assert finding.severity is (Severity.WARNING if name.startswith("version") else Severity.ERROR), name
            assert f"{key} is a set, and must be a {must}: " in finding.message
            rename, _, rest = finding.cure.partition("; ")
            assert rest == "its former content is lost already"
            client.execute_command(*rename.split())
            found = check_keys(client, bus.prefix, sleep=lambda _s: None)
            assert [each.severity for each in found] == [Severity.OK], name


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


def test_an_interrupted_call_is_reported_with_its_cure(bus: Bus) -> None:
    slept: list[float] = []
    with bus.client() as client:
        note = cut_off(bus, client, "audit")
        (finding,) = check(bus, slept.append)
        assert slept == [NOTE_S]
        assert finding.severity is Severity.WARNING
        assert finding.message.startswith("partition 1: a call was interrupted")
        assert note.decode() in finding.message
        assert "eventbus doctor --role worker" in finding.cure
        client.delete(bus.keys[1].dead)
        client.set(bus.keys[1].dead, "x")
        wrong, finding = check(bus)
        assert f"rename {bus.keys[1].dead.decode()}" in finding.cure
        assert wrong.severity is Severity.ERROR
        client.delete(bus.keys[1].dead)
        bus.functions(client, 1).open("0" * 16, "other")  # whoever writes next finishes it
    assert [found.severity for found in check(bus, slept.append)] == [Severity.OK]
    assert slept == [NOTE_S]


def test_a_call_that_is_completed_while_the_doctor_waits_is_not_reported(bus: Bus) -> None:
    with bus.client() as client:
        cut_off(bus, client, "audit")
        found = check(bus, lambda seconds: bus.functions(client, 1).open("0" * 16, "other"))
    assert [finding.severity for finding in found] == [Severity.OK]


def test_replaced_corrupt_values_are_reported_with_the_last_key(bus: Bus) -> None:
    with bus.client() as client:
        client.hset(bus.keys[2].corrupt, mapping={"times": "2", "last_key": b"eb:{2}:spam:\xff"})
        (finding,) = check(bus)
        assert finding.severity is Severity.WARNING
        assert finding.message.startswith("partition 2: 2 corrupt values were replaced")
        client.execute_command(*finding.cure.partition("; then ")[2].split())
        client.hset(bus.keys[2].corrupt, "times", "garbage")
        assert [found.severity for found in check(bus)] == [Severity.OK]


def test_a_user_without_the_right_to_ask_gets_a_finding(bus: Bus) -> None:
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
