"""Node and Lease as JSON: keys, order and omissions as Go writes k8s.io/api's types."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from eventbus.errors import InvalidObject
from eventbus.model.event import ObjectMeta
from eventbus.model.kinds import LEASE, NODE
from eventbus.model.objects.cluster import (
    Lease,
    LeaseSpec,
    Node,
    NodeAddress,
    NodeCondition,
    NodeSpec,
    NodeStatus,
    NodeSystemInfo,
    Taint,
)

AT = datetime(2024, 1, 1, 12, 0, 0, 123456, UTC)

#: What `json.Marshal` of a v1.Node with these fields gives; strings without omitempty stand there empty.
NODE_JSON = (
    '{"kind":"Node","apiVersion":"v1","metadata":{"name":"n1","creationTimestamp":"2024-01-01T12:00:00Z",'
    '"labels":{"a":"b","z":"y"}},'
    '"spec":{"providerID":"x://1","unschedulable":true,"taints":[{"key":"k","effect":"NoSchedule",'
    '"timeAdded":"2024-01-01T12:00:00Z"}]},'
    '"status":{"capacity":{"cpu":"4"},"conditions":[{"type":"Ready","status":"True",'
    '"lastHeartbeatTime":"2024-01-01T12:00:00Z","lastTransitionTime":null,"reason":"KubeletReady"}],'
    '"addresses":[{"type":"Hostname","address":"n1"}],"daemonEndpoints":{"kubeletEndpoint":{"Port":0}},'
    '"nodeInfo":{"machineID":"m","systemUUID":"","bootID":"","kernelVersion":"","osImage":"",'
    '"containerRuntimeVersion":"","kubeletVersion":"v1.32.0","kubeProxyVersion":"","operatingSystem":"linux",'
    '"architecture":""}}}'
)
A_NODE = Node(
    metadata=ObjectMeta(name="n1", creation_timestamp=AT, labels={"z": "y", "a": "b"}),
    spec=NodeSpec("x://1", True, (Taint("k", "", "NoSchedule", AT),)),
    status=NodeStatus(
        capacity={"cpu": "4"},
        conditions=(NodeCondition("Ready", "True", AT, None, "KubeletReady"),),
        addresses=(NodeAddress("Hostname", "n1"),),
        node_info=NodeSystemInfo(machine_id="m", kubelet_version="v1.32.0", operating_system="linux"),
    ),
)
LEASE_JSON = (
    '{"kind":"Lease","apiVersion":"coordination.k8s.io/v1","metadata":{"name":"n1","namespace":"kube-node-lease"},'
    '"spec":{"holderIdentity":"n1","leaseDurationSeconds":40,"renewTime":"2024-01-01T12:00:00.123456Z"}}'
)
A_LEASE = Lease(
    metadata=ObjectMeta(name="n1", namespace="kube-node-lease"),
    spec=LeaseSpec(holder_identity="n1", lease_duration_seconds=40, renew_time=AT),
)


def compact(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))


def test_a_node_is_written_as_go_writes_it() -> None:
    assert compact(NODE.encode(A_NODE)) == NODE_JSON


def test_a_lease_is_written_as_go_writes_it() -> None:
    assert compact(LEASE.encode(A_LEASE)) == LEASE_JSON
    assert LEASE.encode(Lease())["spec"] == {}


def test_what_was_written_is_read_back() -> None:
    assert LEASE.decode(json.loads(LEASE_JSON)) == A_LEASE
    assert compact(NODE.encode(NODE.decode(json.loads(NODE_JSON)))) == NODE_JSON


def test_null_is_unset_unknown_keys_are_dropped_and_fine_times_are_cut() -> None:
    mapping = {
        "kind": "Lease",
        "metadata": {"name": "a", "labels": {"x": None}, "annotations": None, "selfLink": "/x"},
        "spec": {"holderIdentity": None, "renewTime": "2024-01-01T13:00:00.123456999+01:00", "strategy": "x"},
    }
    found = LEASE.decode(mapping)
    assert found.spec == LeaseSpec(renew_time=AT)
    assert found.metadata == ObjectMeta(name="a", labels={"x": ""})


@pytest.mark.parametrize(
    ("mapping", "problem"),
    [
        ({"kind": "Node"}, "kind: must be Lease, is 'Node'"),
        ({"apiVersion": "v1"}, "apiVersion: must be coordination.k8s.io/v1, is 'v1'"),
        ({"spec": {"leaseDurationSeconds": 2**40}}, "spec.leaseDurationSeconds: Expected `int` <= 2147483647"),
        ({"spec": {"renewTime": "2024-01-01T12:00:00"}}, "spec.renewTime: Expected `datetime` with a timezone"),
        ([], "must be an object, is list"),
    ],
)
def test_what_cannot_be_read_is_named(mapping: Any, problem: str) -> None:
    with pytest.raises(InvalidObject) as refused:
        LEASE.decode(mapping)
    assert problem in str(refused.value)


def test_a_node_is_frozen_all_the_way_down() -> None:
    status: Any = A_NODE.status
    with pytest.raises(AttributeError):
        status.capacity = {}
    with pytest.raises(TypeError):
        status.capacity["cpu"] = "8"
    assert isinstance(hash(A_NODE), int)
    assert A_NODE.status.condition("Ready") is A_NODE.status.conditions[0]
    assert A_NODE.status.condition("DiskPressure") is None
