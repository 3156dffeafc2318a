"""Problems that workers report, and the doctor's finding about them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from eventbus.broker.bus import Bus, open_bus
from eventbus.broker.health.findings import Severity
from eventbus.broker.health.worker_problems import MOST_BYTES, VALID_MS, check_worker_problems, report_problem
from tests.support.harness import settings_of


@pytest.fixture
def bus(any_server_url: str, prefix: str) -> Bus:
    return open_bus(any_server_url, settings_of(prefix))


@pytest.fixture
def client(bus: Bus) -> Iterator[Any]:
    with bus.client() as client:
        yield client


def findings(bus: Bus, client: Any) -> list[tuple[Severity, str]]:
    return [(found.severity, found.message) for found in check_worker_problems(client, bus.prefix)]


WELL = (Severity.OK, "no worker reports a configuration file with an error")


def test_a_problem_is_found_until_it_is_solved(bus: Bus, client: Any) -> None:
    assert findings(bus, client) == [WELL]
    report_problem(bus, client, "api-1", "--grants-file /g, line 2: no\x1b such role" + "x" * MOST_BYTES)
    ((severity, message),) = findings(bus, client)
    assert severity is Severity.WARNING
    assert message.startswith(r"api-1: --grants-file /g, line 2: no\x1b such role")
    assert len(message) < MOST_BYTES + 100
    assert 0 < client.pttl(bus.keys[0].problems) <= VALID_MS
    report_problem(bus, client, "api-1", "")
    assert findings(bus, client) == [WELL]


def test_the_report_of_a_dead_worker_is_ignored_while_others_keep_the_key(bus: Bus, client: Any) -> None:
    now_ms = client.time()[0] * 1000
    client.hset(bus.keys[0].problems, "dead", msgspec.json.encode([now_ms - VALID_MS - 1000, "old"]))
    client.hset(bus.keys[0].problems, "odd", b"no JSON")
    report_problem(bus, client, "api-1", "new")
    assert [message for _, message in findings(bus, client)] == ["api-1: new; the previous content stays in use"]
