"""A test that leaves a thread running fails, daemon or not: a leaked thread is how the next test becomes flaky."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

#: how long a thread that was told to stop may take to do so
GRACE_S = 2.0

#: threads of the test runner itself
RUNNER = ("pytest_timeout", "execnet", "pytest-")


@pytest.fixture(autouse=True)
def _no_thread_left_alive() -> Iterator[None]:
    before = set(threading.enumerate())
    yield
    deadline = time.monotonic() + GRACE_S
    while (left := _started_since(before)) and time.monotonic() < deadline:
        left[0].join(timeout=0.01)
    if left:
        pytest.fail(f"threads left alive: {', '.join(thread.name for thread in left)}", pytrace=False)


def _started_since(before: set[threading.Thread]) -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread not in before and not thread.name.startswith(RUNNER)]
