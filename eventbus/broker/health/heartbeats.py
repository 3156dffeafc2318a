"""Tells living workers by their heartbeat counters: one that moves between two readings belongs to a worker that lives.

Redis' own "idle" is no help: Redis 7.0 does not count a read that found nothing, and no server counts work.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from eventbus.broker.connection.connect import Client
from eventbus.broker.health.partition_status import execute, node_of
from eventbus.broker.keys import Keys

#: A living worker beats at least once a second; between two looks this far apart its counter has moved.
HEARTBEAT_S = 1.5

#: A partition's counters by `<group>/<worker>`.
Beats: TypeAlias = Mapping[str, bytes]


def read_beats(client: Client, every: Sequence[Keys]) -> list[Beats]:
    """Read the counters of each partition. Raises: BusUnavailable: call again.  BusRefused: this user may not look."""
    return [_read(client, keys) for keys in every]


def moving(before: Sequence[Beats], after: Sequence[Beats]) -> list[set[str]]:
    """Return, by partition, the workers whose counter rose between two readings; long work raises it too."""
    return [
        {field for field, beats in now.items() if was.get(field) != beats}
        for was, now in zip(before, after, strict=True)
    ]


def _read(client: Client, keys: Keys) -> Beats:
    pipe: Any = node_of(client, keys.workers).pipeline(transaction=False)
    pipe.hgetall(keys.workers)
    found = execute(pipe)[0] or {}
    return {field.decode("utf-8", "replace"): beats for field, beats in found.items()}


__all__ = ["HEARTBEAT_S", "Beats", "moving", "read_beats"]
