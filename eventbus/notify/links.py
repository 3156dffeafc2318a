"""The links of an object that the store knows: its node, and the owner above all of its owners."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from eventbus.broker.bus import Bus
from eventbus.broker.connection.connect import Client
from eventbus.errors import EventBusError
from eventbus.model.event import ObjectReference
from eventbus.notify.engine import Links
from eventbus.store.story.reading import Relations
from eventbus.util.log import log


def store_links(bus: Bus, client: Client) -> Links:
    """Return the function that reads links from the store, once for each new alert. One thread."""
    return partial(_read_links, Relations(bus, client))


def _read_links(relations: Relations, labels: Mapping[str, str]) -> dict[str, str]:
    """Return `node` and `owner` of the object with these labels, for inhibition; unknown ones are left out.

    A node is its own node, and an object without owners its own owner. A pod that the store does not have is on the
    host that reported it.
    """
    kind, namespace, name = (labels.get(label, "") for label in ("kind", "namespace", "name"))
    about = ObjectReference(kind=kind, namespace=namespace, name=name)
    found = {"owner": f"{kind}/{namespace}/{name}"}
    if kind == "Node":
        return found | {"node": name}
    node = labels.get("host", "")
    try:
        stored = relations.stored(about)
        if owners := relations.owners(about, stored):
            top = owners[-1]
            found["owner"] = f"{top.kind}/{top.namespace}/{top.name}"
        node = getattr(getattr(stored, "spec", None), "node_name", "") or node
    except EventBusError as error:  # inhibited less, and nothing is lost
        log.warning("the links of %s %s/%s are not known: %s", kind, namespace, name, error)
    return found | ({"node": node} if node else {})
