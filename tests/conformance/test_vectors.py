"""The recorded vectors: all pass, and every broken rule fails some of them."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from tests.conformance.__main__ import main
from tests.conformance.broken_rules import BROKEN
from tests.conformance.model import Correlator, ModelDriver
from tests.conformance.redis_driver import RedisDriver
from tests.conformance.runner import InBatches, Mode, failures, one_by_one
from tests.conformance.scenario import Scenario
from tests.conformance.vectors import VECTORS, recorded
from tests.thin import one

vectors = cache(recorded)
MODES = [pytest.param(one_by_one, id="one_event_a_call"), pytest.param(InBatches(), id="in_batches")]


#: A call an event, with all that is compared after each, takes long where there are thousands of events.
FEW = 100


@pytest.mark.parametrize("mode", one(MODES))
def test_function_on_redis_decides_as_client_go_did(embedded_url: str, mode: Mode) -> None:
    short = vectors(FEW)
    assert short
    assert failures(RedisDriver(embedded_url), short, mode) == []


@pytest.mark.volume
@pytest.mark.parametrize("mode", MODES)
def test_function_on_redis_decides_as_client_go_did_for_long(embedded_url: str, mode: Mode) -> None:
    long = [vector for vector in vectors() if len(vector.steps) > FEW]
    assert long
    assert failures(RedisDriver(embedded_url), long, mode) == []


@pytest.mark.parametrize("mode", [[], ["--batches"]])
def test_runner_says_how_many_vectors_pass(capsys: pytest.CaptureFixture[str], tmp_path: Path, mode: list[str]) -> None:
    for path in VECTORS.glob("01*"):
        (tmp_path / path.name).symlink_to(path)
    assert main(["--driver", "model", *mode, str(tmp_path)]) == 0
    assert capsys.readouterr().out == "7 passed, 0 failed\n"


@pytest.mark.volume
@pytest.mark.parametrize("mode", MODES)
def test_model_decides_as_client_go_did(mode: Mode) -> None:
    assert failures(ModelDriver(), vectors(), mode) == []


@pytest.mark.volume
@pytest.mark.parametrize("rules", BROKEN)
def test_broken_rule_fails_recorded_vectors(rules: type[Correlator]) -> None:
    assert failures(ModelDriver(rules), vectors())


@pytest.mark.volume
def test_qps_as_a_double_fails_recorded_vectors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("eventbus.settings.float32", float)
    read_again: list[Scenario] = recorded()  # options round when they are made
    assert any("float32" in name for name in failures(ModelDriver(), read_again))
