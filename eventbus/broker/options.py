"""Reads the options in Redis with their version, and changes them, or the format, for all at once."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from eventbus.broker.builds import cannot_read, describe, read_announcements
from eventbus.broker.bus import Bus, decode_options, refuse_other_format
from eventbus.broker.connection.connect import Client
from eventbus.broker.keys import bus_key
from eventbus.broker.numbers import parse_options_version, whole_number
from eventbus.broker.redis_errors import redis_errors
from eventbus.errors import ConfigError
from eventbus.model.formats import CODECS, FORMATS, numbers_text
from eventbus.settings import Options


def read_options(client: Client, prefix: str) -> tuple[Options, int] | None:
    """Read the bus's options and their version; None if the bus is gone (FLUSHALL)."""
    with redis_errors():
        found: Any = client.hmget(bus_key(prefix), ["options", "options_version"])
    return _read(found)


def read_values(client: Client, prefix: str) -> tuple[dict[str, Any], int] | None:
    """Read the options as plain values by their names in Redis, valid or not; empty if they are no JSON object."""
    with redis_errors():
        found: Any = client.hmget(bus_key(prefix), ["options", "options_version"])
    return None if found[0] is None else (_values(found[0]), whole_number(found[1]) or 0)


def change_options(
    client: Client, prefix: str, change: Callable[[Mapping[str, Any]], Options]
) -> tuple[Options, int, bool]:
    """Write what *change* makes of the bus's options, under the next version; somebody else's change is not lost.

    *change* gets plain values, as `read_values` does, so that it can mend what is not valid; it may be called again
    with newer ones. What changes nothing is not written.

    Returns: the options that hold now, their version, and whether anything was written.
    Raises:  ConfigError: of *change*, or there is no such bus.  BusUnavailable: it may or may not have happened.
    Redis:   WATCH, HMGET, MULTI, HSET, EXEC on the bus's key, until nobody else wrote meanwhile.
    """
    key = bus_key(prefix)

    def attempt(pipe: Any) -> tuple[Options, int, bool]:
        found, version = pipe.hmget(key, ["options", "options_version"])
        if found is None:
            raise ConfigError(f"there is no bus with the prefix {prefix!r} here")
        wanted, number = change(_values(found)), whole_number(version)
        differs = number is None or not _holds(found, wanted)
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
        found = json.loads(data)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _read(found: Any) -> tuple[Options, int] | None:
    return None if found[0] is None else (decode_options(found[0]), parse_options_version(found[1]))


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
        found = pipe.hmget(key, ["format", "partitions"])
        refuse_other_format(found)
        pipe.multi()
        pipe.hset(key, mapping={"format": str(wanted[0]), "codecs": numbers_text(wanted[1])})

    with redis_errors():
        client.transaction(attempt, key)
    return wanted
