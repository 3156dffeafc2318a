"""The conformance runner fails when a rule is broken, and says so as promised."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.conformance.__main__ import main
from tests.conformance.broken_rules import BROKEN, OldestMessageDropped
from tests.conformance.files import write_scenario
from tests.conformance.model import Correlator, ModelDriver
from tests.conformance.runner import failures
from tests.conformance.scenarios import own_scenarios


@pytest.mark.parametrize("rules", [*BROKEN, OldestMessageDropped])
def test_broken_rule_fails_our_own_tables(rules: type[Correlator]) -> None:
    assert failures(ModelDriver(rules), own_scenarios())


def test_qps_as_a_double_fails_our_own_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("eventbus.settings.float32", float)
    assert failures(ModelDriver(), own_scenarios()) == [
        "qps_of_0.7_is_rounded_down_to_float32",
        "qps_of_2.3_is_rounded_down_to_float32",
        "qps_of_0.0033333333_is_rounded_up_to_a_300th",
    ]


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        (dict(skip=True), "skip expected true got false"),
        (dict(count=7), "count expected 7 got 2"),
        (dict(message="n"), "message expected 'n' got 'm'"),
        (dict(action="patch+create"), "action expected 'patch+create' got 'patch'"),
        (dict(name="x"), "name expected 'x' got 'vol-7.row-0'"),
        (dict(namespace="x"), "namespace expected 'x' got 'storage'"),
        (dict(first_ts="2024-01-01T00:00:01Z"), "first_ts expected '2024-01-01T00:00:01Z' got '2024-01-01T00:00:00Z'"),
        (dict(last_ts=None), "last_ts expected none got '2024-01-01T00:59:59Z'"),
        (dict(aggregated=True), "aggregated expected true got false"),
        (dict(patch=None), "patch expected false got true"),
        (dict(patch={"count": 3, "lastTimestamp": "2024-01-01T00:59:59Z", "message": "m"}), "patch.count expected 3"),
        (dict(patch={"count": 2, "message": "m"}), "patch.lastTimestamp expected 'absent'"),
        (dict(patch={"count": 2, "lastTimestamp": "2024-01-01T00:59:59Z"}), "patch.message expected 'absent' got 'm'"),
    ],
)
def test_every_compared_field_can_fail(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], changes: dict[str, object], told: str
) -> None:
    scenario = next(s for s in own_scenarios() if s.name.startswith("repeat_after_days"))
    write_scenario(scenario, tmp_path)
    out = tmp_path / f"{scenario.name}.out.jsonl"
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    lines[1] |= changes
    out.write_text("".join(json.dumps(line) + "\n" for line in lines))

    assert main(["--driver", "model", str(tmp_path)]) == 1
    line, total = capsys.readouterr().out.splitlines()
    assert line.startswith(f"{scenario.name}: event 2 (t_ms 3599000): ")
    assert told in line
    assert total == "0 passed, 1 failed"


def test_scenario_that_cannot_be_read_fails_and_the_others_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_scenario(own_scenarios()[0], tmp_path)
    (tmp_path / "000_alone.in.jsonl").write_text('{"t_ms":0,"event":{}}\n')
    (tmp_path / "000_torn.in.jsonl").write_text('{"t_ms":0,"event"\n')
    (tmp_path / "000_torn.out.jsonl").write_text("")
    (tmp_path / "000_beyond.in.jsonl").write_text('{"options":{"max_interval_s":-1}}\n{"t_ms":0,"event":{}}\n')
    (tmp_path / "000_beyond.out.jsonl").write_text('{"skip":true}\n')
    (tmp_path / "000_short.in.jsonl").write_text('{"t_ms":0,"event":{}}\n')
    (tmp_path / "000_short.out.jsonl").write_text("")
    assert main(["--driver", "model", str(tmp_path)]) == 1
    *lines, total = capsys.readouterr().out.splitlines()
    assert [line.split(":")[:2] for line in lines] == [
        ["000_alone", " malformed"],
        ["000_beyond", " malformed"],
        ["000_short", " malformed"],
        ["000_torn", " malformed"],
    ]
    assert total == "1 passed, 4 failed"


@pytest.mark.parametrize("arguments", [["--driver", "paper"], ["--driver", "model", "no/such/dir"], ["--faster"]])
def test_bad_usage_exits_with_2(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(arguments)
    assert left.value.code == 2
