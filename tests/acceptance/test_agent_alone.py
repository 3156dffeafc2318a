"""An agent on its own: no bus is named, its port says how its loop is."""

from __future__ import annotations

import signal
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from eventbus.agent.procfile.procfile_runner import ProcfileRunner, Screen
from eventbus.util.clock import SystemClock
from eventbus.workers.metrics_server import MetricsServer
from tests.acceptance.programs import Program, run
from tests.support.agent_machine import AgentMachine
from tests.support.runtime_world import Told
from tests.thin import one
from tests.waiting import eventually


class Behind(SystemClock):
    """A clock by which a turn that begins now began more than two minutes ago."""

    @staticmethod
    def monotonic() -> float:
        return time.monotonic() - 121


def ask(port: int, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=30) as reply:
            return reply.status, reply.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def test_without_a_url_events_go_to_the_machines_own_bus(short_path: Path) -> None:
    with AgentMachine(short_path, "", "eb") as machine:
        machine.env.pop("EVENTBUS_REDIS_URL", None)
        machine.write("web", "exec sleep 1000")
        agent = machine.agent_alone()
        machine.wait_alive("web")
        try:
            with Program("worker", "sink", env=machine.env, folder=short_path):
                words = ("get", "events", "--for", "pod/web-n1", "-o", "name")
                eventually(lambda: len(run(*words, env=machine.env).stdout.split()) == 2)
            assert "No resources" in run("get", "nodes", env=machine.env).stderr, "it is no node"
            assert agent.stop() == 0
            machine.wait_gone("web")
        finally:
            assert run("down", env=machine.env).returncode == 0


@pytest.mark.parametrize(
    ("edited", "url"),
    one(
        [
            pytest.param(True, "none", id="edited"),
            pytest.param(False, "none", id="taken-away"),
            pytest.param(True, "redis://127.0.0.1:1/0", id="edited-before-the-bus-is-reached"),
        ]
    ),
)
def test_a_manifest_that_is_put_back_while_its_pod_ends_runs_again(tmp_path: Path, edited: bool, url: str) -> None:
    asked, ready = tmp_path / "asked", tmp_path / "ready"
    shell = f"trap 'echo > {asked}' TERM; echo > {ready}; while :; do sleep 0.05; done"
    with AgentMachine(tmp_path, url, "eb", flush_s="1") as machine:
        machine.write("web", shell, terminationGracePeriodSeconds=2)
        agent = machine.agent_alone() if url == "none" else machine.agent()
        first = machine.wait_alive("web")
        eventually(ready.exists)  # it is alive before its trap is set
        if edited:
            machine.write("web", "exec sleep 1000")
        else:
            machine.remove("web")
        eventually(asked.exists)
        machine.write("web", shell, terminationGracePeriodSeconds=2)
        eventually(lambda: machine.alive("web") not in ([], [first]))
        assert first not in machine.alive("web")
        assert agent.stop() == 0
        machine.wait_gone("web")


def test_a_second_agent_of_one_folder_is_refused_and_ends_nothing(tmp_path: Path) -> None:
    with AgentMachine(tmp_path, "none", "eb") as machine:
        machine.write("web", "exec sleep 1000")
        agent = machine.agent_alone()
        web = machine.wait_alive("web")
        second = machine.agent("--standalone")
        assert second.wait() == 2
        assert f"an agent, pid {agent.pid}, has the pods of" in second.err
        assert machine.alive("web") == [web]
        agent.kill()
        machine.agent_alone()
        assert machine.alive("web") == [web]


@pytest.mark.parametrize("hook", one(["preStop", "postStart"]))
def test_an_agent_that_ends_leaves_nothing_of_a_pod_whose_hook_hangs(tmp_path: Path, hook: str) -> None:
    handler = {"exec": {"command": ["/bin/sleep", "1000"]}}
    with AgentMachine(tmp_path, "none", "eb") as machine:
        machine.env["EVENTBUS_DRAIN_S"] = "4"
        machine.write("web", "exec sleep 1000", container={"lifecycle": {hook: handler}})
        agent = machine.agent_alone()
        machine.wait_alive("web")
        agent.stop()
        assert not machine.alive("web")
        machine.wait_gone("web")


@pytest.mark.parametrize("url", one(["none", "redis://127.0.0.1:1/0"]))
def test_a_second_signal_kills_what_runs_and_leaves_no_shim(tmp_path: Path, url: str) -> None:
    with AgentMachine(tmp_path, url, "eb") as machine:
        asked, ready = stubborn(machine, "web")
        agent = machine.agent_alone() if url == "none" else machine.agent()
        machine.wait_alive("web")
        eventually(ready.exists)
        agent.signal(signal.SIGTERM)
        eventually(asked.exists)
        agent.signal(signal.SIGINT)
        assert agent.wait() == 128 + signal.SIGINT
        machine.wait_gone("web")


def test_a_second_signal_kills_nothing_that_is_left_to_the_next_agent(tmp_path: Path) -> None:
    with AgentMachine(tmp_path, "none", "eb") as machine:
        # Its start does not return, so that the agent is still about to end when it is asked again.
        hook = {"postStart": {"exec": {"command": ["/bin/sleep", "1000"]}}}
        machine.write("web", "exec sleep 1000", container={"lifecycle": hook})
        agent = machine.agent_alone("--leave-pods")
        web = machine.wait_alive("web")
        agent.signal(signal.SIGTERM)
        eventually(lambda: "ending its pods" in agent.err)
        agent.signal(signal.SIGTERM)
        assert agent.wait() == 128 + signal.SIGTERM
        assert machine.alive("web") == [web]


def stubborn(machine: AgentMachine, name: str) -> tuple[Path, Path]:
    """Write a pod that does not end when it is asked to. Returns: the files of then, and of when it is ready."""
    asked, ready = machine.folder / "asked", machine.folder / "ready"
    shell = f"trap 'echo > {asked}' TERM; echo > {ready}; while :; do sleep 0.05; done"
    machine.write(name, shell, terminationGracePeriodSeconds=1000)
    return asked, ready


def test_a_turn_of_more_than_two_minutes_fails_the_health_check(tmp_path: Path) -> None:
    for clock, code in ((SystemClock(), 200), (Behind(), 503)):
        pods = ProcfileRunner(tmp_path / str(code), events=Told(), screen=Screen(), clock=clock)
        server = MetricsServer("127.0.0.1:0", component="tests", loop_health=pods._agent.loop_health)
        server.start()
        try:
            assert ask(server.port, "/livez")[0] == code
        finally:
            server.stop()
            pods.close()
