"""Authorization: users, roles, grants and the check that requests and access reviews share."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import StrEnum
from functools import lru_cache
from pathlib import Path
from typing import Final, NamedTuple, Self

import msgspec

from eventbus.api.reread_file import RereadFile
from eventbus.broker.keys import OPERATED
from eventbus.errors import ConfigError
from eventbus.model.names import MAX_LABEL, is_dns_label
from eventbus.util.own_files import check_own_folders, read_own

#: Members of this group have the role admin, as in Kubernetes.
MASTERS: Final = "system:masters"
AUTHENTICATED: Final = "system:authenticated"
ANY: Final = "*"
GRANTS_FILE: Final = "--grants-file"
#: Bytes of a file of grants: some ten thousand.
MAX_GRANTS_FILE: Final = 1024 * 1024


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
    OPERATOR = "operator"  #: view, and write the objects that run programs: pods, config maps, secrets
    ADMIN = "admin"  #: edit, and the bus's own objects: dead letters, sinks


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
            f"--grant {text!r}: give ROLE=user:NAME or ROLE=group:NAME, then @NAMESPACE for one namespace; ROLE {roles}"
        )

    def concerns(self, user: User) -> bool:
        """Return True if the grant names *user* or one of the user's groups."""
        return self.user == user.name if self.user else self.group in user.groups


class Access:
    """Answers `allowed`, for requests, reviews and all other paths. Thread-safe.

    Args: grants: fixed.  file: more grants, of --grants-file.
    """

    def __init__(self, grants: Iterable[Grant] = (), *, file: RereadFile[tuple[Grant, ...]] | None = None) -> None:
        self._fixed = (Grant(Role.ADMIN, group=MASTERS), *grants)
        self._file = file
        self._from_file = () if file is None else file.value
        self._decisions = _Decisions((*self._fixed, *self._from_file))

    async def refresh(self) -> None:
        """Use the grants of a changed file, at most a second after the change. A file with an error changes nothing."""
        if self._file is None:
            return
        await self._file.refresh()
        if self._file.value is not self._from_file:
            self._from_file = self._file.value
            self._decisions = _Decisions((*self._fixed, *self._from_file))

    def allowed(self, user: User, verb: str, resource: str, namespace: str = "") -> bool:
        """Return True if *user* may do *verb* to *resource*, as `events`. A subresource counts as its resource.

        *namespace* "": cluster-scoped objects, or all namespaces; both need a grant without a namespace. Users with
        rights to read in a namespace may read its Namespace object: pass its name as *namespace*.
        """
        decisions = self._decisions
        if max(len(verb), len(namespace)) > MAX_LABEL:  # a review may ask in megabytes, which would be kept
            return decisions.decide(user, verb, resource, namespace)
        return decisions.remembered(user, verb, resource, namespace)

    def grants_of(self, user: User) -> Sequence[Grant]:
        return self._decisions.grants_of(user)


class _Decisions:
    """The decisions by some grants. New grants make a new object, so that no thread stores an old decision in it."""

    def __init__(self, grants: tuple[Grant, ...]) -> None:
        self._grants = grants
        self.remembered = lru_cache(maxsize=1024)(self.decide)  # most checks repeat

    def decide(self, user: User, verb: str, resource: str, namespace: str) -> bool:
        return any(
            rule.allows(verb, resource)
            for grant in self.grants_of(user)
            if grant.namespace in ("", namespace)
            for rule in RULES[grant.role]
        )

    def grants_of(self, user: User) -> Sequence[Grant]:
        return [grant for grant in self._grants if grant.concerns(user)]


def grants_file(path: Path) -> RereadFile[tuple[Grant, ...]]:
    """Open a file of grants: one a line, as of --grant. Raises: ConfigError: it cannot be read, or a line is wrong."""
    return RereadFile(GRANTS_FILE, path, _read_grants)


def _read_grants(path: Path) -> tuple[Grant, ...]:
    """Raises: ConfigError: names the line."""
    try:
        check_own_folders(path)
        lines = read_own(path, MAX_GRANTS_FILE).decode("utf-8").splitlines()
    except (ConfigError, OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{GRANTS_FILE} {path}: {error}") from error
    found = []
    for number, line in enumerate(lines, 1):
        text = line.strip()
        if not text or text.startswith("#"):
            continue
        try:
            found.append(Grant.parse(text))
        except ConfigError as error:
            raise ConfigError(f"{GRANTS_FILE} {path}, line {number}: {error}") from None
    return tuple(found)
