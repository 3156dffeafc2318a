"""Ends a run with what was left out, a line a reason. In CI a skip, or no container test, fails the run.

A run of named files (`make faults`) need not hold a container test; a skip fails it as well.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Generator, Mapping

import pytest
from _pytest.terminal import TerminalReporter

#: Why container tests are skipped where no engine answers, and the cure.
NO_ENGINE = "no Docker engine answers"
_CURE = "to have them, start Docker, or `.ci/container-engine up` as root (CONTRIBUTING.md)"


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> Generator[None, None, None]:
    yield
    terminal = session.config.pluginmanager.get_plugin("terminalreporter")
    if not isinstance(terminal, TerminalReporter) or hasattr(session.config, "workerinput"):
        return  # a worker of xdist: its reports come to the controller, which sums them up
    skipped = Counter(_reason(report) for report in terminal.stats.get("skipped", []))
    in_ci = os.environ.get("CI", "").lower() in {"1", "true"}
    whole = session.config.args_source is not pytest.Config.ArgsSource.ARGS
    if in_ci and not session.config.option.collectonly:
        complaint = _complaint(_containers_run(terminal), skipped.total(), whole=whole)
        if complaint and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
        if complaint:
            terminal.write_line(f"CI: {complaint}", red=True)
    for line in _left_out(skipped):
        terminal.write_line(line)


def _reason(report: pytest.TestReport | pytest.CollectReport) -> str:
    """Return the reason of a skip."""
    said = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    return said.removeprefix("Skipped: ")


def _containers_run(terminal: TerminalReporter) -> int:
    outcomes = ("passed", "failed", "error", "xfailed", "xpassed")
    ran = {
        report.nodeid
        for outcome in outcomes
        for report in terminal.stats.get(outcome, [])
        if getattr(report, "when", None) == "call" and "container" in report.keywords
    }
    return len(ran)


def _complaint(containers_run: int, skipped: int, *, whole: bool) -> str | None:
    if skipped:
        return f"{skipped} skipped; here every test must run"
    return "no container test ran" if whole and not containers_run else None


def _left_out(skipped: Mapping[str, int]) -> list[str]:
    """A line a reason, the most frequent first."""
    reasons = sorted(skipped.items(), key=lambda each: -each[1])
    return [
        f"left out: {number} test{'s' * (number != 1)}: {reason}{f'; {_CURE}' if reason == NO_ENGINE else ''}"
        for reason, number in reasons
    ]
