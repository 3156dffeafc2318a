"""A pod's grace time over HTTP: in the body and in the query of a delete, of one and of many."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from eventbus import ObjectStore, Settings
from eventbus.kinds import POD
from eventbus.objects.pod import RUNNING_FINALIZER
from tests.support.api_worker import ApiWorker, api_worker

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
