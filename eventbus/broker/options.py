"""The options in Redis: read with their version, and changed for all at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from eventbus.broker.bus import decode_options
from eventbus.broker.connection import Client
from eventbus.broker.keys import bus_key
from eventbus.broker.redis_errors import redis_errors
from eventbus.errors import ConfigError
from eventbus.settings import Options


def read_options(client: Client, prefix: str) -> tuple[Options, int] | None:
    """The bus's options and their version; None if the bus is gone (FLUSHALL).

    Redis: HMGET on the bus's key.
    """
    with redis_errors():
        found: Any = client.hmget(bus_key(prefix), ["options", "options_version"])
    return _read(found)


def change_options(client: Client, prefix: str, change: Callable[[Options], Options]) -> tuple[Options, int]:
    """Write what *change* makes of the bus's options, under the next version; somebody else's change is not lost.

    *change* may be called again with newer options. What changes nothing is not written.

    Returns: the options that hold now, and their version.
    Raises:  ConfigError: of *change*, or there is no such bus.  BusUnavailable: it may or may not have happened.
    Redis:   WATCH, HMGET, MULTI, HSET, EXEC on the bus's key, until nobody else wrote meanwhile.
    """
    key = bus_key(prefix)

    def attempt(pipe: Any) -> tuple[Options, int]:
        found = _read(pipe.hmget(key, ["options", "options_version"]))
        if found is None:
            raise ConfigError(f"there is no bus with the prefix {prefix!r} here")
        options, version = found
        wanted = change(options)
        pipe.multi()
        if wanted != options:
            version += 1
            pipe.hset(key, mapping={"options": msgspec.json.encode(wanted), "options_version": str(version)})
        return wanted, version

    with redis_errors():
        changed: tuple[Options, int] = client.transaction(attempt, key, value_from_callable=True)
    return changed


def _read(found: Any) -> tuple[Options, int] | None:
    return None if found[0] is None else (decode_options(found[0]), int(found[1] or 1))
