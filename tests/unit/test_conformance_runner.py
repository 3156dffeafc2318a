"""The conformance runner fails when a rule is broken, and says so as promised."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from eventbus.model.event import Event
from tests.conformance.__main__ import main
from tests.conformance.broken_rules import BROKEN, OldestMessageDropped
from tests.conformance.correlation_keys import Key
from tests.conformance.driver import Action, Batch, Decision, Driver
from tests.conformance.files import write_scenario
from tests.conformance.model import Correlator, ModelDriver
from tests.conformance.runner import InBatches, failures, one_by_one, run
from tests.conformance.scenario import START_MS, make_options
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


class BatchAsOneEvent(ModelDriver):
    """Looks at the first event of every batch only."""

    def record_batches(self, batches: Sequence[Batch]) -> list[Decision]:
        return [d for batch in batches for d in self.record(batch.at_ms, batch.events[:1])]


class CallWithOneClock(ModelDriver):
    """Gives all batches of a call the clock of the first."""

    def record_batches(self, batches: Sequence[Batch]) -> list[Decision]:
        return super().record_batches([Batch(batches[0].at_ms, batch.events) for batch in batches])


class ForgetfulBetweenCalls(ModelDriver):
    def record_batches(self, batches: Sequence[Batch]) -> list[Decision]:
        self.correlator.buckets.clear()
        return super().record_batches(batches)


@pytest.mark.parametrize("driver", [BatchAsOneEvent(), CallWithOneClock(), ForgetfulBetweenCalls()])
def test_batches_that_change_the_outcome_are_found_by_the_final_state(driver: Driver) -> None:
    assert [s.name for s in own_scenarios() if InBatches()(driver, s) is not None]


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


def test_fields_of_a_skip_line_mean_nothing(tmp_path: Path) -> None:
    scenario = next(s for s in own_scenarios() if s.name == "skipped_repeats_are_counted")
    write_scenario(scenario, tmp_path)
    out = tmp_path / f"{scenario.name}.out.jsonl"
    out.write_text(out.read_text().replace('{"skip": true}', '{"skip": true, "count": 99, "message": "?"}'))
    assert main(["--driver", "model", str(tmp_path)]) == 0


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


def test_driver_that_breaks_fails_its_scenario() -> None:
    class Breaking(ModelDriver):
        def record(self, at_ms: int, events: Sequence[Event]) -> list[Decision]:
            raise ConnectionError("gone")

    assert run(Breaking(), own_scenarios()[0], one_by_one) == "ConnectionError: gone"


def test_driver_that_decides_too_little_fails() -> None:
    class Silent(ModelDriver):
        def record(self, at_ms: int, events: Sequence[Event]) -> list[Decision]:
            return []

    assert one_by_one(Silent(), own_scenarios()[0]) == "event 1 (t_ms 0): 0 decisions for one event"


@pytest.mark.parametrize("arguments", [["--driver", "paper"], ["--driver", "model", "no/such/dir"], ["--faster"]])
def test_bad_usage_exits_with_2(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(arguments)
    assert left.value.code == 2


def test_directory_without_scenarios_is_bad_usage(tmp_path: Path) -> None:
    with pytest.raises(SystemExit) as left:
        main(["--driver", "model", str(tmp_path)])
    assert left.value.code == 2


def test_taken_name_gets_a_suffix_that_later_repeats_keep() -> None:
    """Two aggregates of one object born in the same millisecond would have one name."""
    driver = ModelDriver()
    driver.start(make_options(max_events=1))
    scenario = own_scenarios()[0]
    event = scenario.steps[0].event
    other = msgspec.structs.replace(event, reason="Other")
    first, second, third = driver.record(START_MS, [event, other, other])
    assert second.name == f"{first.name}.2"
    assert (third.name, third.count, third.action) == (second.name, 2, Action.PATCH)
    assert sorted(s.name for s in driver.final_state()) == [first.name, second.name]


class OtherSuffixes(Correlator):
    def with_free_name(self, key: Key, event: Event) -> Event:
        free = super().with_free_name(key, event)
        if free is event:
            return event
        name = f"{event.metadata.name}.{'%08x' % (hash(key) % 2**32)}"
        self.seen[key] = replace(self.seen[key], name=name)
        return msgspec.structs.replace(event, metadata=msgspec.structs.replace(event.metadata, name=name))


def test_batches_do_not_care_how_a_taken_name_is_suffixed() -> None:
    scenarios = [s for s in own_scenarios() if s.name.startswith(("max_events_1", "two_aggregates_of_one"))]
    assert {InBatches(seed)(ModelDriver(OtherSuffixes), s) for s in scenarios for seed in range(9)} == {None}
    assert len(scenarios) == 2


class SuffixForEverybody(ModelDriver):
    def record(self, at_ms: int, events: Sequence[Event]) -> list[Decision]:
        return [msgspec.structs.replace(d, name=f"{d.name}.2") for d in super().record(at_ms, events)]


class AnotherSuffixEachTime(ModelDriver):
    def record(self, at_ms: int, events: Sequence[Event]) -> list[Decision]:
        return [
            msgspec.structs.replace(d, name=f"{d.name}{at_ms}") if d.name.endswith(".2") else d
            for d in super().record(at_ms, events)
        ]


@pytest.mark.parametrize(
    ("driver", "event"), [(ModelDriver(), None), (SuffixForEverybody(), 1), (AnotherSuffixEachTime(), 3)]
)
def test_only_a_name_that_is_taken_may_have_a_suffix_and_keeps_it(driver: Driver, event: int | None) -> None:
    scenario = next(s for s in own_scenarios() if s.name.startswith("two_aggregates_of_one"))
    told = one_by_one(driver, scenario)
    assert told is None if event is None else (told or "").startswith(f"event {event} ")


def test_patch_of_the_others_event_is_no_excuse_for_a_second_create() -> None:
    """Only the first write of the second key since the store was emptied may create where client-go patches."""

    class Creating(ModelDriver):
        def record(self, at_ms: int, events: Sequence[Event]) -> list[Decision]:
            found = super().record(at_ms, events)
            return [msgspec.structs.replace(d, action=Action.PATCH_CREATE) if d.count == 4 else d for d in found]

    scenario = next(s for s in own_scenarios() if s.name.startswith("two_aggregates_of_one"))
    assert (one_by_one(Creating(), scenario) or "").startswith("event 7 ")
