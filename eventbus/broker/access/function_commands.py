"""The table of commands that each function of the library runs, and on which keys.

The server checks a function's commands against the rights of whoever calls it, one by one, and undoes nothing when one
is refused in the middle. So the rights of a role are made from this table; `tests/functions/test_function_commands.py`
holds it against what the functions really do.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache

import msgspec

from eventbus.broker.build import function_name

#: function → keys (names of `Keys`, several where one command spans them) → commands.
#: `changes`, `version`, `note`, `object` and `index_name` are of every kind.
_COMMANDS: Mapping[str, Mapping[str, str]] = {
    "build": {},
    "open": {
        "incoming": (
            "TYPE EXISTS XINFO|GROUPS XINFO|STREAM XRANGE XREVRANGE XPENDING XADD XGROUP|CREATE "
            "XACK XDEL XTRIM XSETID XGROUP|SETID"
        ),
        "incoming_meta": "TYPE HGET HMGET HKEYS HLEN DEL HSET HDEL",
        "meta": "TYPE HGET HMGET HGETALL HSET HSETNX",
        "changes": "TYPE EXISTS XINFO|STREAM XREVRANGE",
        "version": "EXISTS MGET",
        "version note": "MSET",
        "note": "EXISTS MGET SET DEL",
        "spoiled": "TYPE HGET HSET",
    },
    "publish": {
        "incoming": "EXISTS XLEN XINFO|GROUPS XADD",  # no XRANGE: a producer reads nothing
        "incoming_meta": "HGET HMGET HSET HINCRBY",
        "producer": "HMGET HSET PEXPIRE DEL",
        "meta": "HGETALL",
    },
    "correlate_and_store": {
        "incoming": "TYPE XPENDING XACK",
        "meta": "TYPE HGET HMGET HSET",
        "index_name": "TYPE ZRANGE ZRANGEBYLEX ZADD ZREM",
        "index_object": "TYPE ZRANGE ZADD ZREM",
        "index_expiry": "TYPE ZADD ZREM",
        "index_forget": "TYPE ZADD ZREM",
        "index_refresh": "TYPE ZADD",
        "index_subject": "TYPE ZADD",
        "changes": "TYPE EXISTS XINFO|STREAM XREVRANGE XLEN XADD XTRIM",
        "suppressed": "TYPE HMGET HGETALL HSET HDEL",
        "dead": "TYPE EXISTS XINFO|STREAM XRANGE XREVRANGE XADD",
        "attempts": "TYPE EXISTS HGET HSET HDEL",
        "occurrences": "TYPE HMGET HLEN HSET PEXPIRE",
        "aggregate spam object": "MGET EXISTS",
        "aggregate spam object note": "MSET",
        "aggregate spam": "PEXPIRE",
        "note version": "MGET",
        "attempts note": "EXISTS",
        "version": "EXISTS SET",
        "note": "EXISTS SET DEL",
        "spoiled": "TYPE HGET HSET",
    },
    "trim": {
        "incoming": (
            "TYPE EXISTS XLEN XRANGE XREVRANGE XPENDING XINFO|GROUPS XINFO|STREAM XADD XACK XDEL XSETID "
            "XGROUP|SETID XTRIM"
        ),
        "incoming_meta": "HGET HMGET HKEYS HLEN HSET HDEL",
        "meta": "TYPE HGET HMGET HGETALL HSET",
        "changes": "TYPE EXISTS XINFO|STREAM XLEN XRANGE XREVRANGE XTRIM",
        "dead": "TYPE XLEN XRANGE XREVRANGE XDEL XTRIM",
        "workers": "HGETALL HDEL",
        "version": "EXISTS MGET",
        "version note": "MSET",
        "note": "EXISTS MGET MSET SET DEL",
        "spoiled": "TYPE HGET HSET",
    },
    "bury": {
        "incoming": "TYPE XPENDING XACK",
        "dead": "TYPE EXISTS XINFO|STREAM XRANGE XREVRANGE XADD",
        "meta": "TYPE HGET HMGET HSET",
        "attempts": "TYPE HGET HSET HDEL",
        "note": "EXISTS MGET MSET SET DEL",
        "spoiled": "TYPE HGET HSET",
    },
    "replay": {
        "incoming": "TYPE EXISTS XLEN XRANGE XINFO|GROUPS XINFO|STREAM XADD",
        "incoming_meta": "HGET HMGET HSET",
        "dead": "TYPE XRANGE XDEL",
        "meta": "TYPE HGET HMGET HGETALL HSET",
        "note": "EXISTS MGET MSET SET DEL",
        "spoiled": "TYPE HGET HSET",
    },
    "discard": {
        "dead": "TYPE XRANGE XDEL",
        "meta": "TYPE HGET HMGET HSET",
        "note": "EXISTS MGET MSET SET DEL",
        "spoiled": "TYPE HGET HSET",
    },
    "beat": {"workers": "HINCRBY"},
    "isolate": {"incoming": "XPENDING", "attempts": "HGET HSET"},
    "claim": {
        "incoming": "XPENDING XCLAIM XGROUP|DELCONSUMER",
        "workers": "HGET HDEL HINCRBY",
        "attempts": "HMGET HSET",
    },
    "expire": {
        "meta": "TYPE HGET HMGET HSET",
        "index_name": "TYPE ZREM",
        "index_object": "TYPE ZREM",
        "index_expiry": "TYPE ZCARD ZMSCORE ZADD ZREM",
        "index_forget": "TYPE ZCARD ZMSCORE ZADD ZREM",
        "changes": "TYPE EXISTS XINFO|STREAM XREVRANGE XADD",
        "suppressed": "TYPE HMGET HGETALL HSET HDEL",
        "version object": "MGET",
        "object note": "MSET",
        "object": "EXISTS DEL",
        "version": "EXISTS SET",
        "note": "EXISTS MGET SET DEL",
        "spoiled": "TYPE HGET HSET",
    },
    "refresh": {
        "meta": "TYPE HGET HMGET HSET",
        "index_refresh": "TYPE ZMSCORE ZADD ZREM",
        "changes": "TYPE EXISTS XINFO|STREAM XREVRANGE XLEN XADD XTRIM",
        "version object": "MGET",
        "object note": "MSET",
        "object": "EXISTS",
        "version": "EXISTS SET",
        "note": "EXISTS MGET SET DEL",
        "spoiled": "TYPE HGET HSET",
    },
    "forget": {
        "meta": "TYPE HGET HMGET HSET",
        "index_subject": "TYPE ZCARD ZSCORE ZREM",
        "spam": "PTTL",
        "aggregate spam": "EXISTS MGET DEL",
        "note": "EXISTS MGET MSET SET DEL",
        "spoiled": "TYPE HGET HSET",
    },
    "finish": {  # of kinds but events, what put and remove leave
        "index_name": "TYPE ZADD ZREM",
        "changes": "TYPE EXISTS XINFO|STREAM XADD XTRIM",
        "object": "EXISTS MGET DEL",
        "spoiled": "TYPE HGET HSET",
        "version": "SET",
        "note": "EXISTS MGET SET DEL",
    },
    "put": {
        "index_name": "TYPE ZADD",
        "changes": "TYPE EXISTS XINFO|STREAM XREVRANGE XLEN XRANGE XADD XTRIM",
        "version object": "MGET",
        "meta": "HGET",
        "spoiled": "TYPE HGET HSET",
        "object note": "MSET",
        "object": "EXISTS",
        "version": "EXISTS SET",
        "note": "EXISTS MGET SET DEL",
    },
    "remove": {
        "index_name": "TYPE ZREM",
        "changes": "TYPE EXISTS XINFO|STREAM XREVRANGE XLEN XRANGE XADD XTRIM",
        "version object": "MGET",
        "meta": "HGET",
        "spoiled": "TYPE HGET HSET",
        "object": "EXISTS DEL",
        "version": "EXISTS SET",
        "note": "EXISTS MGET MSET SET DEL",
    },
    "write_event": {
        "occurrences": "TYPE HMGET HLEN HSET PEXPIRE",
        "index_name": "TYPE ZRANGEBYLEX ZADD",
        "index_object": "TYPE ZADD ZREM",
        "index_expiry": "TYPE ZADD",
        "changes": "TYPE EXISTS XINFO|STREAM XREVRANGE XLEN XADD XTRIM",
        "incoming": "EXISTS XLEN XRANGE XADD",
        "incoming_meta": "HGET HMGET HSET",
        "version object": "MGET",
        "meta": "HGET",
        "spoiled": "TYPE HGET HSET",
        "object note": "MSET",
        "object": "EXISTS",
        "version": "EXISTS SET",
        "note": "EXISTS MGET SET DEL",
    },
    "overlay_event": {
        "index_expiry": "TYPE ZADD",
        "changes": "TYPE EXISTS XINFO|STREAM XREVRANGE XLEN XADD XTRIM",
        "incoming": "EXISTS XLEN XRANGE XADD",
        "incoming_meta": "HGET HMGET HSET",
        "version object": "MGET",
        "meta": "HGET",
        "spoiled": "TYPE HGET HSET",
        "object note": "MSET",
        "object": "EXISTS",
        "version": "EXISTS SET",
        "note": "EXISTS MGET SET DEL",
    },
    "remove_event": {
        "index_name": "TYPE ZREM",
        "index_object": "TYPE ZREM",
        "index_expiry": "TYPE ZREM",
        "index_forget": "TYPE ZADD",
        "changes": "TYPE EXISTS XINFO|STREAM XREVRANGE XADD",
        "version object": "MGET",
        "meta": "HGET",
        "spoiled": "TYPE HGET HSET",
        "object note": "MSET",
        "object": "EXISTS DEL",
        "version": "EXISTS SET",
        "note": "EXISTS MGET SET DEL",
    },
    "export_acquire": {
        "export": "HGET HSET HSETNX",
        "workers": "TYPE HGET HDEL HINCRBY",
        "meta": "TYPE HGET HSET",
        "note": "EXISTS MGET SET DEL",
        "spoiled": "TYPE HGET HSET",
    },
    "export_release": {"export": "HGET HDEL", "workers": "TYPE HDEL"},
    "export_settle": {
        "export": "TYPE HMGET HSET",
        "later": "TYPE ZADD ZREM",
        "dead": "TYPE EXISTS XINFO|STREAM XRANGE XREVRANGE XADD XDEL",
        "meta": "TYPE HGET HMGET HSET",
        "exported": "EXISTS MGET PEXPIRE DEL",
        "exported note": "MSET",
        "note": "EXISTS MGET SET DEL",
        "spoiled": "TYPE HGET HSET",
    },
    "export_retry": {"dead": "XRANGE", "later": "TYPE ZADD"},
    "announce": {"builds": "HGETALL HDEL HSET"},
    "checkpoint": {"checkpoints": "TYPE EXISTS XINFO|STREAM XRANGE XREVRANGE XADD"},
}


class Use(msgspec.Struct, frozen=True, order=True):
    """One command, `XADD` or `XGROUP|CREATE`, and the names that `Keys` has for what it is used on; none: no key."""

    command: str
    keys: tuple[str, ...] = ()


class Function(msgspec.Struct, frozen=True):
    """One registered function: the names of the keys it works on, and all that it does, sorted."""

    verb: str
    keys: tuple[str, ...]
    uses: tuple[Use, ...]

    @property
    def name(self) -> str:
        """Return its name in Redis."""
        return function_name(self.verb)


@cache
def functions_used() -> Mapping[str, Function]:
    """Return every function of the library by its verb."""
    found = {}
    for verb, commands in _COMMANDS.items():
        uses = tuple(sorted({*_uses(commands), *(_CLOCKED if commands else ())}))
        keys = tuple(sorted({key for use in uses for key in use.keys}))
        found[verb] = Function(verb, keys, uses)
    return found


#: The server's time, and how full its memory is.
_CLOCKED = (Use("TIME"), Use("INFO"))


def _uses(commands: Mapping[str, str]) -> Iterator[Use]:
    for keys, words in commands.items():
        for command in words.split():
            yield Use(command, tuple(keys.split()))


__all__ = ["Function", "Use", "functions_used"]
