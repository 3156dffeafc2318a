"""Lease of coordination.k8s.io/v1: the holder of a lock, and the time until it expires."""

from __future__ import annotations

from typing import ClassVar

import msgspec

from eventbus.model.event import Instant, Int32, ObjectMeta


class LeaseSpec(msgspec.Struct, frozen=True, rename="camel"):
    """The holder and the times of a lease. None is unset, as Go's pointers are; times have microseconds in JSON."""

    holder_identity: str | None = None
    lease_duration_seconds: Int32 | None = None
    acquire_time: Instant | None = None
    renew_time: Instant | None = None
    lease_transitions: Int32 | None = None


class Lease(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """One coordination.k8s.io/v1 Lease, in a namespace.

    Change it with `msgspec.structs.replace`.

    Source: k8s.io/api coordination/v1 types.go. Departure: without strategy and preferredHolder.
    """

    kind: ClassVar[str] = "Lease"
    api_version: ClassVar[str] = "coordination.k8s.io/v1"

    metadata: ObjectMeta = ObjectMeta()
    spec: LeaseSpec = LeaseSpec()


__all__ = ["Lease", "LeaseSpec"]
