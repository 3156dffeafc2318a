"""Quantities as Kubernetes writes them: `500m`, `2`, `1.5Gi`, `1e3`."""

from __future__ import annotations

import re
from typing import Final

_QUANTITY: Final = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+))(m|k|M|G|T|P|E|[KMGTPE]i|[eE][+-]?\d+)?")
_FACTORS: Final = {"": 1.0, "m": 1e-3, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15, "E": 1e18} | {
    f"{letter}i": 1024.0**power for power, letter in enumerate("KMGTPE", 1)
}


def parse_quantity(text: object) -> float | None:
    """Return the number that *text* represents; None if it is not a quantity."""
    found = _QUANTITY.fullmatch(str(text))
    if found is None:
        return None
    number, suffix = found[1], found[2] or ""
    if suffix not in _FACTORS:
        return float(number + suffix)
    return float(number) * _FACTORS[suffix]


__all__ = ["parse_quantity"]
