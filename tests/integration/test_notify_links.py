"""The links of objects for inhibition, from what the store has."""

from __future__ import annotations

from eventbus.broker.bus import Bus, open_bus
from eventbus.model.event import ObjectMeta, OwnerReference
from eventbus.model.kinds import POD
from eventbus.model.objects.pod import Pod, PodSpec
from eventbus.notify.links import store_links
from eventbus.store.object_store import ObjectStore
from tests.support.harness import settings_of


def test_a_pod_has_its_node_and_its_owner(embedded_url: str, prefix: str) -> None:
    bus: Bus = open_bus(embedded_url, settings_of(prefix))
    owner = OwnerReference(api_version="apps/v1", kind="StatefulSet", name="db", uid="u1", controller=True)
    metadata = ObjectMeta(name="db-0", namespace="default", owner_references=(owner,))
    with ObjectStore.of(bus) as store, bus.client() as client:
        store.objects(POD).create(Pod(metadata=metadata, spec=PodSpec(node_name="n1")))
        links = store_links(bus, client)
        pod = {"kind": "Pod", "namespace": "default", "name": "db-0", "host": "controller-host"}
        assert links(pod) == {"node": "n1", "owner": "StatefulSet/default/db"}
        assert links(pod | {"name": "db-1"}) == {"node": "controller-host", "owner": "Pod/default/db-1"}
        assert links({"kind": "Node", "namespace": "default", "name": "n1"})["node"] == "n1"
        assert links({"kind": "StatefulSet", "namespace": "default", "name": "db"}) == {
            "owner": "StatefulSet/default/db"
        }
