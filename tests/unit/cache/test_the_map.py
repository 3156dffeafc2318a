"""The decision that maps client-go's cases to tests: it has them all, each with a test of its own that exists."""

from __future__ import annotations

import re
from pathlib import Path

HERE = Path(__file__).parent
(PAGE,) = (HERE.parents[2] / "docs" / "decisions").glob("*-informer-tests.md")


def test_every_test_that_the_map_names_exists() -> None:
    there = {name for file in HERE.glob("test_*.py") for name in re.findall(r"^def (test_\w+)", file.read_text(), re.M)}
    named = set(re.findall(r"`(test_\w+)`", PAGE.read_text()))
    assert named <= there, f"gone: {sorted(named - there)}"


#: client-go's cases, by the file of theirs they are in; one more when the reference has one more.
ROWS = {"delta_fifo_test.go": 17, "shared_informer_test.go": 22, "reflector_test.go": 26}


def test_no_row_is_missing_and_each_has_tests_of_its_own_or_says_why_it_has_none() -> None:
    seen: set[str] = set()
    for section in PAGE.read_text().split("\n## "):
        theirs = section.split()[0].rstrip(",")
        if theirs not in ROWS:
            continue
        _, *rows = (line for line in section.splitlines() if line.startswith("| "))  # without the header
        assert len(rows) == ROWS[theirs]
        for row in rows:
            named = set(re.findall(r"`(test_\w+)`", row))
            assert named or re.search(r"do(es)? not apply: \w+", row), row
            assert not named & seen, f"another row has it: {row}"
            seen |= named
    assert len(seen) > 60
