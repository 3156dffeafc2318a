"""local_pods.py: which pod a name means."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from eventbus.agent.logs import NODE_NAME, LocalPods
from eventbus.agent.node.factory import node_name
from eventbus.agent.shim.state import FORMAT, Sandbox, State, write_state


@pytest.fixture
def pods(tmp_path: Path) -> LocalPods:
    return LocalPods(tmp_path)


def write(folder: Path, *names: str) -> None:
    """Write the states of pods of these names, as shims do."""
    for name in names:
        sandbox = Sandbox(attempt=0, hash="", created_at=1.0, shim_pid=0, shim_ticks=0)
        (folder / "pods" / name).mkdir(parents=True)
        state = State(format=FORMAT, boot_id="", uid=name, name=name, namespace="default", sandbox=sandbox, runs=[])
        write_state(str(folder / "pods" / name), state)


def named(pods: LocalPods, name: str) -> list[str]:
    return [pod.name for pod in pods.named(name, "default")]


def test_a_name_without_the_nodes_means_no_pod_whose_name_is_longer(pods: LocalPods, tmp_path: Path) -> None:
    (tmp_path / NODE_NAME).write_text("db-1")
    write(tmp_path, "web-admin-db-1", "job-db-1")
    assert named(pods, "web") == []
    assert named(pods, "web-admin") == ["web-admin-db-1"]
    assert named(pods, "job") == named(pods, "job-db-1") == ["job-db-1"]


def test_without_a_node_of_its_own_it_is_the_hosts(pods: LocalPods, tmp_path: Path) -> None:
    host = node_name(socket.gethostname())
    write(tmp_path, f"web-{host}", f"web-admin-{host}")
    assert named(pods, "web") == [f"web-{host}"]
