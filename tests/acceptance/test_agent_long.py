"""An agent over minutes: a bus that is away for one back-off and the next."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from eventbus.broker.embedded.server import EmbeddedServer
from tests.acceptance.programs import Program
from tests.support.agent_machine import AgentMachine
from tests.waiting import eventually

#: How long Redis is away at the least, seconds; `make away` takes ten minutes.
AWAY_S = float(os.environ.get("EVENTBUS_TEST_AWAY_S", "60"))

pytestmark = [pytest.mark.volume, pytest.mark.timeout(600 + AWAY_S)]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[EmbeddedServer]:
    made = EmbeddedServer(tmp_path / "server")
    yield made
    made.stop()


@pytest.fixture
def machine(tmp_path: Path, server: EmbeddedServer, prefix: str) -> Iterator[AgentMachine]:
    with AgentMachine(tmp_path, server.start(), prefix) as made:
        yield made


def test_what_happens_while_redis_is_away_is_told_afterwards_in_order_and_once(
    machine: AgentMachine, server: EmbeddedServer, tmp_path: Path
) -> None:
    asked, sick = tmp_path / "asked", ["/bin/sh", "-c", f"echo >> {tmp_path}/asked; exit 1"]
    machine.write("web", "exec sleep 1000000")
    machine.write("crash", "exit 3")
    readiness = {"readinessProbe": {"exec": {"command": sick}, "periodSeconds": 1}}
    machine.write("sick", "exec sleep 1000000", container=readiness)
    agent = machine.agent()
    web = machine.wait_alive("web")
    eventually(lambda: len(machine.starts("crash")) >= 2 and asked.exists())
    server.stop()
    began = time.monotonic()
    machine.write("job", "exit 7", restartPolicy="Never")
    before = len(machine.starts("crash"))
    eventually(lambda: len(machine.starts("crash")) >= before + 2)
    eventually(lambda: machine.ended_with("job") == 7)
    eventually(lambda: time.monotonic() - began >= AWAY_S, within_s=AWAY_S + 60)
    assert (machine.alive("web"), len(machine.starts("web")), len(machine.starts("sick"))) == ([web], 1, 1)
    starts, failures = len(machine.starts("crash")), len(asked.read_text().splitlines())
    away_s = time.monotonic() - began
    server.start()
    with Program("worker", "log", env=machine.env, folder=tmp_path) as log:

        def told() -> list[tuple[str, str, int]]:
            found = re.findall(r" (\w+) +pod/(\w+)-n1 .* uid=\w+:(\d+)\n", log.out)
            return [(reason, pod, int(number)) for reason, pod, number in found]

        def times(reason: str, pod: str) -> int:
            return sum(one[:2] == (reason, pod) for one in told())

        eventually(lambda: times("Started", "job") == 1)
        eventually(lambda: times("Started", "crash") >= starts and times("Unhealthy", "sick") >= failures)
        assert agent.stop() == 0
        eventually(lambda: times("Killing", "web") == times("Killing", "sick") == 1)
        numbers = [number for _, _, number in told()]
        assert numbers == list(range(1, len(numbers) + 1)), "each one, in order, and none twice"
        print(f"Redis away for {away_s:.0f} s: {len(numbers)} events, {failures} failed probes, {starts} starts")
