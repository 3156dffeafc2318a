"""The decision that maps client-go's cases to tests names only tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

HERE = Path(__file__).parent
(PAGE,) = (HERE.parents[2] / "docs" / "decisions").glob("*-informer-tests.md")


def test_every_test_that_the_map_names_exists() -> None:
    there = {name for file in HERE.glob("test_*.py") for name in re.findall(r"^def (test_\w+)", file.read_text(), re.M)}
    named = set(re.findall(r"`(test_\w+)`", PAGE.read_text()))
    assert len(named) > 60
    assert named <= there, f"gone: {sorted(named - there)}"
