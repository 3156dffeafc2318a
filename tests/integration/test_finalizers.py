"""Finalizers hold a deletion back, as the API server has it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from eventbus.broker.bus import Bus
from eventbus.errors import Conflict, InvalidObject, NotFound
from eventbus.model.event import Event, EventSource, ObjectMeta
from eventbus.model.kinds import EVENT, NODE, POD
from eventbus.model.objects.cluster import Node
from eventbus.model.objects.container import Container
from eventbus.model.objects.pod import RUNNING_FINALIZER, Pod, PodSpec, PodStatus
from eventbus.store.object_store import ObjectStore
from eventbus.store.writer import ObjectWriter
from tests.builders import make_event
from tests.stored_layout import changes_of_entry


@pytest.fixture
def store(bus: Bus) -> Iterator[ObjectStore]:
    with bus.client() as client, ObjectStore(bus, client) as store:
        yield store


@pytest.fixture
def nodes(store: ObjectStore) -> ObjectWriter[Node]:
    return store.objects(NODE)


def held_node(*finalizers: str) -> Node:
    return Node(metadata=ObjectMeta(name="n1", finalizers=finalizers))


def letters(bus: Bus, plural: str = "nodes") -> str:
    """The changes of a kind, oldest first."""
    with bus.client() as client:
        entries: Any = client.xrange(bus.keys[0].changes_of(plural))
    return "".join(change.letter for _, fields in entries for change in changes_of_entry(fields))


def test_a_delete_marks_what_has_finalizers_and_the_last_of_them_lets_it_go(
    nodes: ObjectWriter[Node], bus: Bus
) -> None:
    nodes.create(held_node("example.com/a", "example.com/b"))
    before = datetime.now(UTC).replace(microsecond=0)
    nodes.delete("n1")

    marked = nodes.get("n1").metadata
    assert marked.deletion_timestamp is not None
    assert before <= marked.deletion_timestamp <= datetime.now(UTC)
    assert marked.deletion_grace_period_seconds == 0
    assert marked.finalizers == ("example.com/a", "example.com/b")
    assert letters(bus) == "AM"

    left = nodes.patch("n1", {"metadata": {"finalizers": ["example.com/b"]}}).metadata
    assert (left.deletion_timestamp, left.finalizers) == (marked.deletion_timestamp, ("example.com/b",))
    gone = nodes.patch("n1", {"metadata": {"finalizers": None}}).metadata
    assert int(gone.resource_version) == int(left.resource_version) + 1
    with pytest.raises(NotFound, match='nodes "n1" not found'):
        nodes.get("n1")
    assert letters(bus) == "AMMD"
    assert nodes.create(held_node()).metadata.uid != marked.uid


def test_an_update_may_let_it_go_as_well(nodes: ObjectWriter[Node]) -> None:
    nodes.create(held_node("example.com/a"))
    nodes.delete("n1")
    found = nodes.get("n1")
    nodes.update(msgspec.structs.replace(found, metadata=msgspec.structs.replace(found.metadata, finalizers=())))
    assert nodes.list().items == ()


def test_a_delete_at_another_version_marks_nothing(nodes: ObjectWriter[Node]) -> None:
    made = nodes.create(held_node("example.com/a"))
    changed = nodes.patch("n1", {"metadata": {"labels": {"a": "b"}}})
    with pytest.raises(Conflict, match="the object has been modified"):
        nodes.delete("n1", version=made.metadata.resource_version)
    assert nodes.get("n1") == changed
    nodes.delete("n1", version=changed.metadata.resource_version)
    assert nodes.get("n1").metadata.deletion_timestamp


def test_nobody_but_a_delete_marks_and_no_mark_is_taken_away(nodes: ObjectWriter[Node]) -> None:
    nodes.create(held_node("example.com/a"))
    mark = {"deletionTimestamp": "2024-01-01T00:00:00Z", "deletionGracePeriodSeconds": 30}
    assert nodes.patch("n1", {"metadata": mark}).metadata.deletion_timestamp is None
    nodes.delete("n1")
    kept = nodes.patch("n1", {"metadata": {"deletionTimestamp": None, "labels": {"a": "b"}}}).metadata
    assert (kept.deletion_timestamp is not None, kept.labels) == (True, {"a": "b"})


def test_what_is_being_deleted_gets_no_new_finalizer(nodes: ObjectWriter[Node]) -> None:
    nodes.create(held_node("example.com/a"))
    nodes.delete("n1")
    with pytest.raises(InvalidObject) as refused:
        nodes.patch("n1", {"metadata": {"finalizers": ["example.com/a", "example.com/b"]}})
    assert str(refused.value) == (
        'Node "n1" is invalid: metadata.finalizers: Forbidden: no new finalizers can be added if the object is being '
        'deleted, found new finalizers []string{"example.com/b"}'
    )


def test_a_finalizer_that_comes_while_a_delete_is_under_way_holds_it_back(nodes: ObjectWriter[Node]) -> None:
    nodes.create(held_node())
    storage: Any = nodes._storage
    remove = storage.remove

    def late(found: Any, version: str) -> Any:
        storage.remove = remove
        nodes.patch("n1", {"metadata": {"finalizers": ["example.com/a"]}})
        return remove(found, version)

    storage.remove = late
    nodes.delete("n1")
    assert nodes.get("n1").metadata.deletion_timestamp


def test_a_written_event_is_held_back_too(store: ObjectStore, bus: Bus) -> None:
    events: ObjectWriter[Event] = store.objects(EVENT)
    plain = make_event(source=EventSource("kubelet", ""))
    metadata = ObjectMeta(name="e1", namespace="default", finalizers=("example.com/a",))
    events.create(msgspec.structs.replace(plain, metadata=metadata))
    events.delete("e1", "default")
    assert events.get("e1", "default").metadata.deletion_timestamp
    events.patch("e1", {"metadata": {"finalizers": []}}, "default")
    assert letters(bus, "events") == "AMD"
    with pytest.raises(NotFound):
        events.get("e1", "default")


@pytest.fixture
def pods(store: ObjectStore) -> ObjectWriter[Pod]:
    return store.objects(POD)


def held_pod(*finalizers: str, node: str = "n1", phase: str = "Running") -> Pod:
    """Make a pod with a grace time of 7 s."""
    metadata = ObjectMeta(name="web", namespace="shop", finalizers=finalizers)
    container = Container(name="main", command=("/bin/true",))
    spec = PodSpec(node_name=node, containers=(container,), termination_grace_period_seconds=7)
    return Pod(metadata=metadata, spec=spec, status=PodStatus(phase=phase))


@pytest.mark.parametrize(
    ("pod", "grace_s"),
    [
        (held_pod(RUNNING_FINALIZER), 0),
        (held_pod(RUNNING_FINALIZER, node=""), None),
        (held_pod(RUNNING_FINALIZER, phase="Failed"), None),
        (held_pod(RUNNING_FINALIZER, phase="Succeeded"), 30),
    ],
    ids=["forced", "of-no-node", "failed", "succeeded"],
)
def test_a_pod_without_a_grace_time_does_not_wait_for_its_agent(
    pods: ObjectWriter[Pod], bus: Bus, pod: Pod, grace_s: int | None
) -> None:
    pods.create(pod)
    pods.delete("web", "shop", grace_s=grace_s)
    with pytest.raises(NotFound):
        pods.get("web", "shop")
    assert letters(bus, "pods") == "AMD", "its last state says to who watches that it was forced"


@pytest.mark.parametrize("again", [False, True], ids=["gone", "made anew"])
def test_a_pod_whose_agent_takes_it_out_as_soon_as_it_is_marked_is_deleted(
    pods: ObjectWriter[Pod], again: bool
) -> None:
    pods.create(held_pod(RUNNING_FINALIZER, phase="Failed"))
    storage: Any = pods._storage
    remove = storage.remove

    def quicker(found: Any, version: str) -> Any:
        storage.remove = remove
        pods.delete("web", "shop")
        if again:
            pods.create(held_pod(RUNNING_FINALIZER))
        return remove(found, version)

    storage.remove = quicker
    pods.delete("web", "shop")
    assert len(pods.list().items) == again


def test_what_others_hold_is_not_forced_out(pods: ObjectWriter[Pod]) -> None:
    pods.create(held_pod("example.com/a", RUNNING_FINALIZER))
    pods.delete("web", "shop", grace_s=0)
    held = pods.get("web", "shop").metadata
    assert (held.deletion_grace_period_seconds, held.finalizers) == (0, ("example.com/a",))
    pods.patch("web", {"metadata": {"finalizers": None}}, "shop")
    assert pods.list().items == ()


def test_a_dry_run_of_a_forced_deletion_leaves_the_pod(pods: ObjectWriter[Pod]) -> None:
    made = pods.create(held_pod(RUNNING_FINALIZER))
    pods.dry_run().delete("web", "shop", grace_s=0)
    assert pods.get("web", "shop") == made
