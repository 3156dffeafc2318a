"""Scenarios as files: what is absent, what is refused, and that ours survive the way there and back."""

from __future__ import annotations

from pathlib import Path

import pytest

from eventbus.settings import Options, SpamKey
from tests.conformance.__main__ import main
from tests.conformance.files import MalformedScenario, read_scenario, write_scenario
from tests.conformance.scenario import START_MS, Step, make_options
from tests.conformance.scenarios import own_scenarios


def test_what_we_write_reads_back_as_the_same_scenario(tmp_path: Path) -> None:
    for scenario in own_scenarios():
        write_scenario(scenario, tmp_path)
        read = read_scenario(tmp_path / f"{scenario.name}.in.jsonl")
        assert read.options == scenario.options
        assert [step.event for step in read.steps] == [step.event for step in scenario.steps]
    assert main(["--driver", "model", str(tmp_path)]) == 0


def test_absent_fields_get_the_clock_the_objects_namespace_and_a_count_of_1(tmp_path: Path) -> None:
    (first, second), options = write_and_read(
        tmp_path,
        '{"options":{"burst":0,"qps":0.7,"max_events":3,"max_interval_s":7,"message":"[x] ","spam_key":"reason"}}',
        '{"t_ms":1500,"event":{"involvedObject":{"kind":"Job","namespace":"night"},"series":null,"lastTimestamp":null}}',
        '{"t_ms":-1,"event":{"count":0,"firstTimestamp":"2020-02-29T12:00:00+02:00"},"delete":["*"]}',
    )
    assert options == make_options(
        qps=0.7, max_events=3, max_interval_s=7, aggregate_message="[x] ", spam_key=SpamKey.OBJECT_TYPE_REASON
    )
    assert (first.at_ms, first.delete, first.event.count) == (START_MS + 1500, False, 1)
    assert first.event.metadata.namespace == "night"
    assert first.event.first_timestamp == first.event.last_timestamp
    assert str(first.event.first_timestamp) == "2024-01-01 00:00:01.500000+00:00"
    assert (second.at_ms, second.delete, second.event.count) == (START_MS - 1, True, 0)
    assert second.event.metadata.namespace == "default"
    assert str(second.event.first_timestamp) == "2020-02-29 12:00:00+02:00"
    assert str(second.event.last_timestamp) == "2023-12-31 23:59:59.999000+00:00"


def test_scenario_without_a_line_of_options_has_client_gos_defaults(tmp_path: Path) -> None:
    _, options = write_and_read(tmp_path, '{"t_ms":0,"event":{}}')
    assert (options.burst, options.max_events, options.max_interval_s) == (25, 10, 600)
    assert options.qps == 0.0033333334140479565
    assert options.spam_key is SpamKey.OBJECT_TYPE
    assert not options.report_suppressed


def test_half_of_a_surrogate_pair_is_read_as_go_reads_it(tmp_path: Path) -> None:
    steps, _ = write_and_read(tmp_path, '{"t_ms":0,"event":{"message":"a\\uD800 \\ud83d\\ude00"}}')
    assert steps[0].event.message == "a\ufffd \U0001f600"


def test_unknown_option_is_named_and_ignored(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_and_read(tmp_path, '{"options":{"colour":"red"}}', '{"t_ms":0,"event":{}}')
    assert "'colour' is unknown" in capsys.readouterr().err


@pytest.mark.parametrize(
    "line", ['{"options":["x"]}', '{"options":{"burst":"many"}}', '{"t_ms":99999999999999999999,"event":{}}', "[]", "{"]
)
def test_what_is_no_scenario_is_malformed_whatever_is_wrong_with_it(tmp_path: Path, line: str) -> None:
    with pytest.raises(MalformedScenario):
        write_and_read(tmp_path, line, '{"t_ms":0,"event":{}}')


def test_scenario_with_deletion_of_single_objects_is_refused(tmp_path: Path) -> None:
    with pytest.raises(MalformedScenario, match="delete"):
        write_and_read(tmp_path, '{"t_ms":0,"event":{},"delete":["default/x"]}')


def write_and_read(directory: Path, *lines: str) -> tuple[tuple[Step, ...], Options]:
    events = [line for line in lines if '"event"' in line]
    (directory / "x.in.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    (directory / "x.out.jsonl").write_text('{"skip":true}\n' * len(events))
    scenario = read_scenario(directory / "x.in.jsonl")
    return scenario.steps, scenario.options
