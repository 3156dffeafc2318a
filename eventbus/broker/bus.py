"""Opens a bus: its address, its partitions, and its options with their changes."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from enum import StrEnum
from typing import Any

import msgspec

from eventbus.broker.connection.address import safe_url
from eventbus.broker.connection.connect import Client, cluster_client, connect_checked, make_client
from eventbus.broker.function_library import cannot_read, describe, load, load_missing, read_announcements, refusal
from eventbus.broker.functions import Functions, GroupPolicy, Opened
from eventbus.broker.keys import EVENTS, SINK_GROUP, Keys, bus_key, whole_number
from eventbus.broker.redis_errors import redis_errors
from eventbus.errors import BusRefused, BusReplaced, ConfigError, FunctionsForbidden, FunctionsMissing
from eventbus.model.decodable import decodable
from eventbus.model.formats import BASELINE_CODECS, CODECS, FORMATS, numbers_text, parse_numbers
from eventbus.settings import Options, Settings
from eventbus.util.log import log

#: The fleet's log.
LOG_GROUP = "log"
#: Of a bus that is made on a cluster: enough for a few for each of its nodes, also when there are more nodes one day.
#: Their number never changes, and shares make many of them cheap.
CLUSTER_PARTITIONS = 64
#: The first open of a bus sets the number for ever.
MOST_PARTITIONS = 1024


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
        format: int = FORMATS[-1],
        codecs: tuple[int, ...] = BASELINE_CODECS,
    ) -> None:
        self.format = format  #: of all that lies in Redis
        self.codecs = codecs  #: that producers may use
        self.announce_at = 0.0  #: when a recorder announces its build the next time, monotonic s
        self.id = bus_id  #: random; a bus that was recreated after a FLUSHALL has another one
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

    def revalidate(self, client: Client) -> bool:
        """Check that the bus is still the one that was opened. True: it was recreated, and is used now.

        If it is gone (FLUSHALL), this process recreates it, if it may: the next one that opens it must not choose other
        partitions and options than those of running processes.

        Raises: ConfigError: it has another format now, or other partitions; nothing may be written to it.
        Redis:  HMGET on the bus's key, HSETNX if it is gone.
        """
        key = bus_key(self.prefix)
        with redis_errors():
            values: Any = client.hmget(key, ["format", "partitions", "id", "codecs"])
        refuse_other_format(values)
        if None in values[:3]:
            with suppress(BusRefused):  # without the right, another process does it
                self.write_missing(client)
            return False
        partitions, bus_id = parse_partitions(values[1], key), values[2].decode("ascii", "replace")
        self.format, self.codecs = int(values[0]), parse_numbers(values[3], BASELINE_CODECS)
        if partitions != self.partitions:
            raise BusReplaced(self.partitions, partitions)
        if bus_id == self.id:
            return False
        log.warning("bus %s was recreated, and its former content is gone: continuing with the new one", self.prefix)
        self.id = bus_id
        return True

    def write_missing(self, client: Client) -> None:
        """Write the missing fields of the key of the bus; existing fields stay. Redis: HSETNX."""
        key = bus_key(self.prefix)
        with redis_errors():
            if client.hsetnx(key, "format", str(self.format)):
                # A bus with a format and without codecs was created by an older build.
                client.hsetnx(key, "codecs", numbers_text(self.codecs))
            client.hsetnx(key, "id", self.id)
            client.hsetnx(key, "partitions", str(self.partitions))
            client.hsetnx(key, "options", msgspec.json.encode(self.options))
            client.hsetnx(key, "options_version", str(self.options_version))

    def check_codecs(self) -> None:
        """Raises: ConfigError: producers may use a codec that this build cannot read; its workers would bury events."""
        if unknown := sorted(set(self.codecs) - set(CODECS)):
            theirs, ours = numbers_text(self.codecs), numbers_text(CODECS)
            cure = "run workers of the version that the bus was upgraded for"
            problem = f"producers of the bus may use codecs {theirs}, and this build reads {ours}, not {unknown[0]}"
            raise ConfigError(f"{problem}: {cure}", cure=cure)

    def open_partition(
        self, client: Client, partition: int, group: str = "", policy: GroupPolicy = GroupPolicy.WAIT, start: str = "0"
    ) -> Opened:
        """Make a partition's stream, the store's group and *group*, or find them created. Safe to repeat.

        Loads this build's functions where they are missing, if the user may.

        Raises: ConfigError: others have created another bus here meanwhile; as `revalidate`.
        """
        self.revalidate(client)
        call = self.functions(client, partition)
        try:
            opened = call.open(os.urandom(8).hex(), SINK_GROUP)
        except FunctionsForbidden as error:
            raise refusal(client, error) from error
        except FunctionsMissing:
            load(client)
            opened = call.open(os.urandom(8).hex(), SINK_GROUP)
        if group and group != SINK_GROUP:
            created = call.open(opened.generation, group, policy, start)
            opened = Opened(opened.generation, opened.made_stream, created.made_group)
        return opened


def open_bus(url: str, settings: Settings, *, options: Options | None = None) -> Bus:
    """Open the bus at *url*: check the server, and create missing keys.

    Functions are loaded only if one that is missing must be called, and are never replaced: an existing bus opens
    without functions.

    The first open of a bus decides how many partitions it has. *options*, if given, must be those of the bus.

    Raises: BusUnavailable: no answer; safe to call again. BusRefused, ConfigError: the message has the cure.
    """
    client, server = connect_checked(url, name="eventbus-open")
    try:
        new = Bus(
            url,
            cluster=server.cluster,
            prefix=settings.prefix,
            partitions=settings.partitions or (CLUSTER_PARTITIONS if server.cluster else 1),
            options=options or Options(),
            options_version=1,
            bus_id=os.urandom(8).hex(),
            format=FORMATS[-1],
            codecs=CODECS,
        )
        bus = _read_or_make(client, new)
        if options is not None and options != bus.options:
            raise ConfigError(difference(bus.options, options))
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


def refuse_other_format(values: Any) -> None:
    """Before anything is loaded or stored. *values*: format and partitions of the bus's key.

    Raises: ConfigError: this build does not read and write the format of the bus.
    """
    if values[:2] == [None, None] or values[0] in [str(each).encode() for each in FORMATS]:
        return
    stored = values[0].decode("ascii", "replace") if values[0] else "1"
    cure = f"use a version that reads format {stored:.20}, or another EVENTBUS_PREFIX"
    known = " and ".join(map(str, FORMATS))
    raise ConfigError(f"the bus has format {stored:.20}, this build reads and writes format {known}: {cure}", cure=cure)


def _read_or_make(client: Client, new: Bus) -> Bus:
    """Return the bus that is there; if none is, *new* is made."""
    key, fields = bus_key(new.prefix), ["format", "partitions", "options", "options_version", "id", "codecs"]
    with redis_errors():
        # Read first: a bus that exists must open when memory is full, where every HSETNX is refused.
        values: Any = client.hmget(key, fields)
        refuse_other_format(values)
        if None in values[:5]:
            load_missing(client)  # first: if the bus cannot be created, it leaves no key
            new.write_missing(client)
            values = client.hmget(key, fields)
    return Bus(
        new.url,
        cluster=new.is_cluster,
        prefix=new.prefix,
        partitions=parse_partitions(values[1], key),
        options=decode_options(values[2]),
        options_version=parse_options_version(values[3]),
        bus_id=values[4].decode("ascii", "replace"),
        format=int(values[0]),
        codecs=parse_numbers(values[5], BASELINE_CODECS),
    )


def decode_options(data: bytes) -> Options:
    """Decode the options that Redis holds. Raises: ConfigError: they were written by another version or by hand."""
    try:
        return msgspec.json.decode(data, type=decodable(Options))
    except (msgspec.DecodeError, ConfigError) as error:
        cure = "`eventbus options get` shows them, `eventbus options set` mends them"
        raise ConfigError(f"the bus holds options that this version cannot use ({error}): {cure}", cure=cure) from error


def parse_partitions(text: bytes, key: bytes) -> int:
    """Parse the partition count of the bus of *key*. Raises: ConfigError: it is not a number from 1 to 1024."""
    number = whole_number(text)
    if number is None or not 1 <= number <= MOST_PARTITIONS:
        highest = f"{key.decode().removesuffix('{0}:bus')}{{N}}:meta"
        cure = f"HSET {key.decode()} partitions with its number, one more than the highest N of the keys {highest}"
        problem = f"the bus says it has {_shown(text)} partitions, which is no number from 1 to {MOST_PARTITIONS}"
        raise ConfigError(f"{problem}: {cure}", cure=cure)
    return number


def parse_options_version(text: bytes | None) -> int:
    """Parse the version of the bus's options. Raises: ConfigError: it is not a number."""
    number = whole_number(text or b"1")
    if number is None:
        cure = "`eventbus options set` with any option, like burst=25, gives it a new one"
        raise ConfigError(f"the version of the bus's options is {_shown(text or b'')}, no number: {cure}", cure=cure)
    return number


def _shown(text: bytes) -> str:
    return repr(text[:20].decode("utf-8", "replace")) + ("…" if len(text) > 20 else "")


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


def read_options(client: Client, prefix: str) -> tuple[Options, int] | None:
    """Read the bus's options and their version; None if the bus is gone (FLUSHALL)."""
    with redis_errors():
        values: Any = client.hmget(bus_key(prefix), ["options", "options_version"])
    return _read(values)


def read_values(client: Client, prefix: str) -> tuple[dict[str, Any], int] | None:
    """Read the options as plain values by their names in Redis, valid or not; empty if they are no JSON object."""
    with redis_errors():
        values: Any = client.hmget(bus_key(prefix), ["options", "options_version"])
    return None if values[0] is None else (_values(values[0]), whole_number(values[1]) or 0)


def change_options(
    client: Client, prefix: str, change: Callable[[Mapping[str, Any]], Options]
) -> tuple[Options, int, bool]:
    """Write the result of *change* as the options of the bus, under the next version; no concurrent change is lost.

    *change* gets plain values, as from `read_values`, so that it can correct invalid ones; it may be called again with
    newer ones. Equal options are not written.

    Returns: the options that apply now, their version, and whether they were written.
    Raises:  ConfigError: of *change*, or there is no such bus.  BusUnavailable: it may or may not have happened.
    Redis:   WATCH, HMGET, MULTI, HSET, EXEC on the key of the bus, until no other process writes meanwhile.
    """
    key = bus_key(prefix)

    def attempt(pipe: Any) -> tuple[Options, int, bool]:
        data, version = pipe.hmget(key, ["options", "options_version"])
        if data is None:
            raise ConfigError(f"there is no bus with the prefix {prefix!r} here")
        wanted, number = change(_values(data)), whole_number(version)
        differs = number is None or not _holds(data, wanted)
        version = number or 1
        pipe.multi()
        if differs:
            version += 1
            pipe.hset(key, mapping={"options": msgspec.json.encode(wanted), "options_version": str(version)})
        return wanted, version, differs

    with redis_errors():
        changed: tuple[Options, int, bool] = client.transaction(attempt, key, value_from_callable=True)
    return changed


def _holds(data: bytes, wanted: Options) -> bool:
    try:
        return decode_options(data) == wanted
    except ConfigError:
        return False


def _values(data: bytes) -> dict[str, Any]:
    try:
        values = json.loads(data)
    except ValueError:
        return {}
    return values if isinstance(values, dict) else {}


def _read(values: Any) -> tuple[Options, int] | None:
    return None if values[0] is None else (decode_options(values[0]), parse_options_version(values[1]))


def upgrade_format(client: Client, bus: Bus, *, force: bool) -> tuple[int, tuple[int, ...]]:
    """Give the bus the newest format of this build, and producers all its codecs. Returns both as they are now.

    Raises: ConfigError: processes that cannot read them are at work, and not *force*.
    Redis:  HGETALL on the bus's builds; WATCH, HMGET, MULTI, HSET, EXEC on its key.
    """
    key = bus_key(bus.prefix)
    wanted = (FORMATS[-1], tuple(sorted({*bus.codecs, *CODECS})))
    if wanted == (bus.format, bus.codecs):
        return wanted
    if not force and (unable := cannot_read(read_announcements(client, bus.prefix), [wanted[0]], wanted[1])):
        cure = "upgrade or stop them first, or --force"
        them = "; ".join(f"build {each.build}, {describe(each)}" for each in unable)
        raise ConfigError(
            f"format {wanted[0]} with codecs {numbers_text(wanted[1])} cannot be read by {them}: {cure}", cure=cure
        )

    def attempt(pipe: Any) -> None:
        values = pipe.hmget(key, ["format", "partitions"])
        refuse_other_format(values)
        pipe.multi()
        pipe.hset(key, mapping={"format": str(wanted[0]), "codecs": numbers_text(wanted[1])})

    with redis_errors():
        client.transaction(attempt, key)
    return wanted
