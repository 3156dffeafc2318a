"""Opens a bus, once a process: its address, its partitions and its options."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from enum import StrEnum
from typing import Any

import msgspec

from eventbus.broker import functions
from eventbus.broker.connection.connect import Client, check_server, cluster_client, connect, make_client, safe_url
from eventbus.broker.function_values import GroupPolicy
from eventbus.broker.functions import Functions, Opened
from eventbus.broker.keys import EVENTS, SINK_GROUP, Keys, bus_key
from eventbus.broker.numbers import parse_options_version, parse_partitions
from eventbus.broker.redis_errors import redis_errors
from eventbus.decodable import decodable
from eventbus.errors import BusRefused, BusReplaced, ConfigError, FunctionsMissing
from eventbus.log import log
from eventbus.settings import Options, Settings

#: The fleet's log.
LOG_GROUP = "log"
#: Of everything that lies in Redis and of the functions that write it. Builds of another one refuse the bus.
FORMAT = 2
#: Of a bus that is made on a cluster: enough for a few for each of its nodes, also when there are more nodes one day.
#: Their number never changes, and shares make many of them cheap.
CLUSTER_PARTITIONS = 64


class Bus:
    """An opened bus: its address, partitions and options, and a factory of clients (make one for each thread)."""

    def __init__(
        self,
        url: str,
        *,
        cluster: bool,
        prefix: str,
        partitions: int,
        options: Options,
        options_version: int,
        bus_id: str = "",
    ) -> None:
        self.id = bus_id  #: random, of this bus alone: one that was made anew after a FLUSHALL has another
        self.url = url
        self.prefix = prefix
        self.options = options
        self.options_version = options_version
        self.keys = tuple(Keys(prefix, partition) for partition in range(partitions))
        self._cluster = cluster

    def __repr__(self) -> str:
        return f"Bus({safe_url(self.url)!r}, prefix={self.prefix!r}, partitions={len(self.keys)})"

    def __str__(self) -> str:
        """Return a name for messages; it holds no password."""
        several = "" if self.partitions == 1 else "s"
        return f"{safe_url(self.url)} (prefix {self.prefix}, {self.partitions} partition{several})"

    @property
    def is_cluster(self) -> bool:
        """Return True if the server is a cluster: partitions may lie on different nodes, so no command can span two."""
        return self._cluster

    @property
    def partitions(self) -> int:
        """Return the number of partitions: the same in every process, and never changed."""
        return len(self.keys)

    def client(self, *, block_ms: int = 0, name: str = "eventbus") -> Client:
        """Make a client for one thread: one connection (on a cluster: one a node). Nothing is sent yet."""
        make = cluster_client if self._cluster else make_client
        return make(self.url, block_ms=block_ms, name=name)

    def functions(self, client: Client, partition: int) -> Functions:
        """The functions on one partition's keys."""
        return Functions(client, self.keys[partition], self)

    def look_again(self, client: Client) -> bool:
        """Look whether the bus is still the one that was opened. True: others have made it anew, and this one goes on.

        One that is gone (FLUSHALL) is made as it was, by whoever may: the next to open it must not decide anew what
        those who run have agreed on.

        Raises: ConfigError: it has another format now, or other partitions; nothing may be written to it.
        Redis:  HMGET on the bus's key, HSETNX if it is gone.
        """
        key = bus_key(self.prefix)
        with redis_errors():
            found: Any = client.hmget(key, ["format", "partitions", "id"])
        _refuse_other_format(found)
        if None in found:
            with suppress(BusRefused):  # who may not, leaves it to somebody else
                _make(client, key, self.partitions, self.options, self.options_version, self.id)
            return False
        partitions, bus_id = parse_partitions(found[1], key), found[2].decode("ascii", "replace")
        if partitions != self.partitions:
            raise BusReplaced(self.partitions, partitions)
        if bus_id == self.id:
            return False
        log.warning("bus %s was made anew, and all that it held is gone: going on with the new one", self.prefix)
        self.id = bus_id
        return True

    def open_partition(
        self, client: Client, partition: int, group: str = "", policy: GroupPolicy = GroupPolicy.WAIT, start: str = "0"
    ) -> Opened:
        """Make a partition's stream, the store's group and *group*, or find them made. Safe to repeat.

        Loads the function library where a server has lost it.

        Raises: ConfigError: others have made another bus here meanwhile; as `look_again`.
        """
        self.look_again(client)
        call = self.functions(client, partition)
        try:
            opened = call.open(os.urandom(8).hex(), SINK_GROUP)
        except FunctionsMissing:
            functions.load(client)
            opened = call.open(os.urandom(8).hex(), SINK_GROUP)
        if group and group != SINK_GROUP:
            made = call.open(opened.generation, group, policy, start)
            opened = Opened(opened.generation, opened.made_stream, made.made_group)
        return opened


def open_bus(url: str, settings: Settings, *, options: Options | None = None) -> Bus:
    """Open the bus at *url*: check the server, load the functions, make what is missing.

    The first open of a bus decides how many partitions it has. *options*, if given, must be those of the bus.

    Raises: BusUnavailable: no answer; safe to call again. BusRefused, ConfigError: the message says what to do.
    """
    client = connect(url, name="eventbus-open")
    try:
        server = check_server(client)
        with redis_errors():
            _refuse_other_format(client.hmget(bus_key(settings.prefix), ["format", "partitions"]))
        functions.load(client)
        number = settings.partitions or (CLUSTER_PARTITIONS if server.cluster else 1)
        partitions, found, version, bus_id = _read_or_make(client, settings.prefix, number, options)
        if options is not None and options != found:
            raise ConfigError(difference(found, options))
        bus = Bus(
            url,
            cluster=server.cluster,
            prefix=settings.prefix,
            partitions=partitions,
            options=found,
            options_version=version,
            bus_id=bus_id,
        )
        for partition in _missing_partitions(client, bus.keys):
            bus.open_partition(client, partition)
        return bus
    finally:
        client.close()


def _missing_partitions(client: Client, keys: Sequence[Keys]) -> list[int]:
    """Return the partitions that have not been made; producers and readers have no right to make them.

    Redis: HMGET and EXISTS of every partition in one pipeline (a cluster: one a node, all nodes at once)."""
    pipe: Any = client.pipeline(transaction=False)
    for each in keys:
        pipe.execute_command("HMGET", each.meta, f"floor:{SINK_GROUP}")
        # A command for each key: different selectors of an ACL may grant the two.
        pipe.execute_command("EXISTS", each.incoming)
        pipe.execute_command("EXISTS", each.version_of(EVENTS))
    with redis_errors():
        replies = pipe.execute()
    rows = zip(replies[::3], replies[1::3], replies[2::3], strict=True)
    return [
        partition
        for partition, (floors, has_stream, has_version) in enumerate(rows)
        if None in floors or not has_stream or not has_version
    ]


def _refuse_other_format(found: Any) -> None:
    """Before anything is loaded or made. *found*: format and partitions of the bus's key.

    Raises: ConfigError: another build's bus is there.
    """
    if found[:2] == [None, None] or found[0] == str(FORMAT).encode():
        return
    made = found[0].decode("ascii", "replace") if found[0] else "1"
    cure = "use the build that made it, or another EVENTBUS_PREFIX"
    raise ConfigError(f"the bus has format {made:.20}, this build has format {FORMAT}: {cure}", cure=cure)


def _read_or_make(client: Client, prefix: str, number: int, options: Options | None) -> tuple[int, Options, int, str]:
    key, fields = bus_key(prefix), ["partitions", "options", "options_version", "id"]
    with redis_errors():
        # Read first: a bus that exists must open when memory is full, where every HSETNX is refused.
        found: Any = client.hmget(key, fields)
        if None in found:
            _make(client, key, number, options or Options(), 1, os.urandom(8).hex())
            found = client.hmget(key, fields)
    partitions, version = parse_partitions(found[0], key), parse_options_version(found[2])
    return partitions, decode_options(found[1]), version, found[3].decode("ascii", "replace")


def _make(client: Client, key: bytes, partitions: int, options: Options, version: int, bus_id: str) -> None:
    """Write what is missing; what is there wins."""
    with redis_errors():
        client.hsetnx(key, "format", str(FORMAT))
        client.hsetnx(key, "id", bus_id)
        client.hsetnx(key, "partitions", str(partitions))
        client.hsetnx(key, "options", msgspec.json.encode(options))
        client.hsetnx(key, "options_version", str(version))


def decode_options(data: bytes) -> Options:
    """Decode the options that Redis holds. Raises: ConfigError: they were written by another version or by hand."""
    try:
        return msgspec.json.decode(data, type=decodable(Options))
    except (msgspec.DecodeError, ConfigError) as error:
        cure = "`eventbus options get` shows them, `eventbus options set` mends them"
        raise ConfigError(f"the bus holds options that this version cannot use ({error}): {cure}", cure=cure) from error


def difference(theirs: Options, ours: Options) -> str:
    """Describe in one line each option that differs, with both values and the cure."""
    parts = [
        f"{field}: bus {_plain(getattr(theirs, field))!r}, here {_plain(getattr(ours, field))!r}"
        for field in Options.__struct_fields__
        if getattr(theirs, field) != getattr(ours, field)
    ]
    return f"other options than the bus ({'; '.join(parts)}); change them for all with `eventbus options set`"


def _plain(value: Any) -> Any:
    """Return an enum's value instead of its Python representation."""
    return str(value) if isinstance(value, StrEnum) else value
