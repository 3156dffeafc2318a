"""What fault tests share: a seed that is printed, the table of all rows, and which of them run when.

`make test` runs those marked `short`; the long ones are collected only with EVENTBUS_TEST_FAULTS=long (`make faults`).
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest
from _pytest.terminal import TerminalReporter

from tests.faults.checker import Verdict
from tests.faults.scene import Scene
from tests.faults.table import Row, format_rows

LONG = os.environ.get("EVENTBUS_TEST_FAULTS", "") == "long"
PROPERTY = "fault-row"

Note = Callable[[str, Verdict], None]
NoteControl = Callable[[str, Verdict | str, str], None]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Long tests are left out rather than skipped: in CI a skip is a failure."""
    left_out = [] if LONG else [item for item in items if item.get_closest_marker("long")]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]


def pytest_terminal_summary(terminalreporter: TerminalReporter) -> None:
    rows = [
        msgspec.json.decode(value, type=Row)
        for reports in terminalreporter.stats.values()
        for report in reports
        if getattr(report, "when", None) == "call"
        for name, value in getattr(report, "user_properties", [])
        if name == PROPERTY
    ]
    if rows:
        terminalreporter.section("faults")
        terminalreporter.write(format_rows(rows))


@pytest.fixture
def seed(request: pytest.FixtureRequest) -> int:
    """Printed with a failing test; give it again with EVENTBUS_TEST_SEED."""
    seed = int(os.environ.get("EVENTBUS_TEST_SEED", 0)) or random.SystemRandom().randrange(1, 1 << 31)
    print(f"EVENTBUS_TEST_SEED={seed}")
    request.node.user_properties.append(("seed", seed))
    return seed


@pytest.fixture
def note(request: pytest.FixtureRequest) -> Note:
    """Put a run into the table."""

    def note(fault: str, verdict: Verdict) -> None:
        row = Row(
            fault,
            1,
            verdict.accepted,
            verdict.lost + verdict.missing,
            verdict.duplicate + verdict.double,
            verdict.recovery_s,
            told=verdict.told,
        )
        request.node.user_properties.append((PROPERTY, msgspec.json.encode(row).decode()))

    return note


@pytest.fixture
def note_control(request: pytest.FixtureRequest) -> NoteControl:
    """Put what a control run did into the table: it must have failed. A text: the test has looked itself."""

    def note(fault: str, verdict: Verdict | str, what: str) -> None:
        if isinstance(verdict, str):
            row = Row(fault, control=f"{what}: {verdict}")
            request.node.user_properties.append((PROPERTY, msgspec.json.encode(row).decode()))
            return
        assert not verdict.clean, f"without protection nothing happened: the fault was not injected ({what})"
        lost, double = verdict.lost + verdict.missing, verdict.duplicate + verdict.double
        row = Row(fault, control=f"{what}: {lost} lost, {double} duplicate")
        request.node.user_properties.append((PROPERTY, msgspec.json.encode(row).decode()))

    return note


@pytest.fixture
def scene(short_path: Path) -> Iterator[Callable[..., Scene]]:
    """Makes scenes that end with the test."""
    made: list[Scene] = []

    def make(**given: object) -> Scene:
        made.append(Scene(short_path, **given))  # type: ignore[arg-type]
        return made[-1].__enter__()

    try:
        yield make
    finally:
        for each in reversed(made):
            each.__exit__(None, None, None)
