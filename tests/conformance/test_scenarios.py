"""Every scenario of our own through every correlator there is."""

from __future__ import annotations

import pytest

from tests.conformance.driver import Driver
from tests.conformance.model import ModelDriver
from tests.conformance.redis_driver import RedisDriver
from tests.conformance.runner import InBatches, failures, one_by_one
from tests.conformance.scenario import Scenario
from tests.conformance.scenarios import own_scenarios

SEEDS = range(3)
SCENARIOS = [pytest.param(scenario, id=scenario.name) for scenario in own_scenarios()]


@pytest.fixture(params=["model", "redis"])
def driver(request: pytest.FixtureRequest) -> Driver:
    if request.param == "model":
        return ModelDriver()
    return RedisDriver(request.getfixturevalue("embedded_url"))


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_every_event_is_decided_as_the_table_says(driver: Driver, scenario: Scenario) -> None:
    assert one_by_one(driver, scenario) is None


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_final_state_is_the_same_wherever_batches_end(driver: Driver, scenario: Scenario) -> None:
    for seed in SEEDS:
        assert InBatches(seed)(driver, scenario) is None


def test_all_tables_pass_on_every_kind_of_server(server_url: str) -> None:
    driver = RedisDriver(server_url)
    assert failures(driver, own_scenarios()) == []
    assert failures(driver, own_scenarios(), InBatches()) == []
