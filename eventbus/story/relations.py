"""Finds what an object owns and belongs to: by owner references of stored objects, and by how Kubernetes names things.

A Deployment's ReplicaSets and a Job's Pods are called after their owner, with one more part behind a dash. That holds
for objects that are known from events alone, and for those that are gone, too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, TypeAlias

from eventbus.broker.bus import Bus
from eventbus.broker.connection.connect import Client
from eventbus.errors import NotFound
from eventbus.event import ObjectReference
from eventbus.kinds import KINDS, Kind
from eventbus.list_watch import ListOptions
from eventbus.store.events_about import read_events_about
from eventbus.store.index import members
from eventbus.store.object_store import ObjectStore
from eventbus.store.permitted import may_read

#: Kind → kinds whose objects it makes, under names that begin with its own.
_MAKES: Final[Mapping[str, tuple[str, ...]]] = {
    "Deployment": ("ReplicaSet",),
    "ReplicaSet": ("Pod",),
    "ReplicationController": ("Pod",),
    "StatefulSet": ("Pod",),
    "DaemonSet": ("Pod",),
    "Job": ("Pod",),
    "CronJob": ("Job",),
}
#: Kinds whose objects are not looked through for their owners: there is nothing to tell of them.
_OWNED_BY_NOBODY: Final = frozenset({"events", "leases", "configmaps", "secrets"})
#: Kinds whose objects a story does not show.
_UNTOLD: Final = frozenset({"events", "secrets"})
#: Objects owned that are looked at: the story of one that owns thousands is not read to its end.
MOST_OWNED: Final = 200


#: By kind and name of an owner: what belongs to it.
_ByOwner: TypeAlias = dict[tuple[str, str], list[ObjectReference]]


class Relations:
    """Reads who belongs to whom. One thread, as the client."""

    def __init__(self, bus: Bus, client: Client) -> None:
        self._bus = bus
        self._client = client
        self._store = ObjectStore(bus, client)
        self._permitted: dict[str, bool] = {}
        self._by_owner: dict[tuple[str, str], _ByOwner] = {}

    def stored(self, about: ObjectReference) -> Any:
        """Return the object itself, where the store has its kind and it; else None."""
        kind = _kind_of(about)
        if kind is None or not self._may_read(kind):
            return None
        try:
            return self._store.objects(kind).get(about.name, about.namespace if kind.namespaced else "")
        except NotFound:
            return None

    def owners(self, about: ObjectReference, stored: Any) -> list[ObjectReference]:
        """Return those that *about* belongs to, the nearest first, up to the top."""
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
        """Return those that belong to *about*, and those that belong to them; at most `MOST_OWNED`."""
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
        return [one for one in candidates if self._is_told_of(one) or self.stored(one) is not None]

    def _is_told_of(self, about: ObjectReference) -> bool:
        return bool(read_events_about(self._bus, self._client, [about])[0])

    def _owned_by_name(self, about: ObjectReference) -> Iterator[ObjectReference]:
        for kind in _MAKES.get(about.kind, ()):
            for name in self._named(about.namespace or "default", kind, f"{about.name}-"):
                if "-" not in name.removeprefix(f"{about.name}-"):
                    yield ObjectReference(kind=kind, namespace=about.namespace, name=name)

    def _owned_by_reference(self, about: ObjectReference) -> Iterator[ObjectReference]:
        for kind in KINDS:
            if kind.plural in _OWNED_BY_NOBODY or not kind.namespaced or not self._may_read(kind):
                continue
            yield from self._owned_of(kind, about.namespace).get((about.kind, about.name), ())

    def _owned_of(self, kind: Kind[Any], namespace: str) -> _ByOwner:
        """Return the objects of *kind* by whom they belong to: listed once, however many owners are asked for."""
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
        """Yield the names, of objects that events are about, that begin so. Redis: ZRANGE on index:object."""
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
    return None if found is None or found.plural in _UNTOLD else found
