"""Pods, ConfigMaps and Secrets as JSON: what is known has types, what is not read comes back as it came."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from eventbus.errors import InvalidObject
from eventbus.model.event import ObjectMeta
from eventbus.model.kinds import POD, SECRET
from eventbus.model.objects.config import Secret
from eventbus.model.objects.pod import Pod

WHOLE: dict[str, Any] = {
    "kind": "Pod",
    "apiVersion": "v1",
    "metadata": {"name": "web-0", "namespace": "shop", "labels": {"app": "web"}},
    "spec": {
        "volumes": [
            {"name": "scratch", "emptyDir": {}},
            {
                "name": "keys",
                "secret": {"secretName": "keys", "defaultMode": 256, "items": [{"key": "a", "path": "b"}]},
            },
            {"name": "later", "projected": {"sources": [{"secret": {"name": "x"}}, {"deep": [[1, None, {"y": 0.5}]]}]}},
        ],
        "containers": [
            {
                "name": "web",
                "command": ["web", "--port", "$(PORT)"],
                "ports": [{"containerPort": 8080, "protocol": "TCP"}],
                "env": [
                    {"name": "PORT", "value": "8080"},
                    {"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "keys", "key": "a"}}},
                ],
                "resources": {"limits": {"cpu": 2, "memory": "64Mi"}, "requests": {"cpu": "500m"}},
                "livenessProbe": {
                    "httpGet": {"path": "/healthz", "port": "http"},
                    "timeoutSeconds": 1,
                    "periodSeconds": 10,
                    "successThreshold": 1,
                    "failureThreshold": 3,
                },
                "securityContext": {"capabilities": {"drop": ["ALL"]}, "runAsUser": 0},
            }
        ],
        "restartPolicy": "Always",
        "terminationGracePeriodSeconds": 0,
        "nodeName": "n1",
        "tolerations": [{"key": "a", "operator": "Exists", "tolerationSeconds": 300}],
        "affinity": {"nodeAffinity": {"weights": [1, 2.5, None, {"a": []}]}},
    },
    "status": {
        "phase": "Running",
        "startTime": "2026-01-02T03:04:05Z",
        "containerStatuses": [
            {
                "name": "web",
                "state": {"waiting": {"reason": "CrashLoopBackOff"}},
                "lastState": {"terminated": {"exitCode": 3, "finishedAt": "2026-01-02T03:05:05Z"}},
                "ready": False,
                "restartCount": 5,
                "image": "",
                "imageID": "",
            }
        ],
    },
}


def test_a_pod_comes_back_as_it_came() -> None:
    assert POD.encode(POD.decode(WHOLE)) == WHOLE


def test_a_pod_is_frozen_all_the_way_down_and_can_be_hashed() -> None:
    pod = POD.decode(json.loads(json.dumps(WHOLE)))

    assert hash(pod) == hash(POD.decode(WHOLE))
    with pytest.raises(TypeError):
        pod.spec.affinity["nodeAffinity"]["weights"] = []


def test_the_defaults_of_the_api_server_stand_in_the_json() -> None:
    spec = POD.encode(POD.decode({"spec": {"containers": [{"name": "a", "ports": [{"containerPort": 1}]}]}}))["spec"]

    assert spec == {
        "containers": [{"name": "a", "ports": [{"containerPort": 1, "protocol": "TCP"}], "resources": {}}],
        "restartPolicy": "Always",
        "terminationGracePeriodSeconds": 30,
    }


def test_null_is_unset_as_in_go() -> None:
    pod = POD.decode({"spec": {"restartPolicy": None, "containers": None, "nodeSelector": None}})

    assert pod == Pod()


def test_a_wrong_type_names_its_path() -> None:
    with pytest.raises(InvalidObject, match=r"spec\.containers\[0\]\.command"):
        POD.decode({"spec": {"containers": [{"name": "a", "command": "sleep 1"}]}})


def test_fields_that_selectors_may_name() -> None:
    pod = POD.decode(WHOLE)

    found = {name: POD.fields[name](pod) for name in ("spec.nodeName", "status.phase", "metadata.name")}
    assert found == {"spec.nodeName": "n1", "status.phase": "Running", "metadata.name": "web-0"}


def test_a_secret_takes_plain_text_and_holds_base64() -> None:
    secret = SECRET.decode({"data": {"old": "eA==", "both": "eA=="}, "stringData": {"both": "plain"}})

    assert SECRET.encode(secret)["data"] == {"old": "eA==", "both": "cGxhaW4="}
    assert "stringData" not in SECRET.encode(secret)
    assert secret == Secret(data={"old": "eA==", "both": "cGxhaW4="})


def test_a_secret_shows_no_value_to_a_log() -> None:
    secret = Secret(metadata=ObjectMeta(name="keys", namespace="shop"), string_data={"password": "hunter2"})

    shown = f"{secret} {secret!r} {msgspec.structs.replace(secret)}"
    assert "hunter2" not in shown
    assert secret.data["password"] not in shown
    assert "password" in shown
