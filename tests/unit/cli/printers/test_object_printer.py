"""`get` prints as kubectl does, to the character.

Written from kubectl's rules: its tab writer (cells padded to the widest and three spaces, at least six; the last column
not padded), printers.go for the cells, tableprinter.go for line breaks.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from eventbus.cli.printers.object_printer import PrintedChange, PrintOptions, make_printer
from eventbus.model.event import ObjectMeta, ObjectReference
from eventbus.model.kinds import EVENT, LEASE, NODE, Kind
from eventbus.model.objects.cluster import (
    Lease,
    LeaseSpec,
    Node,
    NodeAddress,
    NodeCondition,
    NodeSpec,
    NodeStatus,
    NodeSystemInfo,
)
from tests.builders import make_event


def metadata(name: str, namespace: str = "", **labels: str) -> ObjectMeta:
    """Make the metadata of an object that is 12 days old."""
    made = datetime.now(UTC) - timedelta(days=12, hours=1)
    return ObjectMeta(name=name, namespace=namespace, labels=labels, creation_timestamp=made)


INFO = NodeSystemInfo(kubelet_version="v1.32.0", os_image="Debian 12", container_runtime_version="containerd://2")
ONE = Node(
    metadata=metadata("node-1", **{"node-role.kubernetes.io/control-plane": "", "z": "x", "a": "b"}),
    status=NodeStatus(
        conditions=(NodeCondition("Ready", "True"),), addresses=(NodeAddress("InternalIP", "10.0.0.1"),), node_info=INFO
    ),
)
TWO = Node(
    metadata=metadata("n2"),
    spec=NodeSpec(unschedulable=True),
    status=NodeStatus(conditions=(NodeCondition("Ready", "Unknown"),)),
)
LEASES = [
    Lease(metadata=metadata("n1", "kube-node-lease"), spec=LeaseSpec(holder_identity="node-1-holder")),
    Lease(metadata=metadata("leader", "default")),
]


def listed(kind: Kind[Any], items: list[Any], **look: Any) -> list[str]:
    return make_printer(kind, PrintOptions(**look)).listed(items).splitlines()


def test_nodes() -> None:
    assert listed(NODE, [ONE, TWO]) == [
        "NAME     STATUS                        ROLES           AGE   VERSION",
        "node-1   Ready                         control-plane   12d   v1.32.0",
        "n2       NotReady,SchedulingDisabled   <none>          12d   ",
    ]
    assert listed(NODE, [ONE], form="wide", no_headers=True) == [
        "node-1   Ready   control-plane   12d   v1.32.0   10.0.0.1   <none>   Debian 12   <unknown>   containerd://2"
    ]
    assert listed(NODE, [ONE], form="wide") == [
        "NAME     STATUS   ROLES           AGE   VERSION   INTERNAL-IP   EXTERNAL-IP   OS-IMAGE    KERNEL-VERSION   "
        "CONTAINER-RUNTIME",
        "node-1   Ready    control-plane   12d   v1.32.0   10.0.0.1      <none>        Debian 12   <unknown>        "
        "containerd://2",
    ]


def test_leases() -> None:
    assert listed(LEASE, LEASES) == [
        "NAME     HOLDER          AGE",
        "n1       node-1-holder   12d",
        "leader                   12d",
    ]
    assert listed(LEASE, LEASES, namespaces=True) == [
        "NAMESPACE         NAME     HOLDER          AGE",
        "kube-node-lease   n1       node-1-holder   12d",
        "default           leader                   12d",
    ]


def test_of_a_message_with_line_breaks_the_first_line_is_shown() -> None:
    event = make_event(
        involved_object=ObjectReference("Pod", "default", "web-0"),
        message="line1\nline2\x1b",
        last_timestamp=datetime.now(UTC) - timedelta(minutes=5),
    )
    assert listed(EVENT, [event])[1].endswith("   line1...")


def watched(kind: Kind[Any], form: str = "") -> list[str]:
    """A list of one node, then its change, another one, and its end."""
    printer = make_printer(kind, PrintOptions(form=form, watch_events=True))
    told = [("ADDED", ONE)], [("MODIFIED", ONE)], [("ADDED", TWO), ("DELETED", ONE)]
    return "".join(printer.watched([PrintedChange(*one) for one in some]) for some in told).splitlines()


def test_words_of_a_watch_are_as_wide_as_the_longest() -> None:
    assert watched(NODE) == [
        "EVENT      NAME     STATUS   ROLES           AGE   VERSION",
        "ADDED      node-1   Ready    control-plane   12d   v1.32.0",
        "MODIFIED   node-1   Ready    control-plane   12d   v1.32.0",
        "ADDED      n2       NotReady,SchedulingDisabled   <none>          12d   ",
        "DELETED    node-1   Ready    control-plane   12d   v1.32.0",
    ]


def test_templates_see_what_happened_and_the_object_in_it() -> None:
    assert watched(NODE, 'jsonpath={.type} {.object.metadata.name}{.metadata.name}{"\\n"}') == [
        *("ADDED node-1", "MODIFIED node-1", "ADDED n2", "DELETED node-1")
    ]


@pytest.mark.parametrize(
    ("form", "text"),
    [
        ('jsonpath={.items[*].metadata.name}END{"\\n"}', "END\n"),
        ("name", ""),
        ("", ""),
    ],
)
def test_an_empty_list(form: str, text: str) -> None:
    assert make_printer(NODE, PrintOptions(form=form)).listed([]) == text
    assert make_printer(NODE, PrintOptions(form=form)).watched([]) == ""


@pytest.mark.parametrize("form", ["custom-columns", "custom-columns=A:.a", "go-template={{.items}}", "jsonpath-file=f"])
def test_a_form_that_only_kubectl_has_names_kubectl(form: str) -> None:
    with pytest.raises(ValueError, match=r"unable to match .*For more forms, use kubectl"):
        make_printer(NODE, PrintOptions(form=form))
