"""What may be done to a pod over HTTP: deleted, with a grace time, one and many; and not moved."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from eventbus import ObjectStore, Settings
from eventbus.model.kinds import POD
from eventbus.model.objects.pod import RUNNING_FINALIZER, STAYS
from tests.acceptance.programs import environment, run
from tests.support.api_worker import ApiWorker, api_worker

MERGE = "application/merge-patch+json"
PODS = "/api/v1/namespaces/default/pods"


@pytest.fixture
def worker(embedded_url: str, prefix: str, tmp_path: Path) -> Iterator[ApiWorker]:
    with api_worker(embedded_url, prefix, tmp_path, "--grant", "operator=user:system:local") as made:
        yield made


def create(worker: ApiWorker, name: str = "web") -> None:
    """Create a pod that an agent holds."""
    spec = {"nodeName": "n1", "containers": [{"name": "main", "command": ["/bin/true"]}]}
    metadata = {"name": name, "finalizers": [RUNNING_FINALIZER]}
    assert worker.call("POST", PODS, {"metadata": metadata, "spec": spec}).status == 201


def grace_s(worker: ApiWorker, name: str = "web") -> Any:
    return worker.call("GET", f"{PODS}/{name}").json["metadata"].get("deletionGracePeriodSeconds")


def test_a_delete_names_the_grace_time_in_its_body_or_its_query(worker: ApiWorker) -> None:
    create(worker)
    assert worker.call("DELETE", f"{PODS}/web?gracePeriodSeconds=20").status == 200
    assert grace_s(worker) == 20
    assert worker.call("DELETE", f"{PODS}/web", {"kind": "DeleteOptions", "gracePeriodSeconds": 5}).status == 200
    assert grace_s(worker) == 5
    assert worker.call("DELETE", f"{PODS}/web").status == 200
    assert grace_s(worker) == 5
    assert worker.call("DELETE", f"{PODS}/web", {"kind": "DeleteOptions", "gracePeriodSeconds": 0}).status == 200
    assert worker.call("GET", f"{PODS}/web").status == 404


def test_many_are_forced_at_once(worker: ApiWorker) -> None:
    create(worker, "a")
    create(worker, "b")
    assert worker.call("DELETE", f"{PODS}?gracePeriodSeconds=0").status == 200
    assert worker.call("GET", PODS).json["items"] == []


@pytest.mark.parametrize("wrong", ["soon", "1.5", "", "99999999999"])
def test_what_is_no_number_of_seconds_is_refused(worker: ApiWorker, wrong: str) -> None:
    create(worker)
    assert worker.call("DELETE", f"{PODS}/web?gracePeriodSeconds={wrong}").status == 400
    assert worker.call("DELETE", f"{PODS}/web", {"gracePeriodSeconds": wrong}).status == 400
    assert grace_s(worker) is None


def test_a_program_forces_a_pod_out_through_the_api(worker: ApiWorker) -> None:
    create(worker)
    with ObjectStore.open(settings=Settings(url=worker.url)) as store:
        store.objects(POD).delete("web", "default", grace_s=9)
        assert grace_s(worker) == 9
        store.objects(POD).delete("web", "default", grace_s=0)
    assert worker.call("GET", f"{PODS}/web").status == 404


def test_a_pod_stays_on_its_node(worker: ApiWorker) -> None:
    create(worker)
    answer = worker.call("PATCH", f"{PODS}/web", {"spec": {"nodeName": "n2"}}, Content_Type=MERGE)
    assert (answer.status, answer.json["details"]["causes"]) == (
        422,
        [{"reason": "FieldValueForbidden", "message": f"Forbidden: {STAYS}", "field": "spec.nodeName"}],
    )
    answer = worker.call("PATCH", f"{PODS}/web", {"metadata": {"labels": {"a": "b"}}}, Content_Type=MERGE)
    assert (answer.status, answer.json["spec"]["nodeName"]) == (200, "n1")


def test_a_pod_that_is_on_no_node_is_given_one(worker: ApiWorker) -> None:
    spec = {"containers": [{"name": "main", "command": ["/bin/true"]}]}
    assert worker.call("POST", PODS, {"metadata": {"name": "web"}, "spec": spec}).status == 201

    assert worker.call("PATCH", f"{PODS}/web", {"spec": {"nodeName": "n2"}}, Content_Type=MERGE).status == 200


def test_apply_moves_no_pod_either(worker: ApiWorker, embedded_url: str, prefix: str, tmp_path: Path) -> None:
    create(worker)
    file = tmp_path / "pod.yaml"
    manifest = "{apiVersion: v1, kind: Pod, metadata: {name: web}, spec: {nodeName: %s, containers: [{name: main}]}}"
    env = environment(embedded_url, prefix)
    for node, code, said in (("n2", 2, STAYS), ("n1", 0, "")):
        file.write_text(manifest % node)
        done = run("apply", "-f", str(file), env=env)
        assert done.returncode == code
        assert said in done.stderr
