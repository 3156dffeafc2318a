"""Pods of a machine as people see them and act on them: of the bus, deleted, forced, lost, or without Redis."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from eventbus.broker.embedded.server import EmbeddedServer
from eventbus.model.objects.pod import RUNNING_FINALIZER
from tests.acceptance.programs import Program, run
from tests.support.agent_machine import AgentMachine
from tests.waiting import eventually


@pytest.fixture
def machine(tmp_path: Path, prefix: str) -> Iterator[AgentMachine]:
    server = EmbeddedServer(tmp_path / "server")
    with AgentMachine(tmp_path, server.start(), prefix) as made:
        made.server = server  # type: ignore[attr-defined]
        yield made
    server.stop()


def get(machine: AgentMachine, *words: str) -> list[dict[str, Any]]:
    found = run("get", *words, "-o", "json", env=machine.env)
    assert found.returncode == 0, found.stderr
    items: list[dict[str, Any]] = json.loads(found.stdout)["items"]
    return items


def counted(machine: AgentMachine, pod: str) -> dict[str, int]:
    """Return the number of events of a pod by reason."""
    found: dict[str, int] = {}
    for event in get(machine, "events", "--for", f"pod/{pod}"):
        found[event["reason"]] = found.get(event["reason"], 0) + event["count"]
    return found


def test_logs_of_another_machine_name_it(machine: AgentMachine) -> None:
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "far"}}
    manifest = machine.folder / "far.json"
    manifest.write_text(json.dumps(pod | {"spec": {"nodeName": "n9", "containers": [{"name": "m", "command": ["a"]}]}}))
    assert run("apply", "-f", str(manifest), env=machine.env).returncode == 0
    found = run("logs", "far", env=machine.env)
    assert found.returncode == 1
    assert "on node n9" in found.stderr
    assert "on node n9" not in run("-n", "shop", "logs", "far", env=machine.env).stderr


def test_a_pod_of_the_bus_runs_if_it_is_allowed_and_ends_when_it_is_deleted(machine: AgentMachine) -> None:
    allowed = os.path.realpath("/bin/sleep")
    agent = machine.agent("--pods-from-bus", "default", "--allow-command", allowed)
    for name, command in (("good", [allowed, "1000"]), ("bad", ["/bin/sh", "-c", "true"])):
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}}
        spec = {
            "nodeName": "n1",
            "containers": [{"name": "main", "command": command}],
            "terminationGracePeriodSeconds": 2,
        }
        (machine.folder / "pod.json").write_text(json.dumps(pod | {"spec": spec}))
        assert run("apply", "-f", str(machine.folder / "pod.json"), env=machine.env).returncode == 0

    def phases() -> dict[str, tuple[str, str]]:
        found = get(machine, "pods")
        return {
            pod["metadata"]["name"]: (pod["status"].get("phase", ""), pod["status"].get("reason", "")) for pod in found
        }

    eventually(lambda: phases() == {"good": ("Running", ""), "bad": ("Failed", "CommandNotAllowed")})
    assert run("delete", "pod/good", env=machine.env).returncode == 0
    eventually(lambda: "good" not in phases())
    assert run("delete", "pod/bad", env=machine.env).returncode == 0
    eventually(lambda: phases() == {})
    assert agent.stop() == 0


def test_a_pod_that_runs_in_a_namespace_that_its_node_runs_no_longer_fails_and_ends(machine: AgentMachine) -> None:
    sleep = os.path.realpath("/bin/sleep")
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "job", "namespace": "jobs"}}
    spec = {"nodeName": "n1", "containers": [{"name": "main", "command": [sleep, "1000"]}]}
    (machine.folder / "pod.json").write_text(json.dumps(pod | {"spec": spec}))

    assert run("apply", "-f", str(machine.folder / "pod.json"), env=machine.env).returncode == 0

    def status() -> tuple[str, str]:
        (found,) = get(machine, "pods", "-n", "jobs")
        return found["status"].get("phase", ""), found["status"].get("reason", "")

    agent = machine.agent("--pods-from-bus", "jobs", "--allow-command", sleep)
    eventually(lambda: status() == ("Running", ""))
    agent.kill()
    agent = machine.agent()
    eventually(lambda: status() == ("Failed", "NamespaceNotAllowed"))
    eventually(lambda: not any(held.active for held in machine.local.named("job", "jobs")))
    assert "its node runs no pods of namespace jobs" in run("describe", "pod/job", "-n", "jobs", env=machine.env).stdout
    assert run("delete", "pod/job", "-n", "jobs", env=machine.env).returncode == 0
    eventually(lambda: get(machine, "pods", "-n", "jobs") == [])
    assert agent.stop() == 0


def apply_stubborn(machine: AgentMachine, said: Path) -> None:
    """Apply a pod of the bus that hears SIGTERM and stays."""
    script = f"trap 'echo asked >> {said}' TERM; echo $$$$ > {said}; while :; do sleep 0.1; done"
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "stubborn"}}
    main = {"name": "main", "command": [os.path.realpath("/bin/sh"), "-c", script]}
    spec = {"nodeName": "n1", "terminationGracePeriodSeconds": 3600, "containers": [main]}
    (machine.folder / "pod.json").write_text(json.dumps(pod | {"spec": spec}))
    assert run("apply", "-f", str(machine.folder / "pod.json"), env=machine.env).returncode == 0
    eventually(lambda: said.exists() and said.read_text())


def test_a_deleted_pod_that_does_not_end_gets_a_shorter_grace_time(machine: AgentMachine, tmp_path: Path) -> None:
    agent = machine.agent("--pods-from-bus", "default", "--allow-command", os.path.realpath("/bin/sh"))
    said = tmp_path / "said"
    apply_stubborn(machine, said)
    eventually(lambda: [one["metadata"].get("finalizers") for one in get(machine, "pods")] == [[RUNNING_FINALIZER]])
    assert run("delete", "pod/stubborn", env=machine.env).stdout == 'pod "stubborn" deleted\n'
    eventually(lambda: said.read_text().count("asked") == 1)
    assert run("delete", "pod/stubborn", "--grace-period=1", env=machine.env).returncode == 0
    eventually(lambda: get(machine, "pods") == [])
    assert agent.stop() == 0


def test_a_pod_that_is_forced_is_gone_at_once_and_its_agent_ends_it(machine: AgentMachine, tmp_path: Path) -> None:
    agent = machine.agent("--pods-from-bus", "default", "--allow-command", os.path.realpath("/bin/sh"))
    said = tmp_path / "said"
    apply_stubborn(machine, said)
    pid = int(said.read_text().split()[0])
    eventually(lambda: [one["metadata"].get("finalizers") for one in get(machine, "pods")] == [[RUNNING_FINALIZER]])
    ran = run("delete", "pod/stubborn", "--force", "--grace-period=0", env=machine.env)
    assert (ran.returncode, ran.stdout) == (0, 'pod "stubborn" force deleted\n')
    assert "Immediate deletion does not wait" in ran.stderr
    assert get(machine, "pods") == []
    eventually(lambda: not Path(f"/proc/{pid}").exists())
    assert agent.stop() == 0


def test_pods_of_an_agent_that_is_stopped_and_woken_are_lost_and_then_its_own_again(machine: AgentMachine) -> None:
    machine.write("web", "exec sleep 1000")
    sleep = os.path.realpath("/bin/sleep")
    options = ("--lease-duration", "2", "--node-status-update-frequency", "0.5", "--allow-command", sleep)
    agent = machine.agent("--pods-from-bus", "default", *options)
    spec = {"nodeName": "n1", "containers": [{"name": "main", "command": [sleep, "1000"]}]}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "far"}, "spec": spec}
    (machine.folder / "pod.json").write_text(json.dumps(pod))
    assert run("apply", "-f", str(machine.folder / "pod.json"), env=machine.env).returncode == 0

    def seen() -> set[tuple[str, str]]:
        statuses = [one["status"] for one in get(machine, "pods")]
        ready = [next((c["status"] for c in one.get("conditions", []) if c["type"] == "Ready"), "") for one in statuses]
        return {(of, one.get("reason", "")) for of, one in zip(ready, statuses, strict=True)}

    with Program("worker", "lifecycle", "--node-monitor-period", "0.5", env=machine.env, folder=machine.folder):
        eventually(lambda: len(get(machine, "pods")) == 2 and seen() == {("True", "")})
        agent.signal(signal.SIGSTOP)
        eventually(lambda: seen() == {("False", "NodeLost")})
        agent.signal(signal.SIGCONT)
        eventually(lambda: seen() == {("True", "")})
    assert len(machine.starts("web")) == 1


def test_while_redis_is_away_pods_run_and_their_events_come_afterwards(machine: AgentMachine, tmp_path: Path) -> None:
    server: EmbeddedServer = machine.server  # type: ignore[attr-defined]
    machine.write("web", "exec sleep 1000")
    agent = machine.agent()
    pid = machine.wait_alive("web")
    eventually(lambda: [pod["status"]["phase"] for pod in get(machine, "pods")] == ["Running"])
    server.stop()
    machine.write("job", "exit 7", restartPolicy="Never")
    eventually(lambda: machine.ended_with("job") == 7)
    assert machine.alive("web") == [pid]
    server.start()
    with Program("worker", "sink", env=machine.env, folder=tmp_path):
        eventually(lambda: counted(machine, "job-n1").get("Started") == 1)
        assert counted(machine, "job-n1") == {"Created": 1, "Started": 1}
        eventually(lambda: len(get(machine, "pods")) == 2)
        assert agent.stop() == 0
    machine.wait_gone("web")
