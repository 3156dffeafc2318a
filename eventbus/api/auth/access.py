"""Authorization: users, roles, grants and the check that requests and access reviews share."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import StrEnum
from functools import lru_cache
from typing import Final, NamedTuple, Self

import msgspec

from eventbus.broker.keys import OPERATED
from eventbus.errors import ConfigError
from eventbus.model.names import MAX_LABEL, is_dns_label

#: Members of this group have the role admin, as in Kubernetes.
MASTERS: Final = "system:masters"
AUTHENTICATED: Final = "system:authenticated"
ANY: Final = "*"


class User(msgspec.Struct, frozen=True):
    """The sender of a request, as an authenticator names it."""

    name: str
    groups: tuple[str, ...] = ()
    uid: str = ""


class Role(StrEnum):
    """A role that a user may be granted. `RULES` lists the permissions of each role."""

    VIEW = "view"  #: read everything but secrets
    RECORD = "record"  #: write events, read nothing
    EDIT = "edit"  #: view, and write everything except `OPERATED` and `SERVED`
    OPERATOR = "operator"  #: view, and write what runs programs: pods, config maps, secrets
    ADMIN = "admin"  #: edit, and what serves the bus itself: dead letters, sinks


class Rule(NamedTuple):
    """Allowed verbs on resources; `*` is any. Resources in *excepted* are not allowed."""

    verbs: frozenset[str]
    resources: frozenset[str]
    excepted: frozenset[str] = frozenset()

    def allows(self, verb: str, resource: str) -> bool:
        """Return True if the rule allows *verb* on *resource*."""
        if resource in self.excepted or not {resource, ANY} & self.resources:
            return False
        return bool({verb, ANY} & self.verbs)


READ: Final = frozenset({"get", "list", "watch"})
WRITE: Final = frozenset({"create", "update", "patch", "delete", "deletecollection"})
SECRETS: Final = frozenset({"secrets"})
#: Resources of the bus: write access can drop or replay events of other users, or reveal the user of a token.
SERVED: Final = frozenset({"dead", "sinks", "tokenreviews"})

_VIEW: Final = Rule(READ, frozenset({ANY}), SECRETS)
_RECORD: Final = Rule(frozenset({"create", "update", "patch"}), frozenset({"events", "records"}))
RULES: Final[dict[Role, tuple[Rule, ...]]] = {
    Role.VIEW: (_VIEW,),
    Role.RECORD: (_RECORD,),
    Role.EDIT: (_VIEW, Rule(WRITE, frozenset({ANY}), OPERATED | SERVED)),
    Role.OPERATOR: (_VIEW, Rule(frozenset({ANY}), OPERATED)),
    Role.ADMIN: (_VIEW, Rule(frozenset({ANY}), frozenset({ANY}), OPERATED)),
}


class Grant(NamedTuple):
    """A role of a user or group in one namespace; "" is all namespaces and cluster-scoped resources."""

    role: Role
    user: str = ""
    group: str = ""
    namespace: str = ""

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read `view=user:ann`, `edit=group:ops@team-a`. Raises: ConfigError."""
        role, _, rest = text.partition("=")
        sort, colon, name = rest.partition(":")
        if colon and name and sort in ("user", "group") and role in list(Role):
            # The last @, since names of users are often addresses.
            before, at, namespace = name.rpartition("@")
            if at and is_dns_label(namespace):
                name = before
            else:
                namespace = ""
            if name:
                return cls(Role(role), namespace=namespace, **{sort: name})
        roles = "|".join(Role)
        raise ConfigError(
            f"--grant {text!r}: give ROLE=user:NAME or ROLE=group:NAME, @NAMESPACE behind it; ROLE {roles}"
        )

    def concerns(self, user: User) -> bool:
        """Return True if the grant names *user* or one of the user's groups."""
        return self.user == user.name if self.user else self.group in user.groups


class Access:
    """Answers `allowed`, for requests, reviews and whatever is served besides. Thread-safe, frozen by convention."""

    def __init__(self, grants: Iterable[Grant] = ()) -> None:
        self._grants = (Grant(Role.ADMIN, group=MASTERS), *grants)
        self._remembered = lru_cache(maxsize=1024)(self._decide)  # most checks repeat

    def allowed(self, user: User, verb: str, resource: str, namespace: str = "") -> bool:
        """Return True if *user* may do *verb* to *resource*, as `events`; a subresource counts as what it belongs to.

        *namespace* "" is what lies in none, and all at once: both need a grant that names none. A namespace itself may
        be read by whoever may read in it: give it as *namespace*.
        """
        if max(len(verb), len(namespace)) > MAX_LABEL:  # a review may ask in megabytes, which would be kept
            return self._decide(user, verb, resource, namespace)
        return self._remembered(user, verb, resource, namespace)

    def _decide(self, user: User, verb: str, resource: str, namespace: str) -> bool:
        return any(
            rule.allows(verb, resource)
            for grant in self.grants_of(user)
            if grant.namespace in ("", namespace)
            for rule in RULES[grant.role]
        )

    def grants_of(self, user: User) -> Sequence[Grant]:
        return [grant for grant in self._grants if grant.concerns(user)]
