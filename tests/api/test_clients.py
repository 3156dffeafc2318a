"""What other programs see: lightkube, kubectl's writes, scrapes, an auditor, a client that is too quick."""

from __future__ import annotations

import json
import re
import shutil
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from lightkube import Client, KubeConfig
from lightkube.core.exceptions import ApiError
from lightkube.models.core_v1 import ObjectReference
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.core_v1 import Event, Node

from eventbus.cli.commands.kubeconfig import make_config
from tests.support.api_replay import EVENTS
from tests.support.api_worker import ApiWorker, api_worker
from tests.support.kubectl_replay import Kubectl
from tests.support.metrics import value
from tests.waiting import eventually

KUBECTL = shutil.which("kubectl")
ABOUT = {"kind": "Pod", "namespace": "default", "name": "web-0"}


def test_lightkube_writes_lists_watches_and_understands_errors(local_worker: ApiWorker) -> None:
    local_worker.call("DELETE", EVENTS)
    client: Any = Client(
        config=KubeConfig.from_dict(make_config(local_worker.url, None, "", "eventbus", "")), namespace="default"
    )
    made = client.create(
        Event(metadata=ObjectMeta(generateName="web-0."), involvedObject=ObjectReference(**ABOUT), reason="Started")
    )
    patched = client.patch(Event, made.metadata.name, {"count": 3})
    assert (patched.count, [event.count for event in client.list(Event)]) == (3, [3])
    client.create(Node(metadata=ObjectMeta(name="lk")))
    steps: Any = iter(client.watch(Event, resource_version=patched.metadata.resourceVersion))
    client.delete(Event, made.metadata.name)
    kind, gone = next(steps)
    assert (kind, gone.metadata.name) == ("DELETED", made.metadata.name)
    with pytest.raises(ApiError) as missing:
        client.get(Event, made.metadata.name)
    assert missing.value.status.reason == "NotFound"
    client.delete(Node, "lk")
    steps.close()
    client._client._client.close()


@pytest.mark.skipif(KUBECTL is None, reason="the machine has no kubectl")
def test_kubectl_explains_creates_and_applies(local_worker: ApiWorker, tmp_path: Path) -> None:
    local_worker.call("DELETE", EVENTS)
    assert KUBECTL
    kubectl = Kubectl(KUBECTL, local_worker, tmp_path)
    event = {"apiVersion": "v1", "kind": "Event", "metadata": {"name": "k"}, "involvedObject": ABOUT, "type": "Normal"}
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "kn"}, "spec": {"unschedulable": True}}
    told = {
        "explain events.involvedObject": ("", "apiVersion"),
        "create -f -": (json.dumps(event), "event/k created"),
        "create --dry-run=server -o name -f -": (json.dumps(event | {"metadata": {"name": "dry"}}), "event/dry"),
        "apply -f -": (json.dumps(node), "node/kn created"),
        "apply --server-side -f -": (json.dumps(node), "node/kn serverside-applied"),
        "describe node kn": ("", "Unschedulable:      true"),
        "uncordon kn": ("", "node/kn uncordoned"),
        "delete node kn": ("", 'node "kn" deleted'),
    }
    for words, (given, wanted) in told.items():
        ran = kubectl.run(*words.split(), given=given)
        assert wanted in ran.stdout, (words, ran.stderr)
    unknown = kubectl.run("create", "-f", "-", given=json.dumps(event | {"bogus": 1}))
    assert 'unknown field "bogus"' in unknown.stderr
    assert local_worker.call("GET", f"{EVENTS}/dry").status == 404


def test_a_log_worker_sees_what_foreign_recorders_write(embedded_url: str, prefix: str, tmp_path: Path) -> None:
    from tests.acceptance.programs import Program, environment
    from tests.waiting import eventually

    with (
        api_worker(embedded_url, prefix, tmp_path) as worker,
        Program("worker", "log", env=environment(embedded_url, prefix), folder=tmp_path) as log,
    ):
        body = {"metadata": {"name": "a"}, "involvedObject": ABOUT, "reason": "Foreign", "type": "Strange"}
        assert worker.call("POST", EVENTS, body).status == 201
        eventually(lambda: "Foreign" in log.out)


def test_metrics_and_the_audit_tell_what_happened(embedded_url: str, prefix: str, tmp_path: Path) -> None:
    with api_worker(embedded_url, prefix, tmp_path, "--audit", "--trusted-proxy", "127.0.0.1") as worker:
        codes = [
            worker.call("POST", EVENTS, {"metadata": {"name": f"e{number}"}, "involvedObject": ABOUT}).status
            for number in range(2)
        ]
        assert codes == [201, 201]
        assert worker.call("POST", "/eventbus/v1/verdicts", {"objects": []}).status == 200  # it reads
        assert worker.call("DELETE", f"{EVENTS}/e0").status == 200
        assert worker.call("DELETE", f"{EVENTS}/e1", X_Forwarded_For="203.0.113.7").status == 200
        metrics = worker.call("GET", "/metrics").data.decode()
        wanted = {
            "verb": "POST",
            "group": "",
            "version": "v1",
            "resource": "events",
            "scope": "namespace",
            "code": "201",
        }
        assert value(metrics, "eventbus_apiserver_request_total", **wanted) == 2
        assert "# HELP eventbus_apiserver_request_total " in metrics
        assert value(metrics, "eventbus_build_info", version=version("eventbus")) == 1
        line = re.search(r"audit: user=system:local from=127.0.0.1 POST (\S+) -> 201", worker.program.err)
        assert line
        assert line[1] == EVENTS
        eventually(lambda: f"from=127.0.0.1 DELETE {EVENTS}/e0 -> 200" in worker.program.err)
        eventually(lambda: f"from=203.0.113.7 via=127.0.0.1 DELETE {EVENTS}/e1 -> 200" in worker.program.err)
        assert "verdicts" not in worker.program.err
