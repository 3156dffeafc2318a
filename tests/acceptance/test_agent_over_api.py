"""An agent that has nothing but an API worker, TLS and a token or a certificate: its node, its pods, what it refuses to
run by, and an API that dies."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from eventbus.agent.runtime.isolation import ISOLATION_LABEL
from eventbus.api.tls import own_files
from tests.acceptance.programs import Program, environment, run
from tests.faults.proxy import Mode, Proxy
from tests.support.agent_machine import AgentMachine
from tests.support.api_worker import ApiWorker, api_worker
from tests.support.certificates import make_client_certificate
from tests.thin import one
from tests.waiting import eventually

pytestmark = pytest.mark.xdist_group("api tls")

SLEEP = os.path.realpath("/bin/sleep")
FROM_BUS = ("--pods-from-bus", "default", "--allow-command", SLEEP)
#: operator has Pods, ConfigMaps and Secrets, edit Nodes and Leases, record the events.
ROLES = ("operator", "edit", "record")


@pytest.fixture
def options(tmp_path: Path) -> tuple[str, ...]:
    """The options of API workers of one CA, one file of tokens and one list of users' rights."""
    (tmp_path / "tokens").write_text("agents-own-token,agent-n1,1\nstrangers-token,stranger,2\n")
    (tmp_path / "tokens").chmod(0o600)
    server = own_files(tmp_path / "certificates", ["127.0.0.1"])
    tls = ("--tls-cert", str(server.certificate), "--tls-key", str(server.key), "--client-ca", ca(tmp_path))
    grants = [word for role in ROLES for word in ("--grant", f"{role}=user:agent-n1")]
    return ("--listen", "127.0.0.1:0", *tls, "--token-file", str(tmp_path / "tokens"), *grants)


@pytest.fixture
def api(embedded_url: str, prefix: str, tmp_path: Path, options: tuple[str, ...]) -> Iterator[ApiWorker]:
    with api_worker(embedded_url, prefix, tmp_path, *options) as worker:
        yield worker


@pytest.fixture
def machine(tmp_path: Path, api: ApiWorker) -> Iterator[AgentMachine]:
    folder = tmp_path / "machine"
    folder.mkdir()
    with AgentMachine(folder, "none", "nothing") as made:
        made.env |= {
            "EVENTBUS_URL": api.url,
            "EVENTBUS_TOKEN": "agents-own-token",
            "EVENTBUS_CA_FILE": ca(tmp_path),
        }
        yield made


def ca(folder: Path) -> str:
    return str(folder / "certificates/ca.crt")


def by_certificate(machine: AgentMachine, folder: Path) -> None:
    """Let its agents authenticate by a certificate alone."""
    certificate, key = make_client_certificate(folder, folder / "certificates", "/CN=agent-n1")
    del machine.env["EVENTBUS_TOKEN"]
    machine.env |= {"EVENTBUS_CLIENT_CERT": str(certificate), "EVENTBUS_CLIENT_KEY": str(key)}


def listed(env: dict[str, str], *words: str) -> list[dict[str, Any]]:
    found = run("get", *words, "-o", "json", env=env)
    assert found.returncode == 0, found.stderr
    items: list[dict[str, Any]] = json.loads(found.stdout)["items"]
    return items


@pytest.mark.parametrize("way", one(["token", "certificate"]))
def test_pods_of_the_bus_run_by_tls_and_a_known_name_alone(
    machine: AgentMachine, embedded_url: str, prefix: str, tmp_path: Path, way: str
) -> None:
    if way == "certificate":
        by_certificate(machine, tmp_path)
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

        def ready() -> list[str]:
            conditions = [one for node in listed(direct, "nodes") for one in node["status"]["conditions"]]
            return [one["status"] for one in conditions if one["type"] == "Ready"]

        eventually(lambda: ready() == ["True"])
        [node] = listed(direct, "nodes")
        assert node["metadata"]["labels"][ISOLATION_LABEL] in ("cgroup", "rlimits")
        leases = ("leases", "-n", "kube-node-lease")
        eventually(lambda: [one["metadata"]["name"] for one in listed(direct, *leases)] == ["n1"])
        eventually(lambda: "Started" in {one["reason"] for one in listed(direct, "events", "--for", "pod/far")})
        eventually(lambda: "Starting" in {one["reason"] for one in listed(direct, "events", "-A", "--for", "node/n1")})
        assert run("delete", "pod/far", env=direct).returncode == 0
        eventually(lambda: phases() == {"own-n1": "Running"})
        assert agent.stop() == 0
        assert (phases(), listed(direct, "nodes")) == ({}, [])
    machine.wait_gone("own")


def test_an_api_that_dies_takes_no_pod_with_it_and_no_event_is_lost_or_told_twice(
    machine: AgentMachine, api: ApiWorker, options: tuple[str, ...], embedded_url: str, prefix: str, tmp_path: Path
) -> None:
    direct, pods = environment(embedded_url, prefix), [f"p{number}" for number in range(5)]
    with Program("worker", "log", env=direct, folder=tmp_path) as log, Proxy(api.url, seed=1, cut_every=3) as proxy:
        machine.env["EVENTBUS_URL"] = f"https://127.0.0.1:{proxy.port}"
        machine.write("web", "exec sleep 1000")
        agent = machine.agent()
        web = machine.wait_alive("web")
        eventually(lambda: listed(direct, "nodes"))
        proxy.mode = Mode.CUT_REPLY  # the request is done, and its answer is lost
        for name in pods:
            machine.write(name, "exec sleep 1000")
        for name in pods:
            machine.wait_alive(name)
        eventually(lambda: proxy.cuts >= 3)
        proxy.mode = Mode.PASS
        api.program.kill()
        machine.write("job", "exit 7", restartPolicy="Never")
        eventually(lambda: machine.ended_with("job") == 7)
        machine.remove("p0")
        machine.wait_gone("p0")
        assert machine.alive("web") == [web]
        with api_worker(embedded_url, prefix, tmp_path, *options) as second:
            proxy.switch(second.url)

            def told() -> list[tuple[str, str, int]]:
                found = re.findall(r" (\w+) +pod/(\w+)-n1 .* uid=\w+:(\d+)\n", log.out)
                return [(reason, pod, int(number)) for reason, pod, number in found]

            eventually(lambda: {("Started", "job"), ("Killing", "p0")} <= {one[:2] for one in told()})
            left = {f"{name}-n1" for name in ("web", "job", *pods[1:])}
            eventually(lambda: {one["metadata"]["name"] for one in listed(direct, "pods")} == left)
            assert agent.stop() == 0
            eventually(lambda: ("Killing", "web") in {one[:2] for one in told()})
            numbers = [number for _, _, number in told()]
            assert numbers == list(range(1, len(numbers) + 1)), "each one, in order, and none twice"
            assert listed(direct, "nodes") == []
    assert all(len(machine.starts(name)) == 1 for name in ("web", "job", *pods))


def test_without_a_token_of_its_own_no_pods_are_taken(machine: AgentMachine) -> None:
    for token, said in (("", "no credentials for"), ("nobodys-token", "does not accept our credentials")):
        machine.env["EVENTBUS_TOKEN"] = token
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
        assert "is not https" in agent.err
        assert "--pods-from-bus needs a bus for known users alone" in agent.err
