"""The library as a whole: what the headers promise is what `functions.py` sends, and who loads it when."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

import msgspec
import pytest

from eventbus.broker import build as build_module
from eventbus.broker import function_library, functions
from eventbus.broker.build import build, function_name, library, library_name
from eventbus.broker.bus import open_bus
from eventbus.broker.exports import ExportCheckpoint, ExportStore, UpdateState
from eventbus.broker.functions import GroupPolicy
from eventbus.broker.notifications import NotifyStore
from eventbus.model.formats import FORMATS
from eventbus.settings import Settings
from eventbus.store.object_store import ObjectStore
from tests.builders import make_event
from tests.functions.partition import Partition
from tests.functions.servers import own_server

LUA = files("eventbus.broker") / "lua"
VERBS = build_module.VERBS
#: keys and arguments of a header: number, an ellipsis if any number follow, and for keys the patterns and the type
KEY = re.compile(r"KEYS\[(\d+)(…?)\]\s+((?:\S+, )*\S+)\s+(STREAM|HASH|ZSET|STRING(?:\|HASH)?)")
ARGUMENT = re.compile(r"ARGV\[(\d+)(…?)\]")


class Header(msgspec.Struct):
    """The keys and arguments that the comment above a function describes."""

    keys: list[tuple[list[str], str]]
    more_keys: bool
    arguments: int
    more_arguments: bool


def source(part: str) -> str:
    return (LUA / f"{part}.lua").read_text(encoding="utf-8")


def header(verb: str) -> Header:
    lines = source(verb).split("\n\n")[0]
    assert all(line.startswith("--") for line in lines.splitlines()), f"{verb}.lua begins with its header"
    keys = KEY.findall(lines)
    arguments = [(int(number), bool(more)) for number, more in ARGUMENT.findall(lines)]
    assert [int(number) for number, *_ in keys] == list(range(1, len(keys) + 1))
    assert sorted({number for number, _ in arguments}) == list(range(1, len(arguments) + 1))
    patterns = [([p.removeprefix("eb:{p}:") for p in text.split(", ")], kind) for *_, text, kind in keys]
    return Header(
        patterns,
        any(more for _, more, *_ in keys),
        len(arguments),
        any(more for _, more in arguments),
    )


def _publish(partition: Partition) -> None:
    partition.publish_raw(1, losses=[("dropped", 1)])


def _record(partition: Partition) -> None:
    partition.record(make_event())


def _export(partition: Partition) -> ExportStore:
    return ExportStore(bus=partition.bus, client=partition.client, partition=0, sink="file", consumer="one")


def _notifier(partition: Partition) -> NotifyStore:
    return NotifyStore(bus=partition.bus, client=partition.client, consumer="one")


#: As it lies in Redis, written through the store.
EVENT = functions.pack_argument(
    [1, 0, "e", "default", "", 1, 0, 0, 0, "u", False, "w", "default/pod/web-0", b"{}", *[False] * 7]
)

#: A call of each function by its typed method. Who adds a function adds a line.
CALLS: dict[str, Callable[[Partition], object]] = {
    "open": lambda partition: partition.call.open("f" * 16, "log", GroupPolicy.DROP, "$"),
    "publish": _publish,
    "publish_once": lambda partition: partition.publish_once("a", "b"),
    "correlate_and_store": _record,
    "trim": lambda partition: partition.call.trim(partition.options),
    "bury": lambda partition: partition.call.bury("sink", "one", b"1-1", "unreadable", 1, b""),
    "replay": lambda partition: partition.call.replay(partition.options, b"1-1"),
    "discard": lambda partition: partition.call.discard(b"1-1"),
    "beat": lambda partition: partition.client.execute_command(*functions.beat_command(partition.keys, "sink", "one")),
    "isolate": lambda partition: partition.call.isolate("sink", "one", b"1-1", 0),
    "claim": lambda partition: partition.call.claim("sink", "one", "two", ""),
    "expire": lambda partition: partition.call.expire(partition.options, [b"0" * 14, b"1" * 14]),
    "forget": lambda partition: partition.call.forget(partition.options, {b"0" * 14: 0}),
    "refresh": lambda partition: partition.call.refresh(partition.options, [b"0" * 14]),
    "finish": lambda partition: partition.call.finish("nodes"),
    "put": lambda partition: partition.call.put(
        partition.options, functions.Item(plural="nodes", namespace="", name="n1", key=b"0" * 14, body=b"{}"), ""
    ),
    "remove": lambda partition: partition.call.remove(partition.options, "nodes", b"0" * 14),
    "put_client_event": lambda partition: partition.client.execute_command(
        *partition.call.put_client_event_command(
            partition.options, b"0" * 14, "", EVENT, happened=functions.Happened(1, 28_000_000, "a\0b\0c\0d")
        )
    ),
    "overlay_event": lambda partition: partition.call.overlay_event(partition.options, b"0" * 14, "1", b"{}", b""),
    "remove_event": lambda partition: partition.call.remove_event(partition.options, b"0" * 14),
    "export_acquire": lambda partition: _export(partition).acquire(),
    "export_settle": lambda partition: _export(partition).settle(
        ExportCheckpoint(position=1, returned={"0" * 14: UpdateState("name", "1", 1, 1, 0)})
    ),
    "export_release": lambda partition: _export(partition).release(),
    "checkpoint": lambda partition: partition.call.checkpoint([1], whole=True),
    "notify_acquire": lambda partition: _notifier(partition).acquire("rules"),
    "notify_settle": lambda partition: _notifier(partition).settle({"a1": b"alert"}, {}, life_ms=1000),
    "notify_release": lambda partition: _notifier(partition).release(),
    "announce": lambda partition: partition.call.announce("worker", "host-1"),
    "export_retry": lambda partition: partition.call.export_retry("file", b"1-1"),
}


def sent_by(partition: Partition, verb: str) -> tuple[list[bytes], list[Any]]:
    """Keys and arguments of one call of the function, as `functions.py` sends them."""
    sent: dict[str, tuple[list[bytes], list[Any]]] = {}
    execute = partition.client.execute_command

    def note(*args: Any, **options: Any) -> Any:
        count = int(args[2])
        sent[args[1]] = (list(args[3 : 3 + count]), list(args[3 + count :]))
        return execute(*args, **options)

    partition.client.execute_command = note
    CALLS[verb](partition)
    return sent[function_name(verb)]


def matches(key: str, patterns: list[str]) -> bool:
    """`producer:<id>` and `object:…` stand for every key that begins so; `index:name` for index:name:<kind>."""
    beginnings = [re.split("[<…]", pattern)[0] for pattern in patterns]
    return any(key == start or (key.startswith(start) and start.endswith(":")) for start in beginnings) or any(
        key == f"{start}:events" for start in beginnings
    )


@pytest.mark.parametrize("verb", VERBS)
def test_keys_and_arguments_are_those_of_the_header(partition: Partition, verb: str) -> None:
    assert verb in CALLS, f"add a call of {verb} to this test"
    said, (keys, arguments) = header(verb), sent_by(partition, verb)
    if said.more_keys:
        assert len(keys) >= len(said.keys) - 1
    else:
        assert len(keys) == len(said.keys)
    if said.more_arguments:
        assert len(arguments) >= said.arguments - 1
    else:
        assert len(arguments) == said.arguments
    for i, key in enumerate(keys):
        patterns, kind = said.keys[min(i, len(said.keys) - 1)]
        name = key.decode().removeprefix(partition.keys.root.decode())
        assert matches(name, patterns), f"KEYS[{i + 1}] is {name}, the header says {patterns}"
        assert partition.admin.type(key).decode().upper() in (*kind.split("|"), "NONE"), name


def test_whether_it_runs_when_memory_is_full_is_what_the_header_says(partition: Partition) -> None:
    (library,) = (
        dict(zip(found[::2], found[1::2], strict=True))
        for found in partition.admin.execute_command("FUNCTION", "LIST", "LIBRARYNAME", library_name())
    )
    flags = {}
    for found in library[b"functions"]:
        function = dict(zip(found[::2], found[1::2], strict=True))
        flags[function[b"name"].decode()] = set(function[b"flags"])
    said = {
        function_name(verb): {b"allow-oom"} if "llowed when memory is full" in source(verb).split("\n\n")[0] else set()
        for verb in VERBS
    }
    assert flags == said | {function_name("build"): {b"no-writes"}}
    refused = {name for name, found in flags.items() if not found}
    assert refused == set(map(function_name, ("publish", "publish_once", "replay", "export_retry"))), (
        "what else may not run while a full server drains?"
    )


@pytest.fixture
def own(short_path: Path) -> Iterator[Any]:
    """A client of a server whose functions may be replaced."""
    with own_server(short_path) as server:
        partition = Partition(str(server.url), "own")
        yield partition
        partition.close()


# -- who loads it --------------------------------------------------------------------------------------------------


def libraries(partition: Partition) -> set[str]:
    """The names of the libraries on the server."""
    found = partition.admin.execute_command("FUNCTION", "LIST")
    return {dict(zip(each[::2], each[1::2], strict=True))[b"library_name"].decode() for each in found}


def another_build(of: str = "0123abcd") -> str:
    """The source of a build that differs in its name alone."""
    return library().replace(build(), of)


def test_the_library_of_another_build_is_left_alone(own: Partition) -> None:
    own.admin.function_flush()
    own.admin.function_load(another_build())

    assert function_library.load(own.admin) is True
    assert function_library.load(own.admin) is False

    assert libraries(own) == {library_name(), library_name("0123abcd")}
    assert own.admin.fcall(function_name("build"), 0) == build().encode()
    assert own.admin.fcall(function_name("build", "0123abcd"), 0) == b"0123abcd"


def test_a_bus_that_is_there_is_opened_and_read_without_functions(own: Partition) -> None:
    own.record(make_event())
    own.admin.function_flush()

    bus = open_bus(own.url, Settings(prefix="own"))
    with bus.client() as client:
        assert len(ObjectStore(bus, client).list().items) == 1

    assert libraries(own) == set()


@pytest.mark.parametrize("how", ["a partition is opened", "a bus is made"])
def test_functions_that_are_missing_are_loaded_when(own: Partition, how: str) -> None:
    own.admin.function_flush()
    if how == "a bus is made":
        open_bus(own.url, Settings(prefix="another"))
    else:
        own.bus.open_partition(own.admin, 0)
    assert libraries(own) == {library_name()}


def test_a_change_of_the_source_makes_another_build(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, read = build(), build_module._source
    monkeypatch.setattr(build_module, "_source", lambda part: read(part) + " ")
    assert build_module.build.__wrapped__() != ours
    monkeypatch.setattr(build_module, "_source", read)
    assert build_module.build.__wrapped__() == ours
    monkeypatch.setattr(build_module, "FORMATS", (*FORMATS, 99))
    assert build_module.build.__wrapped__() != ours
