"""The last line of every run says how many container tests ran. In CI a skip, or no container test, fails the run.

A run of named files (`make faults`) need not hold a container test; a skip fails it as well.
"""

from __future__ import annotations

import os
from collections.abc import Generator

import pytest
from _pytest.terminal import TerminalReporter


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> Generator[None, None, None]:
    yield
    terminal = session.config.pluginmanager.get_plugin("terminalreporter")
    if not isinstance(terminal, TerminalReporter) or hasattr(session.config, "workerinput"):
        return  # a worker of xdist: its reports come to the controller, which sums them up
    ran, skipped, skipped_containers = _count(terminal)
    in_ci = os.environ.get("CI", "").lower() in {"1", "true"}
    whole = session.config.args_source is not pytest.Config.ArgsSource.ARGS
    complaint = _complaint(ran, skipped, whole=whole) if in_ci and not session.config.option.collectonly else None
    if complaint and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
    if complaint:
        terminal.write_line(f"CI: {complaint}", red=True)
    if cache := getattr(session.config, "cache", None):  # there is none with -p no:cacheprovider
        # No second try of what failed makes up for either: what loses an event now and then loses events.
        again = (
            {} if complaint or _broken_promises(terminal) else _also_without_groups(cache.get("cache/lastfailed", {}))
        )
        cache.set("cache/lastfailed", again)
    terminal.write_line(f"container tests: {ran} run, {skipped_containers} skipped")


def _also_without_groups(failed: dict[str, bool]) -> dict[str, bool]:
    """`test@group` is only half of what finds a test again: files are collected by names that have no group yet."""
    plain = [nodeid.rpartition("@")[0] for nodeid in failed if nodeid.rfind("@") > nodeid.rfind("]")]
    return failed | dict.fromkeys(plain, True)


def _count(terminal: TerminalReporter) -> tuple[int, int, int]:
    """Container tests run, all tests skipped, container tests skipped."""
    outcomes = ("passed", "failed", "error", "xfailed", "xpassed")
    ran = {
        report.nodeid
        for outcome in outcomes
        for report in terminal.stats.get(outcome, [])
        if getattr(report, "when", None) == "call" and "container" in report.keywords
    }
    skipped = [report for report in terminal.stats.get("skipped", []) if isinstance(report, pytest.TestReport)]
    collected = [report for report in terminal.stats.get("skipped", []) if isinstance(report, pytest.CollectReport)]
    containers = sum("container" in report.keywords for report in skipped)
    return len(ran), len(skipped) + len(collected), containers


def _broken_promises(terminal: TerminalReporter) -> bool:
    """Whether a fault did harm; a control run in which it did none may be tried again."""
    failed = [report.nodeid for outcome in ("failed", "error") for report in terminal.stats.get(outcome, [])]
    return any(nodeid.startswith("tests/faults/") and "control" not in nodeid for nodeid in failed)


def _complaint(ran: int, skipped: int, *, whole: bool) -> str | None:
    if skipped:
        return f"{skipped} skipped; here every test must run"
    if not whole:
        return None
    # A second try of what failed need not hold a container test: the first has run them all.
    return None if ran or os.environ.get("EVENTBUS_TEST_SECOND_TRY") else "no container test ran"
