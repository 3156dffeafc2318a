"""The recorded vectors: all pass, and every broken rule fails some of them."""

from __future__ import annotations

from functools import cache

import pytest

from tests.conformance.__main__ import main
from tests.conformance.broken_rules import BROKEN
from tests.conformance.model import Correlator, ModelDriver
from tests.conformance.redis_driver import RedisDriver
from tests.conformance.runner import InBatches, Mode, failures, one_by_one
from tests.conformance.scenario import Scenario
from tests.conformance.vectors import VECTORS, recorded

vectors = cache(recorded)
MODES = [pytest.param(one_by_one, id="one_event_a_call"), pytest.param(InBatches(), id="in_batches")]


@pytest.mark.timeout(300)  # thousands of calls, one after the other
@pytest.mark.parametrize("mode", MODES)
def test_function_on_redis_decides_as_client_go_did(embedded_url: str, mode: Mode) -> None:
    assert vectors()
    assert failures(RedisDriver(embedded_url), vectors(), mode) == []


@pytest.mark.parametrize("mode", [[], ["--batches"]])
def test_runner_says_that_all_vectors_pass(capsys: pytest.CaptureFixture[str], mode: list[str]) -> None:
    assert main(["--driver", "model", *mode, str(VECTORS)]) == 0
    assert capsys.readouterr().out == f"{len(vectors())} passed, 0 failed\n"


@pytest.mark.parametrize("rules", BROKEN)
def test_broken_rule_fails_recorded_vectors(rules: type[Correlator]) -> None:
    assert failures(ModelDriver(rules), vectors())


def test_qps_as_a_double_fails_recorded_vectors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("eventbus.settings.float32", float)
    read_again: list[Scenario] = recorded()  # options round when they are made
    assert any("float32" in name for name in failures(ModelDriver(), read_again))
