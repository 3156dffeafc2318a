"""A part of the names of a bus: core/v1 Namespace."""

from __future__ import annotations

from typing import ClassVar, Final

import msgspec

from eventbus.event import ObjectMeta

#: What every namespace has in its spec.
FINALIZER: Final = "kubernetes"


class NamespaceSpec(msgspec.Struct, frozen=True, rename="camel"):
    """*finalizers* are kept as they come; nobody here waits for them."""

    finalizers: tuple[str, ...] = (FINALIZER,)


class NamespaceStatus(msgspec.Struct, frozen=True, rename="camel"):
    """*phase* is always Active: a namespace that is deleted is gone at once."""

    phase: str = "Active"


class Namespace(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """One core/v1 Namespace. Nothing here needs one to be made: whoever uses a namespace has it.

    Source: k8s.io/api core/v1 types.go. Departure: without conditions.
    """

    kind: ClassVar[str] = "Namespace"
    api_version: ClassVar[str] = "v1"

    metadata: ObjectMeta = ObjectMeta()
    spec: NamespaceSpec = NamespaceSpec()
    status: NamespaceStatus = NamespaceStatus()


__all__ = ["FINALIZER", "Namespace", "NamespaceSpec", "NamespaceStatus"]
