"""Fixtures of the fault tests: the seed, scenes, rows for the table, and the choice of tests to run.

`make test` runs those marked `short`; the long ones are collected only with EVENTBUS_TEST_FAULTS=long (`make faults`).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple, Protocol

import msgspec
import pytest

from tests.faults.checker import Verdict
from tests.faults.scene import Scene
from tests.faults.table import Row
from tests.plugins.faults import PROPERTY, SEED

LONG = os.environ.get("EVENTBUS_TEST_FAULTS", "") == "long"

#: Modules that have only long tests are not even imported by others.
ONLY_LONG = ("clocks", "cluster", "cluster_split", "crowds", "disks", "exports", "failover", "imports", "sentinel")
collect_ignore = [] if LONG else [f"test_{name}.py" for name in ONLY_LONG]


class Note(Protocol):
    """Put a run into the table; a *remark* goes below it."""

    def __call__(self, fault: str, verdict: Verdict, remark: str = "") -> None: ...


class Harm(NamedTuple):
    """The harm that a control run did other than to events: whether it did any, and which, for the table."""

    done: bool
    what: str


class NoteControl(Protocol):
    """Put what a run without protection did into the table; fail if it did none."""

    def __call__(self, fault: str, did: Verdict | Harm, without: str) -> None: ...


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Long tests are left out rather than skipped: in CI a skip is a failure."""
    left_out = [] if LONG else [item for item in items if item.get_closest_marker("long")]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if not item.get_closest_marker("long")]


@pytest.fixture
def seed() -> int:
    """Return the seed of everything that is left to chance here; printed below the table, to be given again."""
    return int(os.environ[SEED])


@pytest.fixture
def note(request: pytest.FixtureRequest) -> Note:
    def note(fault: str, verdict: Verdict, remark: str = "") -> None:
        row = Row(
            fault,
            1,
            verdict.accepted,
            verdict.lost + verdict.missing,
            verdict.duplicate + verdict.double,
            verdict.recovery_s,
            told=verdict.told,
            remark=remark,
        )
        request.node.user_properties.append((PROPERTY, msgspec.json.encode(row).decode()))

    return note


@pytest.fixture
def note_control(request: pytest.FixtureRequest) -> NoteControl:
    def note(fault: str, did: Verdict | Harm, without: str) -> None:
        if isinstance(did, Verdict):
            did = Harm(not did.clean, did.harm)
        assert did.done, f"without protection nothing happened: the fault was not injected ({without}: {did.what})"
        row = Row(fault, control=f"{without}: {did.what}")
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
