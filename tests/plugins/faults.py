"""The table of the fault tests at the end of every run that held some, and the seed of the run below it.

The seed is one for the whole run, given or made, and is printed whether the tests passed or not.
"""

from __future__ import annotations

import os
import random

import msgspec
from _pytest.terminal import TerminalReporter

from tests.faults.table import Row, format_rows

#: under this name a test gives its rows to the table
PROPERTY = "fault-row"
SEED = "EVENTBUS_TEST_SEED"


def pytest_configure() -> None:
    """The first process of a run decides; those that xdist starts inherit it."""
    os.environ.setdefault(SEED, str(random.SystemRandom().randrange(1, 1 << 31)))


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
        terminalreporter.write_line(f"{SEED}={os.environ[SEED]}")
