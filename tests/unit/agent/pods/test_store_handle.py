"""store_handle.py: calls to the bus do not wait for each other, and Secrets are kept as long as a pod names them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any, cast

import pytest

from eventbus.agent.pods.store_handle import StoreHandle
from eventbus.errors import BusUnavailable
from eventbus.model.event import ObjectMeta
from eventbus.model.kinds import POD
from eventbus.model.objects.config import ConfigMap, Secret
from eventbus.model.objects.pod import Pod
from eventbus.store.object_store import ObjectStore


class Store:
    """A store whose answer to `slow` waits until it is let go. It is its own for every thread."""

    def __init__(self) -> None:
        self.asked, self.go = threading.Event(), threading.Event()
        self.away = False
        self.open = 0

    def for_another_thread(self) -> Store:
        self.open += 1
        return self

    def close(self) -> None:
        self.open -= 1

    def objects(self, kind: Any) -> Store:
        return self if kind is not POD else Pods(self)

    def get(self, name: str, namespace: str) -> Any:
        if self.away:
            raise BusUnavailable("it is away")
        if name == "slow":
            self.asked.set()
            assert self.go.wait(60)
        metadata = ObjectMeta(name=name, namespace=namespace)
        return ConfigMap(metadata=metadata) if name == "map" else Secret(metadata=metadata)


class Pods(Store):
    """The pods of a store."""

    def __init__(self, store: Store) -> None:
        super().__init__()

    def get(self, name: str, namespace: str) -> Pod:
        return Pod(metadata=ObjectMeta(name=name, namespace=namespace))


@pytest.fixture
def store() -> Iterator[Store]:
    made = Store()
    yield made
    made.go.set()


@pytest.fixture
def side(store: Store) -> StoreHandle:
    made = StoreHandle()
    made.attach(cast(ObjectStore, store))
    return made


def test_a_read_that_waits_for_the_bus_delays_no_other_pod(side: StoreHandle, store: Store) -> None:
    done = threading.Event()

    def quick() -> None:
        assert side.secret("default", "quick") is not None
        pods = side.pods()
        assert pods is not None
        assert pods.get("web", "default").metadata.name == "web"
        side.detach()
        done.set()

    slow = threading.Thread(target=side.secret, args=("default", "slow"))
    slow.start()
    assert store.asked.wait(60)
    other = threading.Thread(target=quick)
    other.start()
    is_done = done.wait(30)
    store.go.set()
    slow.join()
    other.join()
    assert is_done
    assert store.open == 0


def named(*secrets: str) -> Pod:
    """Return a pod that names *secrets*, each in another way, and the ConfigMap `map`."""
    ways: list[dict[str, Any]] = [
        {"env": [{"name": "A", "valueFrom": {"secretKeyRef": {"name": name, "key": "a"}}}]} for name in secrets[:1]
    ]
    ways += [{"envFrom": [{"secretRef": {"name": name}}]} for name in secrets[1:2]]
    containers = [{"name": f"c{place}", **way} for place, way in enumerate(ways)]
    volumes: list[dict[str, Any]] = [{"name": "map", "configMap": {"name": "map"}}]
    volumes += [{"name": name, "secret": {"secretName": name}} for name in secrets[2:]]
    spec = {"containers": containers, "volumes": volumes}
    return POD.decode({"metadata": {"name": "web", "namespace": "default"}, "spec": spec})


def test_a_secret_is_kept_without_the_bus_as_long_as_a_pod_names_it(side: StoreHandle, store: Store) -> None:
    names = ("one", "other", "third")
    for name in names:
        side.secret("default", name)
    side.config_map("default", "map")
    store.away = True
    side.forget_unused([named(*names)])
    assert None not in [side.secret("default", name) for name in names]
    assert side.config_map("default", "map") is not None
    side.forget_unused([named("one")])
    assert [side.secret("default", name) is not None for name in names] == [True, False, False]
    side.forget_unused([])
    assert side.config_map("default", "map") is None
    assert side._read == {}
