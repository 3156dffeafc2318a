"""`eventbus worker notify` as real processes: a bad file, another file, a dry run."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.programs import Program, environment, run
from tests.support.webhook_server import Endpoint, receiving
from tests.waiting import eventually

RULES = """
route: {{receiver: chat, group_by: [name], group_wait: 0s, group_interval: 1s}}
receivers:
- {{name: chat, webhook_configs: [{{url: "http://127.0.0.1:{port}/"}}]}}
"""


@pytest.fixture
def endpoint() -> Endpoint:
    return Endpoint()


@pytest.fixture
def rules(endpoint: Endpoint, tmp_path: Path) -> Iterator[Path]:
    with receiving(endpoint) as port:
        path = tmp_path / "rules.yaml"
        path.write_text(RULES.format(port=port))
        yield path


@pytest.fixture
def env(embedded_url: str, prefix: str) -> dict[str, str]:
    return environment(embedded_url, prefix, webhook_allow_hosts="127.0.0.1")


def warn(env: dict[str, str], name: str) -> None:
    words = ("--type", "Warning", "--reason", "BackOff", "--message", "back-off")
    assert run("record", f"Pod/{name}", *words, env=env).returncode == 0


def test_a_file_with_a_mistake_is_refused_at_start_and_later_not_used(
    env: dict[str, str], rules: Path, endpoint: Endpoint, tmp_path: Path
) -> None:
    good = rules.read_text()
    rules.write_text(good.replace("group_wait", "group_wat"))
    refused = run("worker", "notify", "--rules", str(rules), env=env)
    assert refused.returncode == 2
    assert "rules.yaml: line 2: route.group_wat: there is no such field; did you mean group_wait?" in refused.stderr
    rules.write_text(good)
    with Program("worker", "notify", "--rules", str(rules), env=env, folder=tmp_path) as one:
        eventually(lambda: "acts in term 1" in one.err)
        rules.write_text(good.replace("group_wait", "group_wat"))
        one.signal(signal.SIGHUP)
        eventually(lambda: "the former one stays" in one.err)
        rules.write_text(good.replace("1s", "2s"))
        eventually(lambda: "notify uses the new rules" in one.err)
        assert one.stop() == 0


def test_a_dry_run_prints_and_sends_nothing(
    env: dict[str, str], rules: Path, endpoint: Endpoint, tmp_path: Path
) -> None:
    command = ("worker", "notify", "--rules", str(rules), "--dry-run", "--since", "1h")
    rules.write_text(rules.read_text().replace("route: {", "route: {routes: [{matchers: [reason=backoff]}], "))
    with Program("worker", "sink", env=env, folder=tmp_path):
        warn(env, "web-0")
        eventually(
            lambda: "BackOff" in run("get", "events", env=env).stdout
        )  # the rules are compared with what is stored
        with Program(*command, env=env, folder=tmp_path) as dry:
            eventually(lambda: "Pod default/web-0: BackOff" in dry.out)
            assert 'reason "BackOff" was seen 1 time; your matcher reason="backoff" matches none' in dry.err
            assert dry.stop() == 0
    assert endpoint.deliveries == []
