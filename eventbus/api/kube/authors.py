"""Silences and acknowledgements: the author that the server sets, and rights in some namespaces only."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import islice
from typing import Any, Final, TypeVar

import msgspec

from eventbus.api import status
from eventbus.api.auth.access import Access, User
from eventbus.api.thread_context import ThreadContext
from eventbus.model.kinds import ACKNOWLEDGEMENT, SILENCE, Kind
from eventbus.model.list_watch import HasMetadata, ListOptions, ObjectList
from eventbus.model.objects.silence import EXPIRED, Acknowledgement, Silence
from eventbus.model.silence_rules import namespaces_of
from eventbus.store.storage import replaced

T = TypeVar("T", bound=HasMetadata)

#: Silences or acknowledgements that are read for one answer, and those of one page of a list.
MOST: Final = 10_000
_PAGE: Final = 500
#: Silences that have not ended, of an author with rights in some namespaces only: the notifier uses 1000 of all.
MOST_OF_AUTHOR: Final = 200
#: Stored silences, or acknowledgements, of such an author, also ended ones.
MOST_STORED_OF_AUTHOR: Final = 2000
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

    def check_count(self, context: ThreadContext, kind: Kind[Any], new: Any, former: Any = None) -> None:
        """Check that an author with rights in some namespaces only may have one more silence or acknowledgement.

        Concurrent requests may exceed the bounds by a few. Raises: ApiError: 409.
        """
        if self.access.allowed(self.user, "create", kind.plural):
            return
        name, now, more = new.spec.created_by, datetime.now(UTC), "and may have no more"
        problem = ""
        if former is None:
            its = sum(each.spec.created_by == name for each in read_all(context, kind))
            if its >= MOST_STORED_OF_AUTHOR:
                problem = f'"{name}" has {its} {kind.plural}, {more}: they are deleted five days after their end'
        begins = isinstance(new, Silence) and not _ended(new, now) and (former is None or _ended(former, now))
        if begins and not problem:
            running = (each for each in read_all(context, SILENCE) if not _ended(each, now))
            if sum(each.spec.created_by == name for each in running) >= MOST_OF_AUTHOR:
                problem = f'"{name}" has {MOST_OF_AUTHOR} silences that have not ended, {more}: expire some'
        if problem:
            raise status.ApiError(409, "Conflict", problem, details=status.named(kind.resource))

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


def read_all(context: ThreadContext, kind: Kind[T]) -> Iterator[T]:
    """Yield the stored objects of a kind, `MOST` at the most."""

    def pages() -> Iterator[T]:
        options = ListOptions(limit=_PAGE)
        while True:
            page = context.objects(kind).list(options)
            yield from page.items
            if not page.continue_:
                return
            options = ListOptions(limit=_PAGE, continue_=page.continue_)

    return islice(pages(), MOST)


def _ended(silence: Silence, now: datetime) -> bool:
    return silence.spec.state(now) == EXPIRED


def _namespaces(found: Silence | Acknowledgement) -> Iterator[str]:
    if isinstance(found, Silence):
        yield from namespaces_of(found)
    elif found.spec.object.namespace:
        yield found.spec.object.namespace
