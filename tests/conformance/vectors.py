"""The vectors recorded from the running client-go: beside a checkout where they are, but no part of a clone."""

from __future__ import annotations

from pathlib import Path

from tests.conformance.files import read_scenario
from tests.conformance.scenario import Scenario

VECTORS = Path(__file__).parents[3] / "shared" / "vectors" / "correlator"


def recorded() -> list[Scenario]:
    """All of them, by number; none in a clone that stands alone."""
    return [read_scenario(path) for path in sorted(VECTORS.glob("*.in.jsonl"))]
