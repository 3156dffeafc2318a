"""Formats bytes, and how full something is, in a few characters."""

from __future__ import annotations

from eventbus.broker.health.partition_status import Level


def human_bytes(n: int) -> str:
    """Format as `512B`, `4.9KiB`, `256MiB`: three digits at most, cut and not rounded up."""
    size, unit = float(n), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if size < 1024:
            break
        size, unit = size / 1024, larger
    if unit == "B" or size >= 10 or size == int(size):
        return f"{int(size)}{unit}"
    return f"{int(size * 10) / 10}{unit}"


def level_of_bytes(level: Level) -> str:
    """Format as `82MiB/256MiB (32%)`; `?` where the user may not look."""
    if level.used is None:
        return "?"
    if level.bound is None:
        return human_bytes(level.used)
    return f"{human_bytes(level.used)}/{human_bytes(level.bound)}{percent(level)}"


def used_bytes(level: Level) -> str:
    """Format as `82MiB (32%)`."""
    return "?" if level.used is None else f"{human_bytes(level.used)}{percent(level)}"


def used_keys(level: Level) -> str:
    """Format as `120`, `95000 (95%)`."""
    return "?" if level.used is None else f"{level.used}{percent(level)}"


def percent(level: Level) -> str:
    """Format as ` (32%)`; nothing below one per cent."""
    return f" ({int(level.share * 100)}%)" if level.share >= 0.01 else ""
