"""A part of the names of a bus: core/v1 Namespace."""

from __future__ import annotations

from typing import ClassVar, Final

import msgspec

from eventbus.model.event import ObjectMeta

#: The finalizer in every namespace's spec.
FINALIZER: Final = "kubernetes"


class NamespaceSpec(msgspec.Struct, frozen=True, rename="camel"):
    """*finalizers* are stored unchanged; deletion does not wait for them."""

    finalizers: tuple[str, ...] = (FINALIZER,)


class NamespaceStatus(msgspec.Struct, frozen=True, rename="camel"):
    """*phase* is always Active: a namespace that is deleted is gone at once."""

    phase: str = "Active"


class Namespace(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """A core/v1 Namespace. A namespace can be used without creating this object.

    Source: k8s.io/api core/v1 types.go. Departure: without conditions.
    """

    kind: ClassVar[str] = "Namespace"
    api_version: ClassVar[str] = "v1"

    metadata: ObjectMeta = ObjectMeta()
    spec: NamespaceSpec = NamespaceSpec()
    status: NamespaceStatus = NamespaceStatus()


__all__ = ["FINALIZER", "Namespace", "NamespaceSpec", "NamespaceStatus"]
