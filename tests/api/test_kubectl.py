"""kubectl itself, where the machine has one: what it printed against a real API server, and what people do with it."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.support.api_replay import VECTORS
from tests.support.api_worker import ApiWorker, api_worker
from tests.support.kubectl_replay import Kubectl, differences, make_fixture

DEPARTURES = Path(__file__).parents[2] / "docs" / "api-departures.md"
KUBECTL = shutil.which("kubectl")

pytestmark = [
    pytest.mark.skipif(KUBECTL is None, reason="the machine has no kubectl"),
    pytest.mark.xdist_group("kubectl"),
]


@pytest.fixture
def kubectl(local_worker: ApiWorker, tmp_path: Path) -> Kubectl:
    assert KUBECTL
    return Kubectl(KUBECTL, local_worker, tmp_path)


@pytest.mark.volume
def test_kubectl_prints_what_it_prints_of_a_real_cluster(local_worker: ApiWorker, kubectl: Kubectl) -> None:
    recorded = json.loads((VECTORS / "kubectl" / "kubectl-v1.33.1.json").read_text())
    make_fixture(local_worker, recorded)
    found = differences(kubectl, recorded)
    excused = re.findall(r"^\| `kubectl ([^`]+)`", DEPARTURES.read_text(), re.M)
    assert {command: wrong for command, wrong in found.items() if command not in excused} == {}
    assert sorted(found) == sorted(excused), "an excuse that nobody needs any more"


POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "web-0"},
    "spec": {"containers": [{"name": "web", "command": ["/bin/true"], "ports": [{"containerPort": 80}]}]},
}


def test_pods_are_applied_and_shown(embedded_url: str, prefix: str, tmp_path: Path) -> None:
    with api_worker(embedded_url, prefix, tmp_path, "--grant", "operator=user:system:local") as worker:
        assert KUBECTL
        kubectl = Kubectl(KUBECTL, worker, tmp_path)

        def shown(words: str, given: Any = None) -> str:
            ran = kubectl.run(*words.split(), given=json.dumps(given) if given else None)
            return ran.stdout + ran.stderr

        assert shown("apply -f -", POD) == "pod/web-0 created\n"
        # A default in an item of a list is no change.
        assert shown("apply -f -", POD) == "pod/web-0 unchanged\n"
        assert re.search(r"web-0 +0/1 +Pending +0 ", shown("get all"))
        assert shown("create secret generic s --from-literal=p=q") == "secret/s created\n"
        assert " Opaque " in shown("get secret s")
        assert "eventbus logs web-0" in shown("logs web-0")
        for words in ("exec web-0 -- ls", "attach web-0"):
            assert "is not served: no API worker reaches the machine of a pod" in shown(words)


def test_a_list_of_objects_is_made_and_an_unknown_kind_is_named(embedded_url: str, prefix: str, tmp_path: Path) -> None:
    things = [
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"a": "b"}} for name in "ab"
    ]
    alien = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}}
    with api_worker(embedded_url, prefix, tmp_path, "--grant", "operator=user:system:local") as worker:
        assert KUBECTL
        kubectl = Kubectl(KUBECTL, worker, tmp_path)

        def applied(*items: Any) -> Any:
            return kubectl.run(
                "apply", "-f", "-", given=json.dumps({"apiVersion": "v1", "kind": "List", "items": items})
            )

        assert applied(*things).stdout == "configmap/a created\nconfigmap/b created\n"
        assert 'unknown field "bogus" in core.v1.ConfigMap' in applied(things[0] | {"bogus": 1}).stderr
        assert 'no matches for kind "Deployment" in version "apps/v1"' in applied(alien).stderr


def test_a_namespace_is_described_to_its_end(kubectl: Kubectl) -> None:
    told = kubectl.run("describe", "namespace", "default").stdout
    assert told.endswith("Status:       Active\n\nNo resource quota.\n\nNo LimitRange resource.\n")


def test_what_was_unknown_is_taken_out_of_a_file_again(embedded_url: str, prefix: str, tmp_path: Path) -> None:
    known = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"a": "b"}}
    with api_worker(embedded_url, prefix, tmp_path, "--grant", "operator=user:system:local") as worker:
        assert KUBECTL
        kubectl = Kubectl(KUBECTL, worker, tmp_path)
        made = kubectl.run("apply", "--validate=false", "-f", "-", given=json.dumps(known | {"bogus": 1}))
        assert made.stdout == "configmap/a created\n"
        again = kubectl.run("apply", "-f", "-", given=json.dumps(known))
        assert again.stdout == "configmap/a configured\n", again.stderr


@pytest.mark.volume
def test_every_field_of_every_kind_is_explained(local_worker: ApiWorker, kubectl: Kubectl) -> None:
    paths = local_worker.call("GET", "/openapi/v3").json["paths"]
    for path in (path for path in paths if path.startswith("api")):
        for name, schema in local_worker.call("GET", f"/openapi/v3/{path}").json["components"]["schemas"].items():
            assert "msgspec" not in schema.get("description", ""), name
            for field, found in schema.get("properties", {}).items():
                assert "type" in found or "$ref" in found, (name, field)
    assert "port\t<string>" in kubectl.run("explain", "pod.spec.containers.livenessProbe.httpGet").stdout


def test_who_may_not_is_told_which_role_it_takes(kubectl: Kubectl) -> None:
    told = kubectl.run("create", "-f", "-", given=json.dumps(POD)).stderr
    assert "that takes the role operator, which admin is without (--grant operator=user:system:local)" in told
