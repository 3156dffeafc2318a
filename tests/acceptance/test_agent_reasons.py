"""Every reason for which an agent refuses, delays or ends a pod, caused by real means and read from the store."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from eventbus.broker.embedded.server import EmbeddedServer
from eventbus.model.kinds import EVENT, POD, Kind
from eventbus.store.object_store import ObjectStore
from tests.acceptance.programs import Program
from tests.support.agent_machine import AgentMachine
from tests.support.harness import settings_of
from tests.support.small_disk import fill, small_disk
from tests.waiting import eventually

#: A pod's name → the rest of its manifest, and the reason that comes of it. Nothing of it is ever started.
REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "cpu": ({"container": {"resources": {"requests": {"cpu": "100k"}}}}, "OutOfcpu"),
    "memory": ({"container": {"resources": {"requests": {"memory": "1000Ti"}}}}, "OutOfmemory"),
    "disk": ({"container": {"resources": {"limits": {"ephemeral-storage": "9000Pi"}}}}, "OutOfephemeral-storage"),
    "selector": ({"nodeSelector": {"disk": "fast"}}, "NodeSelectorMismatching"),
    "command": ({"container": {"command": ["/no/such/program"]}}, "CommandNotFound"),
    "user": ({"securityContext": {"runAsUser": 12345}}, "UserNotPermitted"),
    "group": ({"securityContext": {"supplementalGroups": [12345]}}, "GroupNotPermitted"),
    "privileged": ({"container": {"securityContext": {"privileged": True}}}, "PrivilegedNotPermitted"),
}
#: Those of which something runs, or is tried.
TROUBLED: dict[str, tuple[dict[str, Any], str]] = {
    "late": ({"activeDeadlineSeconds": 1}, "DeadlineExceeded"),
    "unmounted": ({"volumes": [{"name": "keys", "secret": {"secretName": "none"}}]}, "FailedMount"),
    "unset": (
        {"container": {"env": [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "none", "key": "a"}}}]}},
        "FailedSync",
    ),
    "image": (
        {"container": {"image": f"file:/none.tar@sha256:{'0' * 64}", "imagePullPolicy": "Never"}},
        "ErrImageNeverPull",
    ),
    "hook": (
        {"container": {"lifecycle": {"postStart": {"exec": {"command": ["/bin/false"]}}}}},
        "FailedPostStartHook",
    ),
}


@pytest.fixture
def machine(tmp_path: Path, prefix: str) -> Iterator[AgentMachine]:
    server = EmbeddedServer(tmp_path / "server")
    with AgentMachine(tmp_path, server.start(), prefix) as made:
        yield made
    server.stop()


def opened(machine: AgentMachine) -> ObjectStore:
    settings = settings_of(machine.env["EVENTBUS_PREFIX"])
    return ObjectStore.open(machine.env["EVENTBUS_REDIS_URL"], settings=settings)


def items(machine: AgentMachine, kind: Kind[Any]) -> list[dict[str, Any]]:
    with opened(machine) as store:
        return [kind.encode(found) for found in store.objects(kind).list().items]


def reasons(machine: AgentMachine) -> set[tuple[str, str]]:
    """Return the recorded names, without the node's, with their reasons."""
    return {(event["involvedObject"]["name"].removesuffix("-n1"), event["reason"]) for event in items(machine, EVENT)}


def statuses(machine: AgentMachine) -> dict[str, tuple[str, str]]:
    found = {pod["metadata"]["name"].removesuffix("-n1"): pod["status"] for pod in items(machine, POD)}
    return {name: (status.get("phase", ""), status.get("reason", "")) for name, status in found.items()}


def test_what_is_refused_or_fails_says_why(machine: AgentMachine) -> None:
    for name, (spec, _) in (REFUSED | TROUBLED).items():
        machine.write(name, "exec sleep 1000", **spec)
    (machine.manifests / "bad.yaml").write_text("{kind: Pod, apiVersion: v1, metadata: {name: Bad}, spec: {}}")
    (machine.manifests / "bad.yaml").chmod(0o600)
    wanted = {(name, reason) for name, (_, reason) in (REFUSED | TROUBLED).items()} | {("n1", "FailedValidation")}
    with Program("worker", "sink", env=machine.env, folder=machine.folder):
        agent = machine.agent()
        eventually(lambda: wanted <= reasons(machine))
        failed = {name: ("Failed", reason) for name, (_, reason) in REFUSED.items()}
        failed["late"] = ("Failed", "DeadlineExceeded")
        # All mirrors are made first, and have their statuses later.
        eventually(lambda: failed.items() <= statuses(machine).items())
        assert not any(machine.starts(name) for name in REFUSED)
        assert agent.stop() == 0


@pytest.mark.volume
def test_a_sandbox_that_cannot_be_made_is_said_and_made_once_it_can(machine: AgentMachine) -> None:
    in_the_way = machine.folder / "state/agent/pods/11111111-0000-0000-0000-000000000001"
    in_the_way.parent.mkdir(parents=True)
    in_the_way.touch()
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "web", "uid": in_the_way.name},
        "spec": {
            "terminationGracePeriodSeconds": 1,
            "containers": [{"name": "main", "command": ["/bin/sh", "-c", machine.script("web", "exec sleep 1000")]}],
        },
    }
    (machine.manifests / "web.json").write_text(json.dumps(pod))
    (machine.manifests / "web.json").chmod(0o600)
    with Program("worker", "sink", env=machine.env, folder=machine.folder):
        agent = machine.agent()
        eventually(lambda: {("web", "FailedCreatePodSandBox"), ("web", "FailedSync")} <= reasons(machine))
        in_the_way.unlink()
        machine.wait_alive("web")
        assert agent.stop() == 0


def test_a_disk_that_was_full_and_has_room_again_is_told(machine: AgentMachine) -> None:
    with small_disk(machine.folder, size_kib=2048) as disk:
        machine.env["EVENTBUS_STATE_DIR"] = str(disk)
        with Program("worker", "sink", env=machine.env, folder=machine.folder):
            agent = machine.agent("--node-status-update-frequency", "0.5")
            eventually(lambda: ("n1", "NodeReady") in reasons(machine))
            filler = fill(disk)
            eventually(lambda: ("n1", "NodeHasDiskPressure") in reasons(machine))
            filler.unlink()
            eventually(lambda: ("n1", "NodeHasNoDiskPressure") in reasons(machine))
            assert agent.stop() == 0
