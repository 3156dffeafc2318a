"""Rules that the page has in JavaScript too, from the cases that `tests/page` gives to the page."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from eventbus.model.columns.events import first_time, last_time
from eventbus.model.encoding.event_json import decode_core
from eventbus.util.human_duration import human_duration
from eventbus.util.text import printable

TWINS: dict[str, list[Any]] = json.loads((Path(__file__).parents[2] / "page" / "twins.json").read_text("utf-8"))


@pytest.mark.parametrize(("seconds", "text"), TWINS["durations"])
def test_durations_are_those_of_the_page(seconds: float, text: str) -> None:
    assert human_duration(seconds) == text


@pytest.mark.parametrize(("text", "shown"), TWINS["printable"])
def test_texts_are_escaped_as_on_the_page(text: str, shown: str) -> None:
    assert printable(text) == shown


@pytest.mark.parametrize(("fields", "first", "last"), TWINS["times"])
def test_first_and_last_times_are_those_of_the_page(fields: dict[str, Any], first: str, last: str) -> None:
    about = {"kind": "Pod", "namespace": "default", "name": "web"}
    raw = {"metadata": {"name": "web.1", "namespace": "default"}, "involvedObject": about, **fields}
    event = decode_core(json.dumps(raw).encode())
    times = [time.isoformat().replace("+00:00", "Z") for time in (first_time(event), last_time(event)) if time]
    assert times == [first, last]
