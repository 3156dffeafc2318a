"""Every scenario of our own through every correlator there is."""

from __future__ import annotations

import pytest

from tests.conformance.driver import Driver
from tests.conformance.model import ModelDriver
from tests.conformance.redis_driver import RedisDriver
from tests.conformance.runner import InBatches, Mode, failures, one_by_one, run
from tests.conformance.scenario import Scenario
from tests.conformance.scenarios import own_scenarios
from tests.conftest import CONTAINERS
from tests.thin import one

SEEDS = [pytest.param([0], id="seed 0"), pytest.param([1, 2], id="seeds 1 and 2", marks=pytest.mark.volume)]
SCENARIOS = [pytest.param(scenario, id=scenario.name) for scenario in own_scenarios()]


@pytest.fixture(params=["redis", pytest.param("model", marks=pytest.mark.volume)])
def driver(request: pytest.FixtureRequest) -> Driver:
    if request.param == "model":
        return ModelDriver()
    return RedisDriver(request.getfixturevalue("embedded_url"))


@pytest.mark.volume
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_every_event_is_decided_as_the_table_says(driver: Driver, scenario: Scenario) -> None:
    assert one_by_one(driver, scenario) is None


@pytest.mark.parametrize("seeds", SEEDS)
def test_final_state_is_the_same_wherever_batches_end(driver: Driver, seeds: list[int]) -> None:
    different = {
        f"{scenario.name}, seed {seed}": difference
        for scenario in own_scenarios()
        for seed in seeds
        if (difference := run(driver, scenario, InBatches(seed)))
    }
    assert different == {}


@pytest.mark.parametrize(
    "mode",
    [pytest.param(one_by_one, id="one by one"), pytest.param(InBatches(), id="in batches", marks=pytest.mark.volume)],
)
@pytest.mark.parametrize("server_url", one(CONTAINERS), indirect=True)
def test_all_tables_pass_on_every_other_kind_of_server(server_url: str, mode: Mode) -> None:
    assert failures(RedisDriver(server_url), own_scenarios(), mode) == []
