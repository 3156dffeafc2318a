"""Lists the kinds of this process as resources, with the names that clients use."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec

from eventbus.model.kinds import EVENT, EVENTS_V1, LEASE, Kind

VERBS: Final = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")
#: Verbs of subresources.
STATUS_VERBS: Final = ("get", "patch", "update")
#: Resources that a PUT creates if they are missing, as in the API server.
_MADE_BY_UPDATE: Final = frozenset({EVENT.plural, LEASE.plural})


class Resource(msgspec.Struct, frozen=True, eq=False):
    """A kind in one group and version."""

    kind: Kind[Any]
    group: str  #: "" is core
    version: str

    @classmethod
    def of(cls, kind: Kind[Any]) -> Resource:
        group, _, version = kind.api_version.rpartition("/")
        return cls(kind, group, version)

    @property
    def plural(self) -> str:
        return self.kind.plural

    @property
    def label(self) -> str:
        """Return the name for error messages, such as `events.events.k8s.io`."""
        return self.kind.resource

    @property
    def is_events(self) -> bool:
        return self.kind.plural == EVENT.plural

    @property
    def made_by_update(self) -> bool:
        return self.plural in _MADE_BY_UPDATE

    @property
    def subresources(self) -> tuple[str, ...]:
        return ("status",) if self.kind.has_status else ()


class Resources:
    """All served resources, by group and version. Frozen."""

    def __init__(self, kinds: Iterable[Kind[Any]]) -> None:
        found = [Resource.of(kind) for kind in kinds]
        if any(resource.kind is EVENT for resource in found):
            found.append(Resource.of(EVENTS_V1))
        self._found: Mapping[tuple[str, str, str], Resource] = {
            (resource.group, resource.version, resource.plural): resource for resource in found
        }

    def __iter__(self) -> Iterator[Resource]:
        return iter(self._found.values())

    def find(self, group: str, version: str, plural: str) -> Resource | None:
        """Return the resource; None if it is not served."""
        return self._found.get((group, version, plural))

    def serves(self, group: str, plural: str) -> bool:
        """Return True if a version of *group* has the resource; `*` is any group, any resource."""
        return any(group in ("*", one.group) and plural in ("*", one.plural) for one in self)

    def groups(self) -> dict[str, list[str]]:
        """Return the versions of each group, core first."""
        found: dict[str, list[str]] = {"": []}
        for resource in self:
            versions = found.setdefault(resource.group, [])
            if resource.version not in versions:
                versions.append(resource.version)
        return found

    def in_version(self, group: str, version: str) -> list[Resource]:
        """Return the resources of one version of a group, sorted by name."""
        return sorted((one for one in self if (one.group, one.version) == (group, version)), key=lambda one: one.plural)
