"""Pods, ConfigMaps and Secrets belong to operators: each role against each verb on a real server."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from eventbus.broker.acl import Role
from eventbus.broker.bus import open_bus
from eventbus.consume.housekeeper import Housekeeper
from eventbus.errors import BusRefused
from eventbus.lifecycle.lost_pods import LostPods
from eventbus.model.event import ObjectMeta
from eventbus.model.kinds import ACKNOWLEDGEMENT, CONFIGMAP, NODE, POD, SECRET, SILENCE, Kind
from eventbus.model.objects.config import ConfigMap, Secret
from eventbus.model.objects.pod import Pod
from eventbus.model.objects.silence import (
    AcknowledgedObject,
    Acknowledgement,
    AcknowledgementSpec,
    Silence,
    SilenceMatcher,
    SilenceSpec,
)
from eventbus.settings import Settings
from eventbus.store.object_store import ObjectStore
from eventbus.util.clock import SystemClock
from tests.integration.test_acl import As, as_role, bus_made  # noqa: F401 - fixtures

HIDDEN = "aHVudGVyMg=="
OWNED: list[tuple[Kind[Any], Any]] = [
    (POD, Pod(metadata=ObjectMeta(name="web-0", namespace="shop"))),
    (CONFIGMAP, ConfigMap(metadata=ObjectMeta(name="settings", namespace="shop"), data={"a": "b"})),
    (SECRET, Secret(metadata=ObjectMeta(name="keys", namespace="shop"), data={"token": HIDDEN})),
]
VERBS: dict[str, Callable[[Any, Any], object]] = {
    "create": lambda objects, found: objects.create(_called(found, "other")),
    "get": lambda objects, found: objects.get(found.metadata.name, "shop"),
    "list": lambda objects, _: objects.list(),
    "watch": lambda objects, _: objects.watch().stop(),
    "update": lambda objects, found: objects.update(_labelled(found)),
    "patch": lambda objects, found: objects.patch(found.metadata.name, {"metadata": {"labels": {"a": "b"}}}, "shop"),
    "delete": lambda objects, found: objects.delete(found.metadata.name, "shop"),
}


def _called(found: Any, name: str) -> Any:
    return type(found)(metadata=ObjectMeta(name=name, namespace="shop"))


def _labelled(found: Any) -> Any:
    return type(found)(metadata=ObjectMeta(name=found.metadata.name, namespace="shop", labels={"a": "b"}))


@pytest.fixture
def owned(bus_made: As, settings: Settings) -> As:  # noqa: F811
    """A bus with one object of each kind, made by an operator."""
    with ObjectStore.open(bus_made(Role.OPERATOR), settings=settings) as store:
        for kind, found in OWNED:
            store.objects(kind).create(found)
    return bus_made


@pytest.mark.parametrize(("kind", "found"), OWNED, ids=[kind.plural for kind, _ in OWNED])
def test_operators_alone_may(owned: As, settings: Settings, kind: Kind[Any], found: Any) -> None:
    may: dict[str, set[Role]] = {verb: set() for verb in VERBS}
    for role in (Role.READER, Role.WORKER, Role.AGENT, Role.DEPLOY, Role.METRICS, Role.PRODUCER, Role.OPERATOR):
        with ObjectStore.open(owned(role), settings=settings) as store:
            for verb, call in VERBS.items():
                with suppress(BusRefused):
                    call(store.objects(kind), found)
                    may[verb].add(role)

    assert may == {verb: {Role.OPERATOR} for verb in VERBS}


_HOUR = timedelta(hours=1)
_SPEC = SilenceSpec((SilenceMatcher("kind", "Pod"),), datetime.now(UTC), datetime.now(UTC) + _HOUR)
SILENCING: list[tuple[Kind[Any], Any]] = [
    (SILENCE, Silence(spec=_SPEC)),
    (ACKNOWLEDGEMENT, Acknowledgement(spec=AcknowledgementSpec(AcknowledgedObject("Pod", "shop", "web-0")))),
]


@pytest.mark.parametrize(("kind", "found"), SILENCING, ids=[kind.plural for kind, _ in SILENCING])
def test_silences_are_written_by_three_roles_and_deleted_by_the_notifier_too(
    bus_made: As,  # noqa: F811
    settings: Settings,
    kind: Kind[Any],
    found: Any,
) -> None:
    writers = {Role.WORKER, Role.DEPLOY, Role.OPERATOR}
    readers = {*writers, Role.READER, Role.NOTIFIER, Role.IMPORTER}
    may = {"create": writers, "list": readers, "delete": {*writers, Role.NOTIFIER}}
    with ObjectStore.open(bus_made(Role.DEPLOY), settings=settings) as deploying:
        for role in set(Role) - {Role.ADMIN}:  # which cannot open a bus
            name = deploying.objects(kind).create(found).metadata.name
            calls: dict[str, Callable[[Any], object]] = {
                "create": lambda objects: objects.create(found),
                "list": lambda objects: objects.list(),
                "delete": lambda objects, name=name: objects.delete(name),  # type: ignore[misc]
            }
            done = set()
            with ObjectStore.open(bus_made(role), settings=settings) as store:
                for verb, call in calls.items():
                    with suppress(BusRefused):
                        call(store.objects(kind))
                        done.add(verb)
            assert done == {verb for verb, roles in may.items() if role in roles}, role


def test_an_operator_may_write_a_status_and_a_node(owned: As, settings: Settings) -> None:
    with ObjectStore.open(owned(Role.OPERATOR), settings=settings) as store:
        found = store.objects(POD).patch("web-0", {"status": {"phase": "Running"}}, "shop", status=True)
        assert found.status.phase == "Running"
        assert [one.metadata.name for one in store.objects(POD).list().items] == ["web-0"]
        store.objects(NODE).create(_node("n1"))


def test_a_worker_keeps_house_without_asking_for_what_operators_own(
    owned: As,
    settings: Settings,
) -> None:
    bus = open_bus(owned(Role.WORKER), settings)
    client = bus.client()
    assert Housekeeper(bus=bus, clock=SystemClock()).finish(client, 0) == 0
    client.close()


def test_no_message_of_a_refusal_shows_a_secret(owned: As, settings: Settings) -> None:
    with ObjectStore.open(owned(Role.WORKER), settings=settings) as store, pytest.raises(BusRefused) as caught:
        store.objects(SECRET).update(OWNED[2][1])

    assert HIDDEN not in f"{caught.value!r} {caught.value} {caught.value.__cause__!r}"


def _node(name: str) -> Any:
    from eventbus.model.objects.cluster import Node

    return Node(metadata=ObjectMeta(name=name))


@pytest.mark.parametrize(
    ("role", "marked", "said"), [(Role.OPERATOR, ["NodeLost"], 0), (Role.WORKER, [""], 1)], ids=["operator", "worker"]
)
def test_pods_of_lost_nodes_are_marked_by_operators_and_others_say_so_once(
    owned: As,
    settings: Settings,
    caplog: pytest.LogCaptureFixture,
    role: Role,
    marked: list[str],
    said: int,
) -> None:
    with ObjectStore.open(owned(Role.OPERATOR), settings=settings) as store:
        pods = store.objects(POD)
        pods.patch("web-0", {"spec": {"nodeName": "n1"}}, "shop")
        with ObjectStore.open(owned(role), settings=settings) as acting:
            lost_pods = LostPods(acting.objects(POD), lambda: datetime(2026, 1, 2, tzinfo=UTC))
            lost_pods.look(["n1"])
            lost_pods.look(["n1", "n2"])
        assert [one.status.reason for one in pods.list().items] == marked
    assert caplog.text.count("are not marked") == said
