"""`eventbus dead …` as processes: what is buried is listed, shown, given back once, or let go."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from eventbus.broker.bus import Bus
from eventbus.model.encoding.wire import pack_batch, pack_event
from eventbus.store.object_store import ObjectStore
from tests.acceptance.programs import Program, run
from tests.builders import make_event
from tests.waiting import eventually

GOOD = pack_event(make_event(message="was handled too early"))


def bury(bus: Bus, client: Any, body: bytes, *, group: str = "sink", cause: str = "unreadable") -> None:
    """Bury an entry as the group's worker would."""
    keys = bus.keys[0]
    bus.open_partition(client, 0, group)
    entry = client.xadd(keys.incoming, {"n": 1, "to": 1, "at": 0, "b": body})
    while client.xreadgroup(group, "w", {keys.incoming: ">"}):
        pass
    assert bus.functions(client, 0).bury(group, "w", entry, cause, 0, body)


def dead(env: dict[str, str], *words: str) -> list[dict[str, Any]]:
    listed = run("dead", "list", "-o", "json", *words, env=env)
    assert listed.returncode == 0, listed.stderr
    found: list[dict[str, Any]] = json.loads(listed.stdout)
    return found


def test_nothing_buried_is_said_and_is_no_error(env: dict[str, str]) -> None:
    listed = run("dead", "list", env=env)
    assert (listed.returncode, listed.stdout, listed.stderr) == (0, "", "There are no dead letters.\n")
    assert dead(env) == []


def test_the_list_tells_who_buried_what_and_why(env: dict[str, str], bus: Bus, client: Any) -> None:
    bury(bus, client, b"\xc1")
    bury(bus, client, pack_batch("p", 7, [GOOD]), group="billing", cause="handler-failed")
    lines = run("dead", "list", env=env).stdout.splitlines()
    assert lines[0].split() == ["ID", "AGE", "GROUP", "CAUSE", "DEATHS", "BYTES", "OBJECT", "MESSAGE"]
    assert "unreadable" in lines[1]
    assert "<unreadable>" in lines[1]
    assert "billing" in lines[2]
    assert "was handled too early" in lines[2]
    first, second = dead(env)
    assert (first["group"], first["cause"], first["bytes"], first["events"]) == ("sink", "unreadable", "c1", [])
    assert second["events"][0]["metadata"]["uid"] == "p:7"
    assert run("dead", "list", "-o", "name", env=env).stdout == f"{first['id']}\n{second['id']}\n"


def test_filters_are_by_group_and_by_cause(env: dict[str, str], bus: Bus, client: Any) -> None:
    bury(bus, client, b"1", group="a", cause="unreadable")
    bury(bus, client, b"2", group="a", cause="too-long")
    bury(bus, client, b"3", group="b", cause="unreadable")
    bodies = {words: [bytes.fromhex(entry["bytes"]) for entry in dead(env, *words)] for words in FILTERS}
    assert bodies == FILTERS


FILTERS: dict[tuple[str, ...], list[bytes]] = {
    ("--group", "a"): [b"1", b"2"],
    ("--cause", "unreadable"): [b"1", b"3"],
    ("--group", "a", "--cause", "unreadable"): [b"1"],
    ("--group", "c"): [],
}


def test_one_entry_is_shown_with_its_events_or_its_bytes(
    env: dict[str, str], bus: Bus, client: Any, tmp_path: Path
) -> None:
    bury(bus, client, pack_batch("p", 7, [GOOD]))
    bury(bus, client, b"\xc1\x00\x1b")
    readable, unreadable = (entry["id"] for entry in dead(env))
    shown = run("dead", "show", readable, env=env).stdout
    assert "UID:       p:7" in shown
    assert "Message:   was handled too early" in shown
    assert "Begins:  c1 00 1b" in run("dead", "show", unreadable, env=env).stdout
    with Program("dead", "show", unreadable, "-o", "raw", env=env, folder=tmp_path) as raw:
        assert raw.wait() == 0
    assert (tmp_path / "program-0.out").read_bytes() == b"\xc1\x00\x1b"
    assert json.loads(run("dead", "show", readable, "-o", "json", env=env).stdout)["id"] == readable


def test_what_a_buried_event_says_cannot_fool_the_terminal(env: dict[str, str], bus: Bus, client: Any) -> None:
    bury(bus, client, pack_batch("p", 1, [pack_event(make_event(message="\x1b[2Jgone\r\n\u202eevil"))]))
    (entry,) = dead(env)
    for text in (run("dead", "list", env=env).stdout, run("dead", "show", entry["id"], env=env).stdout):
        assert not {"\x1b", "\r", "\u202e"} & set(text)
        assert "\\x1b[2Jgone" in text


def test_a_replayed_entry_is_recorded_once_however_often_it_is_replayed(
    env: dict[str, str], bus: Bus, client: Any, tmp_path: Path
) -> None:
    bury(bus, client, pack_batch("p", 1, [GOOD]), cause="killed-worker")
    (entry,) = dead(env)
    replayed = run("dead", "replay", entry["id"], env=env)
    assert (replayed.returncode, replayed.stdout) == (0, f"dead/{entry['id']} replayed\n")
    again = run("dead", "replay", entry["id"], env=env)
    assert again.returncode == 1
    assert entry["id"] in again.stderr
    assert dead(env) == []
    with Program("worker", "sink", env=env, folder=tmp_path):
        eventually(lambda: [event.count for event in stored(bus, client)] == [1])
        # The worker's own first event may be under way.
        eventually(lambda: client.xpending(bus.keys[0].incoming, "sink")["pending"] == 0)
    assert [event.count for event in stored(bus, client)] == [1]


def test_what_was_done_is_told_as_json(env: dict[str, str], bus: Bus, client: Any) -> None:
    bury(bus, client, b"1")
    bury(bus, client, b"2")
    first, second = (entry["id"] for entry in dead(env))
    ran = run("dead", "discard", first, "0/1-1", "-o", "json", env=env)
    assert (ran.returncode, json.loads(ran.stdout)) == (1, {"discarded": [first], "notFound": ["0/1-1"]})
    ran = run("dead", "replay", "--all", "--yes", "-o", "json", env=env)
    assert (ran.returncode, json.loads(ran.stdout)) == (0, {"replayed": [second], "notFound": []})
    ran = run("dead", "replay", "--all", "-o", "json", env=env)
    assert (ran.returncode, json.loads(ran.stdout)) == (0, {"replayed": [], "notFound": []})


def stored(bus: Bus, client: Any) -> list[Any]:
    return [event for event in ObjectStore(bus, client).list().items if event.message == "was handled too early"]


@pytest.mark.parametrize(("verb", "done"), [("replay", "replayed"), ("discard", "discarded")])
def test_all_asks_first_and_takes_the_filters(env: dict[str, str], bus: Bus, client: Any, verb: str, done: str) -> None:
    for body in (b"1", b"2", b"3"):
        bury(bus, client, body, group="a")
    bury(bus, client, b"4", group="b")
    unsure = run("dead", verb, "--all", "--group", "a", env=env)
    assert unsure.returncode == 1
    assert "3 entries?" in unsure.stderr
    assert unsure.stderr.endswith("Error: this needs an answer, and standard input is not a terminal: add --yes\n")
    assert len(dead(env)) == 4
    sure = run("dead", verb, "--all", "--group", "a", "--yes", env=env)
    assert sure.returncode == 0
    assert sure.stdout.count(done) == 3
    assert [entry["group"] for entry in dead(env)] == ["b"]


def test_discarded_entries_are_gone_and_counted(env: dict[str, str], bus: Bus, client: Any) -> None:
    bury(bus, client, b"\xc1")
    (entry,) = dead(env)
    assert run("dead", "discard", entry["id"], env=env).stdout == f"dead/{entry['id']} discarded\n"
    assert run("dead", "discard", entry["id"], env=env).returncode == 1
    assert dead(env) == []
    assert client.hget(bus.keys[0].meta, "discarded") == b"1"


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("show", "0/1-1"), 1),
        (("show", "9/1-1"), 1),
        (("show", "nonsense"), 1),
        (("replay",), 2),
        (("discard",), 2),
        (("replay", "0/1-1", "--all"), 2),
        (("discard", "0/1-1", "--group", "a"), 2),
        (("list", "-o", "yaml"), 2),
    ],
)
def test_what_is_not_there_is_1_and_wrong_usage_is_2(env: dict[str, str], words: tuple[str, ...], code: int) -> None:
    ended = run("dead", *words, env=env)
    assert ended.returncode == code, ended.stderr
    assert ended.stdout == ""
    assert "Traceback" not in ended.stderr


def test_what_a_deleted_group_has_buried_is_kept_and_said(env: dict[str, str], bus: Bus, client: Any) -> None:
    bury(bus, client, pack_batch("p", 7, [GOOD]), group="billing", cause="handler-failed")
    bury(bus, client, pack_batch("p", 8, [GOOD]))
    assert run("group", "delete", "billing", "--yes", "--force", env=env).returncode == 0
    orphan, other = (entry["id"] for entry in dead(env))

    replayed = run("dead", "replay", "--all", "--yes", env=env)

    assert (replayed.returncode, replayed.stdout) == (1, f"dead/{other} replayed\n")
    (line,) = replayed.stderr.splitlines()
    assert f"dead/{orphan} stays: group 'billing', which buried it, is no more" in line
    assert [entry["id"] for entry in dead(env)] == [orphan]
