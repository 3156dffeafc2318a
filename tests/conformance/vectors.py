"""The correlator's vectors, recorded from the running client-go."""

from __future__ import annotations

from pathlib import Path

from tests.conformance.files import read_scenario
from tests.conformance.scenario import Scenario

VECTORS = Path(__file__).parents[1] / "vectors" / "correlator"


def recorded() -> list[Scenario]:
    """All of them, by number."""
    return [read_scenario(path) for path in sorted(VECTORS.glob("*.in.jsonl"))]
