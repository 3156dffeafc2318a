"""A job that should have run, as its users see it: rules, a notifier, pings, `get expected`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from urllib.request import urlopen

import pytest

from eventbus.broker.bus import open_bus
from eventbus.settings import Settings
from tests.acceptance.both_ways import over_http
from tests.acceptance.programs import Program, environment, run
from tests.support.api_in_process import serving
from tests.waiting import eventually

RULES = """
route: {receiver: nowhere}
receivers: [{name: nowhere}]
expect:
- name: nightly
  matchers: [kind="Backup", namespace="shop", name="db", reason="Pinged"]
  schedule: "0 3 * * *"
  timezone: Europe/Berlin
  grace: 1h
"""


@pytest.fixture
def settings(embedded_url: str, prefix: str) -> Settings:
    return Settings(redis_url=embedded_url, prefix=prefix)


@pytest.fixture
def api(settings: Settings) -> Iterator[str]:
    with serving(open_bus(settings.redis_url, settings)) as url:
        yield url


def test_a_ping_arrives_and_get_expected_shows_it_over_redis_and_over_an_api(
    settings: Settings, api: str, tmp_path: Path
) -> None:
    redis = environment(settings.redis_url, settings.prefix)
    rules = tmp_path / "rules.yaml"
    rules.write_text(RULES)
    with (
        Program("worker", "sink", env=redis, folder=tmp_path),
        Program("worker", "notify", "--rules", str(rules), env=redis, folder=tmp_path),
    ):
        eventually(lambda: run("get", "expected", "--no-headers", env=redis).stdout.split()[4:] == ["Waiting"])
        with urlopen(f"{api}/eventbus/v1/ping/shop/Backup/db", timeout=30) as answer:
            assert answer.read() == b"OK\n"
        eventually(lambda: run("get", "expected", "--no-headers", env=redis).stdout.split()[4:] == ["Arrived"])
    for env in (redis, over_http(api)):
        header, row = run("get", "expected", env=env).stdout.splitlines()
        assert header.split() == ["NAME", "OBJECT", "LAST", "NEXT", "STATE"]
        assert row.split()[:2] == ["nightly", "shop/Backup/db"]
        (found,) = json.loads(run("get", "expected", "-n", "shop", "-o", "json", env=env).stdout)
        assert (found["name"], found["state"], found["missingSince"]) == ("nightly", "Arrived", None)
        assert "name: nightly" in run("get", "expected", "-o", "yaml", env=env).stdout
        assert "MISSING SINCE" in run("get", "expected", "-o", "wide", env=env).stdout
        assert run("get", "expected", "-n", "other", "-o", "json", env=env).stdout.strip() == "[]"


def test_check_shows_when_the_next_event_is_due(tmp_path: Path) -> None:
    rules = tmp_path / "rules.yaml"
    rules.write_text(RULES)
    checked = run("rules", "check", str(rules), env=environment("redis://127.0.0.1:1/0", "other")).stdout
    assert "expects nightly of shop/Backup/db: next by " in checked
    assert " 03:00:00 CE" in checked
    assert "with a grace of 60m" in checked
