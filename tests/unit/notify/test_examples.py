"""The examples of the docs: the rules file is valid, and its cases pass."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from eventbus.notify.rules import load_rules, parse_rules
from eventbus.notify.simulation import load_cases, run_case

ROOT = Path(__file__).resolve().parents[3]
FOLDER = ROOT / "examples" / "notify"


def test_the_example_has_no_mistake_and_its_cases_pass() -> None:
    parsed = load_rules(FOLDER / "rules.yaml")
    assert parsed.warnings == ()
    results = [run_case(parsed.rules, case) for case in load_cases(FOLDER / "cases.yaml")]
    assert [result.name for result in results if not result.passed] == []
    assert len(results) == 5


@pytest.mark.parametrize("service", ["slack", "pagerduty", "email", "alertmanager", "apprise"])
def test_the_example_of_a_service_has_no_mistake(service: str) -> None:
    parsed = parse_rules((FOLDER / f"{service}.yaml").read_text("utf-8"))
    assert parsed.warnings == ()
    assert {name.partition("[")[0] for name, _ in parsed.rules.receivers[0].integrations()} == {service}


@pytest.mark.parametrize("number", [0, 1, 2])
def test_the_rules_of_the_page_are_valid(number: int) -> None:
    page = (ROOT / "docs" / "warnings.md").read_text("utf-8")
    text = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)[number]
    if "route:" not in text:
        text += "route: {receiver: none}\nreceivers: [{name: none}]\n"
    assert parse_rules(text).warnings == ()


def test_the_example_of_expected_events_has_no_mistake() -> None:
    parsed = load_rules(FOLDER / "expected.yaml")
    assert parsed.warnings == ()
    assert [rule.name for rule in parsed.rules.expect] == ["nightly-backup", "import"]
