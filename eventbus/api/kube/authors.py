"""Silences and acknowledgements: the author that the server sets, and rights in some namespaces only."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import msgspec

from eventbus.api import status
from eventbus.api.auth.access import Access, User
from eventbus.model.kinds import ACKNOWLEDGEMENT, SILENCE, Kind
from eventbus.model.list_watch import ObjectList
from eventbus.model.objects.silence import Acknowledgement, Silence
from eventbus.model.silence_rules import namespaces_of
from eventbus.store.storage import replaced

#: Kinds without namespaces that users with rights in some namespaces may write.
AUTHORED: Final[tuple[Kind[Any], ...]] = (SILENCE, ACKNOWLEDGEMENT)
#: Verbs that are checked again with the object.
CHECKED: Final = frozenset({"get", "list", "create", "update", "patch", "delete"})
_SIGNED: Final = frozenset({"created_by", "same_namespace"})


class Author(msgspec.Struct, frozen=True):
    """The user of a request."""

    user: User
    access: Access

    def may_try(self, verb: str, kind: Kind[Any]) -> bool:
        """Return True if the user may do *verb* to some objects of *kind*."""
        allowed, grants = self.access.allowed, self.access.grants_of(self.user)
        return any(allowed(self.user, verb, kind.plural, grant.namespace) for grant in grants)

    def may(self, verb: str, kind: Kind[Any], found: Any) -> bool:
        """Return True if the user may do *verb* on the whole bus, or in the namespace of *found*."""
        allowed = self.access.allowed
        return any(allowed(self.user, verb, kind.plural, namespace) for namespace in ("", *_namespaces(found)))

    def readable(self, kind: Kind[Any], listed: ObjectList[Any]) -> ObjectList[Any]:
        """Return the objects that the user may list; a page may be shorter than its limit."""
        if self.access.allowed(self.user, "list", kind.plural):
            return listed
        items = tuple(found for found in listed.items if self.may("list", kind, found))
        return ObjectList(items, listed.resource_version, listed.continue_)

    def check(self, verb: str, kind: Kind[Any], found: Any) -> None:
        """Check the right to *verb* an object. Raises: ApiError: 403."""
        if self.may(verb, kind, found):
            return
        denial = f'User "{self.user.name}" cannot {verb} resource "{kind.plural}" at the cluster scope'
        cure = 'add a matcher namespace="…"' if kind is SILENCE else "only about objects of a namespace"
        raise status.forbidden(kind.resource, found.metadata.name, f"{denial}: {cure}")

    def signed(self, verb: str, kind: Kind[Any], new: Any, former: Any = None) -> Any:
        """Return *new* with the fields that the server sets. Raises: ApiError: 403."""
        self.check(verb, kind, new)
        if former is not None:
            self.check(verb, kind, former)
            kept = {name: getattr(former.spec, name) for name in _SIGNED & set(new.spec.__struct_fields__)}
            return replaced(new, spec=msgspec.structs.replace(new.spec, **kept))
        spec = msgspec.structs.replace(new.spec, created_by=self.user.name)
        if isinstance(new, Acknowledgement) and not self.access.allowed(self.user, verb, kind.plural):
            spec = msgspec.structs.replace(spec, same_namespace=True)
        return replaced(new, spec=spec)


def _namespaces(found: Silence | Acknowledgement) -> Iterator[str]:
    if isinstance(found, Silence):
        yield from namespaces_of(found)
    elif found.spec.object.namespace:
        yield found.spec.object.namespace
