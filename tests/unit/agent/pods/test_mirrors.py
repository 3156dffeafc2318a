"""Mirrors that the store does not take, and those that it has lost again."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from eventbus.agent.pods.mirrors import Mirrors, mirror_of
from eventbus.agent.pods.pod_manager import PodManager
from eventbus.agent.pods.updates import RUN_BY_UP
from eventbus.agent.procfile.procfile import line_pod
from eventbus.errors import AlreadyExists, InvalidObject, NotFound
from eventbus.model.objects.pod import Pod
from tests.unit.agent.pods.pods import a_pod


class Store:
    """Pods by name; refuses what has no container."""

    def __init__(self, *held: Pod) -> None:
        self.held = {pod.metadata.name: pod for pod in held}

    def get(self, name: str, namespace: str = "") -> Pod:
        try:
            return self.held[name]
        except KeyError:
            raise NotFound(name) from None

    def create(self, found: Pod) -> Pod:
        if not found.spec.containers:
            raise InvalidObject("no containers")
        if found.metadata.name in self.held:
            raise AlreadyExists(found.metadata.name)
        return self.held.setdefault(found.metadata.name, found)

    def modify(
        self, name: str, change: Callable[[Pod], Pod], namespace: str = "", *, version: str = "", uid: str = ""
    ) -> Pod:
        raise NotImplementedError

    def delete(self, name: str, namespace: str = "", *, version: str = "") -> None:
        del self.held[name]


@pytest.mark.parametrize(
    ("store", "pod", "problem"),
    [
        (Store(), a_pod("web", source="file", containers=()), "no containers"),
        (Store(a_pod("web")), a_pod("web", source="file"), "not made by this agent"),
    ],
    ids=["refused", "the-name-is-taken"],
)
def test_a_mirror_that_the_store_does_not_take_is_told_once(
    store: Store, pod: Pod, problem: str, caplog: pytest.LogCaptureFixture
) -> None:
    mirrors = Mirrors(PodManager())
    with caplog.at_level(logging.INFO, "eventbus"):
        assert [mirrors.ensure(store, pod) for _ in range(3)] == [False] * 3
    [said] = caplog.messages
    assert problem in said


def test_the_mirror_of_what_the_manifest_was_before_makes_room_without_a_word(caplog: pytest.LogCaptureFixture) -> None:
    store, edited = Store(), a_pod("web", uid="edited", source="file")
    assert Mirrors(PodManager()).ensure(store, a_pod("web", uid="first", source="file"))
    mirrors = Mirrors(PodManager())  # of an agent that has not read the store yet
    with caplog.at_level(logging.INFO, "eventbus"):
        while not mirrors.ensure(store, edited):
            continue
    assert caplog.messages == []
    assert store.held["web"].metadata.annotations["kubernetes.io/config.mirror"] == "edited"


def test_a_mirror_that_is_gone_before_the_bus_has_told_of_it_is_made_again() -> None:
    store, pod, manager = Store(), a_pod("web", source="file"), PodManager()
    mirrors = Mirrors(manager)
    assert mirrors.ensure(store, pod)
    assert not mirrors.ensure(store, pod)
    store.held.clear()
    assert mirrors.ensure(store, pod)
    assert list(store.held) == ["web"]


def test_of_a_mirror_that_the_bus_has_told_of_the_store_is_not_asked() -> None:
    store, pod, manager = Store(), a_pod("web", source="file"), PodManager()
    mirrors = Mirrors(manager)
    assert mirrors.ensure(store, pod)
    manager.put(msgspec.structs.replace(store.held["web"]))
    store.held.clear()
    assert not mirrors.ensure(store, pod)
    manager.remove(manager.mirrors()[0])
    assert mirrors.ensure(store, pod)


def test_the_mirror_of_a_line_of_up_shows_no_variable_but_its_port() -> None:
    line = line_pod("web", ["a"], {"PORT": "7000", "TOKEN": "secret"}, Path("/"))
    metadata = msgspec.structs.replace(line.metadata, annotations={RUN_BY_UP: "host:/up"})
    [container] = mirror_of(msgspec.structs.replace(line, metadata=metadata)).spec.containers
    assert {one.name: one.value for one in container.env} == {"PORT": "7000"}
