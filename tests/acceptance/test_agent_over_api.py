"""An agent that has nothing but an API worker, TLS and a token: its node, its pods, and what it refuses to run by."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.programs import Program, environment, run
from tests.support.agent_machine import AgentMachine
from tests.support.api_worker import ApiWorker, api_worker
from tests.waiting import eventually

pytestmark = pytest.mark.xdist_group("api tls")

SLEEP = os.path.realpath("/bin/sleep")
FROM_BUS = ("--pods-from-bus", "default", "--allow-command", SLEEP)
#: operator has Pods, ConfigMaps and Secrets, edit Nodes and Leases, record the events.
ROLES = ("operator", "edit", "record")
TLS = ("--listen", "127.0.0.1:0", "--tls")


@pytest.fixture
def api(embedded_url: str, prefix: str, tmp_path: Path) -> Iterator[ApiWorker]:
    (tmp_path / "tokens").write_text("agents-own-token,agent-n1,1\nstrangers-token,stranger,2\n")
    (tmp_path / "tokens").chmod(0o600)
    grants = [word for role in ROLES for word in ("--grant", f"{role}=user:agent-n1")]
    options = (*TLS, "--token-file", str(tmp_path / "tokens"), *grants)
    with api_worker(embedded_url, prefix, tmp_path, *options, state_dir=str(tmp_path / "api")) as worker:
        yield worker


@pytest.fixture
def machine(tmp_path: Path, api: ApiWorker) -> Iterator[AgentMachine]:
    folder = tmp_path / "machine"
    folder.mkdir()
    with AgentMachine(folder, "none", "nothing") as made:
        made.env |= {
            "EVENTBUS_URL": api.url,
            "EVENTBUS_TOKEN": "agents-own-token",
            "EVENTBUS_CA_FILE": str(tmp_path / "api/api/ca.crt"),
        }
        yield made


def listed(env: dict[str, str], *words: str) -> list[dict[str, Any]]:
    found = run("get", *words, "-o", "json", env=env)
    assert found.returncode == 0, found.stderr
    items: list[dict[str, Any]] = json.loads(found.stdout)["items"]
    return items


def test_pods_of_the_bus_run_by_tls_and_token_alone(
    machine: AgentMachine, embedded_url: str, prefix: str, tmp_path: Path
) -> None:
    machine.write("own", "exec sleep 1000")
    direct = environment(embedded_url, prefix)
    agent = machine.agent(*FROM_BUS)
    spec = {"nodeName": "n1", "containers": [{"name": "main", "command": [SLEEP, "1000"]}]}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "far"}, "spec": spec}
    (machine.folder / "far.json").write_text(json.dumps(pod))
    with Program("worker", "sink", env=direct, folder=tmp_path):
        assert run("apply", "-f", str(machine.folder / "far.json"), env=direct).returncode == 0

        def phases() -> dict[str, str]:
            return {one["metadata"]["name"]: one["status"].get("phase", "") for one in listed(direct, "pods")}

        eventually(lambda: phases() == {"far": "Running", "own-n1": "Running"})
        [node] = listed(direct, "nodes")
        assert {one["type"]: one["status"] for one in node["status"]["conditions"]}["Ready"] == "True"
        assert [one["metadata"]["name"] for one in listed(direct, "leases", "-n", "kube-node-lease")] == ["n1"]
        eventually(lambda: "Started" in {one["reason"] for one in listed(direct, "events", "--for", "pod/far")})
        eventually(lambda: "Starting" in {one["reason"] for one in listed(direct, "events", "-A", "--for", "node/n1")})
        assert run("delete", "pod/far", env=direct).returncode == 0
        eventually(lambda: phases() == {"own-n1": "Running"})
        assert agent.stop() == 0
        assert (phases(), listed(direct, "nodes")) == ({}, [])
    machine.wait_gone("own")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"EVENTBUS_TOKEN": ""}, "does not learn who we are"),
        ({"EVENTBUS_TOKEN": "nobodys-token"}, "does not know us"),
    ],
    ids=["no-token", "wrong-token"],
)
def test_without_a_token_of_its_own_no_pods_are_taken(machine: AgentMachine, change: dict[str, str], said: str) -> None:
    machine.env |= change
    agent = machine.agent(*FROM_BUS)
    assert agent.wait() == 2
    assert said in agent.err


def test_an_api_without_tls_and_users_brings_no_pods(embedded_url: str, prefix: str, tmp_path: Path) -> None:
    folder = tmp_path / "machine"
    folder.mkdir()
    with api_worker(embedded_url, prefix, tmp_path) as worker, AgentMachine(folder, "none", "nothing") as machine:
        machine.env |= {"EVENTBUS_URL": worker.url}
        agent = machine.agent(*FROM_BUS)
        assert agent.wait() == 2
        assert "is no https" in agent.err
        assert "--pods-from-bus needs a bus for known users alone" in agent.err
