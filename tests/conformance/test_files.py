"""Scenarios as files: what is absent, what is refused, and that ours survive the way there and back."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from eventbus.settings import Options, SpamKey
from tests.conformance.__main__ import main
from tests.conformance.driver import Patch
from tests.conformance.files import MalformedScenario, patch_to_json, read_scenario, write_scenario
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


@pytest.mark.parametrize(
    ("given", "decides_alike"),
    [
        ('{"qps":1e-50}', Options().qps),
        ('{"qps":-1e-50}', Options().qps),
        ('{"qps":1e-7}', 1.0000000116860974e-07),
        ('{"qps":-0.5}', 0),
        ('{"burst":-7}', 0),
        ('{"burst":99999999999}', 2**31 - 1),
        ('{"max_events":-1}', 1),
        ('{"max_events":1001}', 1_000),
        ('{"max_interval_s":1000000000}', 10**9),
    ],
)
def test_number_that_only_client_go_takes_becomes_one_that_decides_alike(
    tmp_path: Path, given: str, decides_alike: float
) -> None:
    (field,) = json.loads(given)
    _, options = write_and_read(tmp_path, f'{{"options":{given}}}', '{"t_ms":0,"event":{}}')
    assert getattr(options, field) == decides_alike


def test_scenario_that_could_fill_a_set_beyond_our_bound_is_refused(tmp_path: Path) -> None:
    lines = ['{"t_ms":0,"event":{}}'] * 1_001
    with pytest.raises(MalformedScenario, match="max_events must be at most 1000"):
        write_and_read(tmp_path, '{"options":{"max_events":1001}}', *lines)


def test_half_of_a_surrogate_pair_is_read_as_go_reads_it(tmp_path: Path) -> None:
    (step,), _ = write_and_read(tmp_path, r'{"t_ms":0,"event":{"message":"bad \ud800! \ude00 \ud83d\ude00 \u00fc"}}')
    assert step.event.message == "bad \ufffd! \ufffd \U0001f600 ü"


@pytest.mark.parametrize(
    ("last", "shown"), [(0, None), (999_999, None), (1_000_000, "1970-01-01T00:00:01Z"), (-1, "1969-12-31T23:59:59Z")]
)
def test_patch_leaves_out_a_time_in_the_first_second_of_1970(last: int, shown: str | None) -> None:
    patch = Patch(2, datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=last), "m")
    assert (patch_to_json(patch) or {}).get("lastTimestamp") == shown


def test_unknown_option_is_named_and_ignored(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_and_read(tmp_path, '{"options":{"colour":"red"}}', '{"t_ms":0,"event":{}}')
    assert "'colour' is unknown" in capsys.readouterr().err


@pytest.mark.parametrize(
    "line", ['{"options":["x"]}', '{"options":{"burst":"many"}}', '{"t_ms":99999999999999999999,"event":{}}', "[]", "{"]
)
def test_what_is_no_scenario_is_malformed_whatever_is_wrong_with_it(tmp_path: Path, line: str) -> None:
    with pytest.raises(MalformedScenario):
        write_and_read(tmp_path, line, '{"t_ms":0,"event":{}}')


@pytest.mark.parametrize("first", ['{"options":null}', "\ufeff"])
def test_absent_options_and_a_byte_order_mark_say_nothing(tmp_path: Path, first: str) -> None:
    steps, options = write_and_read(tmp_path, first, '{"t_ms":0,"event":{}}')
    assert (len(steps), options) == (1, Options(report_suppressed=False))


def test_scenario_with_deletion_of_single_objects_is_refused(tmp_path: Path) -> None:
    with pytest.raises(MalformedScenario, match="delete"):
        write_and_read(tmp_path, '{"t_ms":0,"event":{},"delete":["default/x"]}')


def write_and_read(directory: Path, *lines: str) -> tuple[tuple[Step, ...], Options]:
    events = [line for line in lines if '"event"' in line]
    (directory / "x.in.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    (directory / "x.out.jsonl").write_text('{"skip":true}\n' * len(events))
    scenario = read_scenario(directory / "x.in.jsonl")
    return scenario.steps, scenario.options
