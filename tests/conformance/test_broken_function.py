"""The real function with one rule broken in its source: the runner finds every one of them."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import pytest
import redis

from eventbus.broker.build import library
from eventbus.broker.embedded.server import EmbeddedServer
from eventbus.correlate import keys as correlator
from tests.conformance import recording
from tests.conformance.files import read_scenario
from tests.conformance.redis_driver import RedisDriver
from tests.conformance.runner import failures
from tests.conformance.scenarios import own_scenarios
from tests.conformance.vectors import VECTORS
from tests.thin import one

#: One worker process runs them all, so that they share the server that they break.


class Mutant(NamedTuple):
    """*right* occurs once in the source. With *wrong* in its place a table of ours fails, and a recorded vector."""

    right: str
    wrong: str
    found_by: str
    vector: str


THRESHOLD = Mutant(
    ">= max_events",
    "> max_events",
    "tenth_different_message_is_the_first_aggregate",
    "014_expiry_gap_599000",
)
INTERVAL = Mutant(
    "> max_interval_ms",
    ">= max_interval_ms",
    "pause_of_exactly_the_interval_goes_on",
    "016_expiry_gap_600000",
)
TTL = Mutant(
    "elseif at_ms - last > max_interval_ms then",
    "elseif false then",
    "pause_of_the_interval_and_1_ms_starts_anew",
    "017_expiry_gap_600001",
)
COUNT = Mutant(
    "      return aggregated and 'S' or 's'",
    "      if seen then r.o[COUNT] = r.o[COUNT] - 1 else r.o[COUNT] = 0 end return aggregated and 'S' or 's'",
    "skipped_repeats_are_counted",
    "029_spam_then_patch_missing",
)
SPAM_TIME = Mutant(
    "* 1e9 >= 1 then return false end",
    "* 1e9 >= 1 then bucket[ACCEPTED] = at_ms return false end",
    "skipped_events_do_not_delay_the_next_token",
    "025_spam_refill_accumulates",
)
LUA = dict(
    threshold_off_by_one=THRESHOLD,
    interval_reached_is_interval_passed=INTERVAL,
    ttl_decides_instead_of_the_stored_time=TTL,
    count_not_kept_while_filtered=COUNT,
    skipped_event_moves_the_time_of_the_bucket=SPAM_TIME,
)
TYPE = Mutant("spam += (kind,)", "spam += ()", "warning_gets_through_after_the_normals_are_spent", "103_real_crashloop")


@pytest.fixture(scope="module")
def own_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server that may hold a broken library, which others must not meet."""
    server = EmbeddedServer(tmp_path_factory.mktemp("broken"), config={"appendonly": "no"})
    try:
        yield server.start()
    finally:
        server.stop()


def mutated(source: str, mutant: Mutant) -> str:
    assert source.count(mutant.right) == 1, f"{mutant.right!r} is no longer what the rule looks like"
    return source.replace(mutant.right, mutant.wrong)


def load(url: str, source: str) -> None:
    with redis.Redis.from_url(url) as client:
        client.function_load(source, replace=True)


def assert_found(url: str, table: str, vector: str) -> None:
    of_table = next(scenario for scenario in own_scenarios() if scenario.name == table)
    for scenario in (of_table, read_scenario(VECTORS / f"{vector}.in.jsonl")):
        assert failures(RedisDriver(url), [scenario]) == [scenario.name]


def test_rules_that_are_to_be_broken_are_in_the_source() -> None:
    assert [name for name, mutant in LUA.items() if mutated(library(), mutant) == library()] == []


@pytest.mark.parametrize("name", one(LUA))
def test_broken_rule_of_the_function_is_found(own_server: str, name: str) -> None:
    mutant = LUA[name]
    load(own_server, mutated(library(), mutant))
    assert_found(own_server, mutant.found_by, mutant.vector)


@pytest.mark.volume
def test_function_as_it_is_passes_on_the_same_server(own_server: str) -> None:
    load(own_server, library())
    assert failures(RedisDriver(own_server), own_scenarios()) == []


@pytest.mark.volume
def test_type_left_out_of_the_spam_key_is_found(embedded_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = ModuleType("broken_correlator")
    names: dict[str, Any] = vars(broken)
    monkeypatch.setitem(sys.modules, broken.__name__, broken)
    broken_code = compile(mutated(inspect.getsource(correlator), TYPE), str(Path(correlator.__file__)), "exec")
    exec(broken_code, names)  # noqa: S102 - breaks the source of the correlator, to show that the tests find it
    monkeypatch.setattr(recording, "Correlator", names["Correlator"])
    assert_found(embedded_url, TYPE.found_by, TYPE.vector)


@pytest.mark.volume
def test_qps_as_a_double_is_found(embedded_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("eventbus.settings.float32", float)
    assert_found(embedded_url, "qps_of_0.7_is_rounded_down_to_float32", "074_opt_qps_float32_0.7")
