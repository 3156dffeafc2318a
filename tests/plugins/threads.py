"""A test that leaves a thread running fails, daemon or not: a leaked thread is how the next test becomes flaky."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from tests.waiting import reached

#: threads of the test runner itself
RUNNER = ("pytest_timeout", "execnet", "pytest-")


@pytest.fixture(autouse=True)
def _no_thread_left_alive() -> Iterator[None]:
    before = set(threading.enumerate())
    yield
    if not reached(lambda: not _started_since(before)):
        left = _started_since(before)
        pytest.fail(f"threads left alive: {', '.join(thread.name for thread in left)}", pytrace=False)


def _started_since(before: set[threading.Thread]) -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread not in before and not thread.name.startswith(RUNNER)]
