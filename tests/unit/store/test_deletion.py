"""The mark of a deleted object that has finalizers, and the grace period of a pod."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from eventbus.model.event import ObjectMeta
from eventbus.model.objects.cluster import Node
from eventbus.model.objects.container import Container
from eventbus.model.objects.pod import RUNNING_FINALIZER, Pod, PodSpec, PodStatus
from eventbus.store.writer import has_finalizer, is_removable, marked

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def pod(*finalizers: str) -> Pod:
    spec = PodSpec(node_name="n1", containers=(Container(name="main"),), termination_grace_period_seconds=7)
    return Pod(metadata=ObjectMeta(name="web", finalizers=finalizers), spec=spec, status=PodStatus(phase="Running"))


def end_of(obj: Pod | Node) -> tuple[int | None, timedelta]:
    """Return the grace period, and the end of it after the first mark."""
    assert obj.metadata.deletion_timestamp is not None
    return obj.metadata.deletion_grace_period_seconds, obj.metadata.deletion_timestamp - NOW


@pytest.mark.parametrize(("requested_s", "grace_s"), [(None, 7), (3, 3), (70, 70), (-5, 1)])
def test_a_pod_has_its_own_grace_period_or_the_requested_one(requested_s: int | None, grace_s: int) -> None:
    assert end_of(marked(pod("example.com/a"), NOW, requested_s)) == (grace_s, timedelta(seconds=grace_s))


@pytest.mark.parametrize(("requested_s", "grace_s"), [(None, 7), (7, 7), (30, 7), (2, 2)])
def test_a_second_deletion_may_only_shorten_the_grace_period(requested_s: int | None, grace_s: int) -> None:
    later = NOW + timedelta(seconds=5)
    assert end_of(marked(marked(pod("example.com/a"), NOW), later, requested_s))[0] == grace_s
    assert end_of(marked(marked(pod("example.com/a"), NOW), later, requested_s))[1] == timedelta(seconds=grace_s)


def test_the_finalizer_of_an_agent_holds_a_pod_until_it_is_forced() -> None:
    waits = marked(pod(RUNNING_FINALIZER), NOW)
    assert has_finalizer(waits)
    assert not has_finalizer(marked(waits, NOW, 0))
    forced = marked(pod("example.com/a", RUNNING_FINALIZER), NOW, 0)
    assert has_finalizer(forced)
    assert forced.metadata.finalizers == ("example.com/a",)


def test_an_object_is_removable_once_it_is_marked_and_has_no_finalizer() -> None:
    node = Node(metadata=ObjectMeta(name="n1", finalizers=("example.com/a",)))
    assert end_of(marked(node, NOW)) == (0, timedelta(0))
    assert not is_removable(marked(node, NOW))
    assert not is_removable(Node(metadata=ObjectMeta(name="n1")))
