"""What selectors saw of an object before a change, put back into it."""

from __future__ import annotations

from typing import Any

import pytest

from eventbus.model.event import Event, EventSource, ObjectMeta, ObjectReference
from eventbus.model.kinds import EVENT, NODE, POD, Kind
from eventbus.model.objects.cluster import Node, NodeSpec
from eventbus.model.objects.pod import Pod, PodSpec, PodStatus
from eventbus.store.selection import decode_was, encode_was, restored


def event(**fields: Any) -> Event:
    labels = fields.pop("labels", {})
    return Event(metadata=ObjectMeta(name="a", namespace="default", labels=labels), **fields)


@pytest.mark.parametrize(
    ("kind", "former", "new"),
    [
        (EVENT, event(labels={"app": "web"}), event(labels={"app": "db", "b": ""})),
        (EVENT, event(type="Odd", reason="A"), event(type="Warning", reason="B")),
        (EVENT, event(source=EventSource("kubelet", "n")), event(source=EventSource("other", "n"))),
        (EVENT, event(involved_object=ObjectReference(name="x", field_path="p")), event()),
        (
            POD,
            Pod(
                spec=PodSpec(node_name="n", restart_policy="Never"),
                status=PodStatus(phase="Pending", pod_ip="10.0.0.1"),
            ),
            Pod(),
        ),
        (NODE, Node(spec=NodeSpec(unschedulable=True)), Node(spec=NodeSpec(unschedulable=False))),
    ],
)
def test_what_selectors_saw_is_as_before(kind: Kind[Any], former: Any, new: Any) -> None:
    was = decode_was(encode_was(kind.fields, former, new))
    assert was is not None
    found = restored(new, was)
    assert found.metadata.labels == former.metadata.labels
    assert {name: get(found) for name, get in kind.fields.items()} == {
        name: get(former) for name, get in kind.fields.items()
    }
    assert kind.encode(found)


def test_what_selectors_do_not_see_stays_as_it_is() -> None:
    former, new = event(type="Normal", message="before", count=1), event(type="Warning", message="now", count=2)
    was = decode_was(encode_was(EVENT.fields, former, new))
    assert was is not None
    found = restored(new, was)
    assert (found.type, found.message, found.count) == ("Normal", "now", 2)
