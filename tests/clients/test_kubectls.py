"""kubectl of several minors: reads, watches, explains, writes, asks what it may, and goes on with another worker."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.clients.conftest import Front, running
from tests.clients.programs.telling import new_event
from tests.clients.tools import MINORS, kubectl
from tests.support.api_replay import EVENTS
from tests.support.kubectl_replay import Kubectl
from tests.waiting import eventually

EVENT = {"apiVersion": "v1", "kind": "Event"} | new_event("k")
NODE = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "kn"}, "spec": {"unschedulable": True}}
#: Command, what it is given, and what it must say.
COMMANDS = (
    ("version", None, "Server Version: v1.35"),
    ("api-resources", None, "events.k8s.io/v1"),
    ("create -f -", EVENT, "event/k created"),
    ("get events", None, "Written"),
    ("get events.events.k8s.io -o name", None, "event.events.k8s.io/k"),
    ("get events --field-selector involvedObject.name=web-0 -o jsonpath={.items[*].metadata.name}", None, "k"),
    ("events", None, "Pod/web-0"),
    ("annotate event k seen=yes", None, "event/k annotated"),
    ('patch event k --type=json -p [{"op":"replace","path":"/count","value":7}]', None, "event/k patched"),
    ("get event k -o jsonpath={.count}", None, "7"),
    ("wait event/k --for=jsonpath={.count}=7 --timeout=30s", None, "event/k condition met"),
    ("explain events.involvedObject", None, "apiVersion"),
    ("explain events --recursive", None, "involvedObject"),
    ("auth can-i list events", None, "yes"),
    ("auth can-i --list", None, "events"),
    ("auth whoami", None, "system:local"),
    ("apply -f -", NODE, "node/kn created"),
    ("apply -f -", NODE, "node/kn unchanged"),
    ("apply --server-side --force-conflicts -f -", NODE, "node/kn serverside-applied"),
    ("create --dry-run=server -o name -f -", EVENT | {"metadata": {"name": "dry"}}, "event/dry"),
    ("uncordon kn", None, "node/kn uncordoned"),
    ("label node kn zone=a", None, "node/kn labeled"),
    ("get nodes -l zone=a -o name", None, "node/kn"),
    ("describe node kn", None, "Unschedulable:      false"),
    ("create namespace kns", None, "namespace/kns created"),
    ("create configmap kc --from-literal=a=b", None, "configmap/kc created"),
    ("create secret generic ks --from-literal=a=b", None, "secret/ks created"),
    ("get configmap kc -o jsonpath={.data.a}", None, "b"),
    ("get --raw /readyz", None, "ok"),
    ("delete node kn", None, 'node "kn" deleted'),
    ("delete events --all", None, 'event "k" deleted'),
)


@pytest.mark.parametrize("front", ["3"], indirect=True, ids=["three partitions"])
@pytest.mark.parametrize("minor", MINORS)
def test_kubectl_does_what_people_do_with_it_and_finds_the_other_worker(
    front: Front, minor: str, tmp_path: Path
) -> None:
    program = kubectl(minor)
    if not program.exists():
        pytest.skip(f"kubectl 1.{minor} was not fetched: make test-clients")
    ran = Kubectl(str(program), cast("Any", SimpleNamespace(url=front.url)), tmp_path)
    for words, given, wanted in COMMANDS:
        found = ran.run(*words.split(), given=json.dumps(given) if given else None)
        assert wanted in found.stdout, (words, found.stdout, found.stderr)
    command = [str(program), "--kubeconfig", str(tmp_path / "config"), "get", "events", "-w", "-o", "json"]
    with running([*command, "--output-watch-events"]) as client:
        eventually(lambda: client.alive() and _writes_and_sees(front, client))
    second = front.fail_over()
    assert second.call("POST", EVENTS, new_event("later")).status == 201
    found = ran.run("get", "events", "-o", "name")
    assert "event/later" in found.stdout, found.stderr


def _writes_and_sees(front: Front, client: Any) -> bool:
    """kubectl tells JSON, each minor in lines of its own: the word will do."""
    front.workers[0].call("POST", EVENTS, new_event("told"))
    return any("told" in str(line) for line in (*client.rest, *client.told))
