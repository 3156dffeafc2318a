"""Silence and Acknowledgement of eventbus.dev/v1, which keep the notifier from sending."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import ClassVar, Final

import msgspec

from eventbus.model.event import Instant, ObjectMeta

API_VERSION: Final = "eventbus.dev/v1"
PENDING, ACTIVE, EXPIRED = "pending", "active", "expired"


class SilenceMatcher(msgspec.Struct, frozen=True, rename="camel"):
    """One condition on a label of alerts, with Alertmanager's fields. *is_equal* False: `!=`, and `!~` of a regex."""

    name: str = ""
    value: str = ""
    is_regex: bool = False
    is_equal: bool = True

    def __str__(self) -> str:
        quoted = self.value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")
        return f'{self.name}{self.operator}"{quoted}"'

    @property
    def operator(self) -> str:
        """Return the operator as it is written in a rules file."""
        return ("=~" if self.is_equal else "!~") if self.is_regex else ("=" if self.is_equal else "!=")


class SilenceSpec(msgspec.Struct, frozen=True, rename="camel"):
    """No notification contains an alert that all *matchers* match, from *starts_at* until *ends_at*.

    *created_by*: over HTTP, the server sets the authenticated user.
    """

    matchers: tuple[SilenceMatcher, ...] = ()
    starts_at: Instant | None = None
    ends_at: Instant | None = None
    created_by: str = ""
    comment: str = ""

    def state(self, now: datetime) -> str:
        """Return pending, active or expired."""
        if self.ends_at is None or self.ends_at <= now:
            return EXPIRED
        return PENDING if self.starts_at is not None and self.starts_at > now else ACTIVE

    def ended(self, now: datetime) -> SilenceSpec:
        """Return it with its end at *now*, and of a pending one with its start just before."""
        pending = self.state(now) == PENDING
        starts_at = now - timedelta(milliseconds=1) if pending else self.starts_at
        return msgspec.structs.replace(self, starts_at=starts_at, ends_at=now)


class Silence(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """A silence, cluster-scoped. Its name is a UUID.

    Source: alertmanager `silence/silencepb/silence.proto`.
    """

    kind: ClassVar[str] = "Silence"
    api_version: ClassVar[str] = API_VERSION

    metadata: ObjectMeta = ObjectMeta()
    spec: SilenceSpec = SilenceSpec()


class AcknowledgedObject(msgspec.Struct, frozen=True, rename="camel"):
    """The object of the alerts. *namespace* is empty for an object in none."""

    kind: str = ""
    namespace: str = ""
    name: str = ""

    def __str__(self) -> str:
        return "/".join(part for part in (self.namespace, self.kind, self.name) if part)


class AcknowledgementSpec(msgspec.Struct, frozen=True, rename="camel"):
    """A group is not repeated while an alert about *object* fires, and all alerts that fire began before this object.

    *created_by*: over HTTP, the server sets the authenticated user. *same_namespace*: groups with all alerts in the
    namespace of *object* only; the server sets it for a user with the role edit in some namespaces only.
    """

    object: AcknowledgedObject = AcknowledgedObject()
    same_namespace: bool = False
    created_by: str = ""
    comment: str = ""


class Acknowledgement(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """An acknowledgement, cluster-scoped. Its name is a UUID."""

    kind: ClassVar[str] = "Acknowledgement"
    api_version: ClassVar[str] = API_VERSION

    metadata: ObjectMeta = ObjectMeta()
    spec: AcknowledgementSpec = AcknowledgementSpec()
