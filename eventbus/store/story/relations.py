"""Finds the owners of an object and the objects it owns, by owner references and by Kubernetes' naming rules.

A Deployment's ReplicaSets and a Job's Pods have the name of their owner, a dash, and one more part. The names also
relate objects that are known from events alone, and objects that were deleted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, TypeAlias

from eventbus.broker.bus import Bus
from eventbus.broker.connection.connect import Client
from eventbus.errors import NotFound
from eventbus.model.event import ObjectReference
from eventbus.model.kinds import KINDS, Kind
from eventbus.model.list_watch import ListOptions
from eventbus.store.events_about import read_events_about
from eventbus.store.index import members
from eventbus.store.object_store import ObjectStore
from eventbus.store.permitted import may_read

#: Kind → kinds of the objects that it creates. Their names begin with its name.
_MAKES: Final[Mapping[str, tuple[str, ...]]] = {
    "Deployment": ("ReplicaSet",),
    "ReplicaSet": ("Pod",),
    "ReplicationController": ("Pod",),
    "StatefulSet": ("Pod",),
    "DaemonSet": ("Pod",),
    "Job": ("Pod",),
    "CronJob": ("Job",),
}
#: Kinds that are not searched for owned objects, because a story does not show them.
_NEVER_OWNED: Final = frozenset({"events", "leases", "configmaps", "secrets"})
#: Kinds that a story does not show.
_HIDDEN: Final = frozenset({"events", "secrets"})
#: Most owned objects that a story includes.
MOST_OWNED: Final = 200


#: Kind and name of an owner → the objects that it owns.
_ByOwner: TypeAlias = dict[tuple[str, str], list[ObjectReference]]


class Relations:
    """Reads owners and owned objects. One thread at a time, as with the client."""

    def __init__(self, bus: Bus, client: Client) -> None:
        self._bus = bus
        self._client = client
        self._store = ObjectStore(bus, client)
        self._permitted: dict[str, bool] = {}
        self._by_owner: dict[tuple[str, str], _ByOwner] = {}

    def stored(self, about: ObjectReference) -> Any:
        """Return the stored object, or None if the store does not have it or the user may not read its kind."""
        kind = _kind_of(about)
        if kind is None or not self._may_read(kind):
            return None
        try:
            return self._store.objects(kind).get(about.name, about.namespace if kind.namespaced else "")
        except NotFound:
            return None

    def owners(self, about: ObjectReference, stored: Any) -> list[ObjectReference]:
        """Return the owners of *about*, the nearest first."""
        found: dict[tuple[str, str], ObjectReference] = {}
        references = stored.metadata.owner_references if stored is not None else ()
        for owner in references:
            reference = ObjectReference(
                kind=owner.kind,
                namespace=about.namespace,
                name=owner.name,
                uid=owner.uid,
                api_version=owner.api_version,
            )
            found[owner.kind, owner.name] = reference
        nearest = list(found.values()) or self._owners_by_name(about)
        for owner in list(nearest):
            nearest += [further for further in self._owners_by_name(owner) if further not in nearest]
        return nearest

    def owned(self, about: ObjectReference) -> list[ObjectReference]:
        """Return the objects that *about* owns, directly or through others; at most `MOST_OWNED`."""
        found: dict[tuple[str, str], ObjectReference] = {}
        waiting = [about]
        while waiting and len(found) < MOST_OWNED:
            owner = waiting.pop(0)
            for one in (*self._owned_by_reference(owner), *self._owned_by_name(owner)):
                if (one.kind, one.name) not in found and len(found) < MOST_OWNED:
                    found[one.kind, one.name] = one
                    waiting.append(one)
        return list(found.values())

    def _may_read(self, kind: Kind[Any]) -> bool:
        if kind.plural not in self._permitted:
            self._permitted[kind.plural] = may_read(self._store, kind)
        return self._permitted[kind.plural]

    def _owners_by_name(self, about: ObjectReference) -> list[ObjectReference]:
        name, dash, _ = about.name.rpartition("-")
        kinds = [kind for kind, made in _MAKES.items() if about.kind in made] if dash and name else []
        candidates = (ObjectReference(kind=kind, namespace=about.namespace, name=name) for kind in kinds)
        return [one for one in candidates if self._has_events(one) or self.stored(one) is not None]

    def _has_events(self, about: ObjectReference) -> bool:
        return bool(read_events_about(self._bus, self._client, [about])[0])

    def _owned_by_name(self, about: ObjectReference) -> Iterator[ObjectReference]:
        for kind in _MAKES.get(about.kind, ()):
            for name in self._named(about.namespace or "default", kind, f"{about.name}-"):
                if "-" not in name.removeprefix(f"{about.name}-"):
                    yield ObjectReference(kind=kind, namespace=about.namespace, name=name)

    def _owned_by_reference(self, about: ObjectReference) -> Iterator[ObjectReference]:
        for kind in KINDS:
            if kind.plural in _NEVER_OWNED or not kind.namespaced or not self._may_read(kind):
                continue
            yield from self._owned_of(kind, about.namespace).get((about.kind, about.name), ())

    def _owned_of(self, kind: Kind[Any], namespace: str) -> _ByOwner:
        """Return the objects of *kind* by owner. Lists them once for all owners."""
        found = self._by_owner.get((kind.plural, namespace))
        if found is None:
            found = self._by_owner[kind.plural, namespace] = {}
            for one in self._store.objects(kind).list(ListOptions(namespace=namespace)).items:
                meta = one.metadata
                owned = ObjectReference(kind=kind.name, namespace=meta.namespace, name=meta.name, uid=meta.uid)
                for owner in dict.fromkeys((owner.kind, owner.name) for owner in meta.owner_references):
                    found.setdefault(owner, []).append(owned)
        return found

    def _named(self, namespace: str, kind: str, begin: str) -> Iterator[str]:
        """Yield the names that begin so, of objects that have events. Redis: ZRANGE on index:object."""
        prefix = f"{namespace}/{kind.lower()}/{begin}".encode("utf-8", "replace")
        seen: set[str] = set()
        for keys in self._bus.keys:
            for member in members(self._client, keys.index_object, prefix):
                name = member.rpartition(b"\0")[0].decode("utf-8", "replace").split("/", 2)[2]
                if name not in seen:
                    seen.add(name)
                    yield name


def _kind_of(about: ObjectReference) -> Kind[Any] | None:
    found = KINDS.named(about.kind)
    return None if found is None or found.plural in _HIDDEN else found
