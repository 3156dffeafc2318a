"""`eventbus worker notify` as real processes: a bad file, a kill in the middle, another file, a dry run."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from tests.acceptance.programs import Program, environment, run
from tests.support.webhook_server import Answer, Delivery, Endpoint, receiving
from tests.waiting import eventually

RULES = """
route: {{receiver: chat, group_by: [name], group_wait: 0s, group_interval: 1s}}
receivers:
- {{name: chat, webhook_configs: [{{url: "http://127.0.0.1:{port}/"}}]}}
"""


class Recording(Endpoint):
    """Calls *act* with each delivery before it is answered."""

    def __init__(self) -> None:
        super().__init__()
        self.kill: Program | None = None

    def answer(self, delivery: Delivery) -> Answer:
        if program := self.kill:
            self.kill = None
            program.kill()  # between sent and confirmed
        return super().answer(delivery)

    def names(self) -> list[str]:
        payloads = [msgspec.json.decode(delivery.body) for delivery in self.deliveries]
        return [payload["groupLabels"]["name"] for payload in payloads]

    def keys(self) -> list[str]:
        return [delivery.headers["idempotency-key"] for delivery in self.deliveries]


@pytest.fixture
def endpoint() -> Recording:
    return Recording()


@pytest.fixture
def rules(endpoint: Recording, tmp_path: Path) -> Iterator[Path]:
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


def test_a_killed_notifier_is_taken_over_with_one_repeat_under_the_same_key(
    env: dict[str, str], rules: Path, endpoint: Recording, tmp_path: Path
) -> None:
    command = ("worker", "notify", "--rules", str(rules), "--take-over-s", "1")
    with (
        Program("worker", "sink", env=env, folder=tmp_path),
        Program(*command, env=env, folder=tmp_path) as one,
    ):
        eventually(lambda: "acts in term 1" in one.err)
        warn(env, "web-0")
        eventually(lambda: endpoint.names() == ["web-0"])
        endpoint.kill = one
        warn(env, "web-1")
        eventually(lambda: len(endpoint.names()) == 2)
        with Program(*command, env=env, folder=tmp_path) as two:
            eventually(lambda: "acts in term 2" in two.err)
            warn(env, "web-2")
            eventually(lambda: "web-2" in endpoint.names())
            assert sorted(endpoint.names()) == ["web-0", "web-1", "web-1", "web-2"]
            assert len(set(endpoint.keys())) == 3
            assert two.stop() == 0


def test_a_file_with_a_mistake_is_refused_at_start_and_later_not_used(
    env: dict[str, str], rules: Path, endpoint: Recording, tmp_path: Path
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
    env: dict[str, str], rules: Path, endpoint: Recording, tmp_path: Path
) -> None:
    command = ("worker", "notify", "--rules", str(rules), "--dry-run", "--since", "1h")
    rules.write_text(rules.read_text().replace("route: {", "route: {routes: [{matchers: [reason=backoff]}], "))
    with Program("worker", "sink", env=env, folder=tmp_path):
        warn(env, "web-0")
        with Program(*command, env=env, folder=tmp_path) as dry:
            eventually(lambda: "Pod default/web-0: BackOff" in dry.out)
            assert 'reason "BackOff" was seen 1 time; your matcher reason="backoff" matches none' in dry.err
            assert dry.stop() == 0
    assert endpoint.deliveries == []
