"""The correlator's vectors, recorded from the running client-go."""

from __future__ import annotations

from math import inf
from pathlib import Path

from tests.conformance.files import read_scenario
from tests.conformance.scenario import Scenario

VECTORS = Path(__file__).parents[1] / "vectors" / "correlator"


def recorded(longest: float = inf) -> list[Scenario]:
    """All of them, by number; or those of at most *longest* events, without reading the others."""
    return [read_scenario(path) for path in sorted(VECTORS.glob("*.in.jsonl")) if _length(path) <= longest]


def _length(path: Path) -> int:
    """Count the decisions: one an event."""
    return path.with_name(path.name.replace(".in.", ".out.")).read_bytes().count(b"\n")
