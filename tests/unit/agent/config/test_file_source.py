"""Pods from files: read, refused, kept."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from eventbus.agent.config.file_source import READ_EVERY_S, FileSource
from eventbus.agent.config.manifest import read_pods
from eventbus.agent.config.pod_config import PodConfig
from eventbus.agent.pods.updates import Op, PodUpdate, Source
from eventbus.errors import InvalidObject
from eventbus.testing.clock import FakeClock

WEB = """
apiVersion: v1
kind: Pod
metadata: {name: web}
spec:
  containers:
  - name: main
    command: [/bin/sleep, "1000"]
"""


class World:
    """A folder of manifests, and what the source says of it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "manifests"
        self.folder.mkdir(mode=0o700)
        self.updates: list[PodUpdate] = []
        self.invalid: list[tuple[str, str]] = []
        self.clock = FakeClock()
        self.source = FileSource(
            PodConfig(self.updates.append),
            node="n1",
            manifests=self.folder,
            invalid=lambda where, problem: self.invalid.append((where, problem)),
            clock=self.clock,
        )

    def write(self, name: str, text: str, mode: int = 0o600) -> Path:
        path = self.folder / name
        path.write_text(text)
        path.chmod(mode)
        return path

    def look(self) -> list[tuple[Op, list[str]]]:
        self.source.look()
        found = [(one.op, [pod.metadata.name for pod in one.pods]) for one in self.updates]
        self.updates.clear()
        return found


@pytest.fixture
def world(tmp_path: Path) -> World:
    tmp_path.chmod(0o700)
    return World(tmp_path)


def test_a_manifest_becomes_a_pod_of_this_node(world: World) -> None:
    world.write("web.yaml", WEB)
    assert world.look() == [(Op.ADD, ["web-n1"])]


def test_a_change_is_another_pod_in_the_place_of_the_first(world: World) -> None:
    world.write("web.yaml", WEB)
    world.look()
    assert world.look() == []
    world.write("web.yaml", WEB.replace("1000", "2000"))
    assert world.look() == [(Op.REMOVE, ["web-n1"]), (Op.ADD, ["web-n1"])]
    (world.folder / "web.yaml").unlink()
    assert world.look() == [(Op.REMOVE, ["web-n1"])]


def test_of_a_bad_manifest_the_old_pod_stays_and_it_is_told_once(world: World) -> None:
    world.write("web.yaml", WEB)
    world.look()
    world.write("web.yaml", "kind: Pod\nspec: [")
    assert world.look() == []
    world.clock.advance(20)
    assert world.look() == []
    assert len(world.invalid) == 1
    world.write("web.yaml", WEB)
    assert world.look() == []


def test_one_bad_file_harms_no_other(world: World) -> None:
    world.write("a.yaml", "kind: Deployment")
    world.write("web.yaml", WEB)
    assert world.look() == [(Op.ADD, ["web-n1"])]
    assert "must be Pod" in world.invalid[0][1]


def test_a_file_that_others_may_write_is_refused(world: World) -> None:
    world.write("web.yaml", WEB, 0o666)
    assert world.look() == [(Op.ADD, [])]
    assert "chmod go-w" in world.invalid[0][1]


def test_a_folder_that_others_may_write_is_refused(world: World) -> None:
    world.write("web.yaml", WEB)
    world.folder.chmod(0o777)
    assert world.look() == []
    assert "chmod go-w" in world.invalid[0][1]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_a_file_of_somebody_else_is_refused(world: World) -> None:
    os.chown(world.write("web.yaml", WEB), 12345, 12345)
    assert world.look() == [(Op.ADD, [])]
    assert "belongs to uid 12345" in world.invalid[0][1]


def test_of_two_pods_of_one_name_the_first_stays(world: World) -> None:
    world.write("a.yaml", WEB)
    world.write("b.yaml", WEB.replace("1000", "1"))
    assert world.look() == [(Op.ADD, ["web-n1"])]
    assert f"comes from {world.folder / 'a.yaml'} already" in world.invalid[0][1]
    world.clock.advance(READ_EVERY_S)
    assert world.look() == []
    assert len(world.invalid) == 1, "it is told once"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a: &a [x]\nb: *a", "aliases"),
        ("!!python/object/apply:os.system ['true']", "could not determine a constructor"),
        ("kind: Pod\nmetadata: {name: Web}\nspec: {containers: [{name: m}]}", "lowercase RFC 1123 subdomain"),
        ("kind: Pod\nmetadata: {name: web}\nspec: {containers: []}", "spec.containers: Required value"),
        (
            "kind: Pod\nmetadata: {name: w}\nspec: {restartPolicy: Often, containers: [{name: m}]}",
            '"Always", "OnFailure"',
        ),
        ("- 1", "must be an object"),
    ],
)
def test_what_is_no_manifest_is_refused_with_its_reason(text: str, problem: str) -> None:
    with pytest.raises(InvalidObject, match=problem):
        read_pods(text.encode(), "x.yaml", node="n1", source=Source.FILE)


@pytest.mark.parametrize(
    "field", ["livenessProbe", "readinessProbe", "startupProbe", "lifecycle.postStart", "lifecycle.preStop"]
)
@pytest.mark.parametrize("containers", ["containers", "initContainers"])
def test_a_probe_or_hook_without_a_command_is_refused_by_its_field(field: str, containers: str) -> None:
    def refused(command: list[str]) -> str:
        handler: dict[str, Any] = {"exec": {"command": command}}
        outer, _, inner = field.partition(".")
        container = {"name": "m", outer: {inner: handler} if inner else handler}
        spec = {"containers": [{"name": "main"}]}
        pod = {"kind": "Pod", "metadata": {"name": "web"}, "spec": spec | {containers: [container]}}
        try:
            read_pods(json.dumps(pod).encode(), "x.json", node="n1", source=Source.FILE)
        except InvalidObject as problem:
            return str(problem)
        return ""

    assert f"spec.{containers}[0].{field}.exec.command: Required value" in refused([])
    assert refused(["true"]) == ""


def test_a_mode_that_would_make_a_setuid_file_is_refused_by_its_field() -> None:
    text = WEB + "  volumes: [{name: v, configMap: {name: c, defaultMode: 2541}}]\n"
    problem = r"spec\.volumes\[0\]\.configMap\.defaultMode: Invalid value: 2541: must be"
    with pytest.raises(InvalidObject, match=problem):
        read_pods(text.encode(), "a.yaml", node="n1", source=Source.FILE)


def test_json_and_lists_are_read_as_well() -> None:
    pod = '{"kind": "Pod", "metadata": {"name": "%s"}, "spec": {"containers": [{"name": "m", "command": ["a"]}]}}'
    text = f'{{"kind": "List", "items": [{pod % "a"}, {pod % "b"}]}}'
    pods = read_pods(text.encode(), "x.json", node="n1", source=Source.FILE)
    assert [pod.metadata.name for pod in pods] == ["a-n1", "b-n1"]
    assert len({pod.metadata.uid for pod in pods}) == 2
