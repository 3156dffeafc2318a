"""Scans a server for all keys of the bus and checks their types, also of keys whose names are not known beforehand."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from eventbus.broker.connection.connect import Client, primaries
from eventbus.broker.health.partition_status import execute
from eventbus.broker.key_types import Expected, expected_of
from eventbus.broker.keys import Keys
from eventbus.broker.redis_errors import redis_errors
from eventbus.errors import BusRefused

#: The most keys to scan on a server, with those of other applications: about a second, 1 ms a command for Redis.
MOST_KEYS: Final = 100_000
_STEP: Final = 1_000


class Scanned(msgspec.Struct, frozen=True):
    """Keys of a wrong type: key → (type, expected type). *whole*: all keys were scanned."""

    spoiled: Mapping[bytes, tuple[str, Expected]]
    whole: bool


def scan_keys(client: Client, prefix: str, every: Iterable[Keys], *, most: int = MOST_KEYS) -> Scanned:
    """Scan all keys of these partitions, at *most* so many on a server. Changes nothing.

    Raises: BusRefused: this user may not scan.  BusUnavailable: call again.
    Redis:  SCAN, and TYPE on each key.
    """
    partitions, whole = {keys.partition for keys in every}, True
    spoiled: dict[bytes, tuple[str, Expected]] = {}
    for node in primaries(client):
        cursor, seen, whole_node = 0, 0, False
        while seen < most:
            cursor, found = _scan(node, cursor, prefix)
            seen += _STEP
            spoiled |= _judge(node, prefix, partitions, found)
            whole_node = cursor == 0
            if whole_node:
                break
        whole = whole and whole_node
    return Scanned(spoiled, whole)


def _scan(node: Any, cursor: int, prefix: str) -> tuple[int, list[bytes]]:
    pipe = node.pipeline(transaction=False)
    pipe.execute_command("SCAN", cursor, "MATCH", f"{prefix}:{{*}}:*", "COUNT", _STEP)
    with redis_errors():
        (reply,) = execute(pipe)
    if reply is None:
        raise BusRefused("the server does not let this user SCAN its keys")
    return int(reply[0]), list(reply[1])


def _judge(node: Any, prefix: str, partitions: set[int], found: list[bytes]) -> dict[bytes, tuple[str, Expected]]:
    ours = [(key, must) for key in found if (must := expected_of(prefix, key)) and must[0] in partitions]
    if not ours:
        return {}
    pipe = node.pipeline(transaction=False)
    for key, _ in ours:
        pipe.type(key)
    types = [(reply or b"none").decode("ascii", "replace") for reply in execute(pipe)]
    return {
        key: (kind, must)
        for (key, (_, must)), kind in zip(ours, types, strict=True)
        if kind not in ("none", must.type)  # none: it was deleted meanwhile
    }


__all__ = ["MOST_KEYS", "Scanned", "scan_keys"]
