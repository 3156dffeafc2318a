"""The health of a worker's loop, for the health checks and the metrics of its process."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec


class LoopHealth(msgspec.Struct, frozen=True, kw_only=True):
    """One loop, at one moment.

    *group* is a consumer group or `export:<sink>`. *last_progress*: when the loop last completed a round, or
    waited on purpose, seconds, monotonic. *ready*: Redis answers, and entries are delivered. *counts* only grow while
    the loop runs; *gauges* may go both ways.
    """

    group: str
    partition: int
    last_progress: float
    ready: bool
    counts: Mapping[str, float]
    gauges: Mapping[str, float] = {}
