"""Elects one of several workers to act: the holder of a Lease, by the rule of client-go's leader election."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import datetime

import msgspec

from eventbus.agent.node.lease_renewal import PASSING, LeaseObjects
from eventbus.errors import NotFound
from eventbus.model.event import ObjectMeta
from eventbus.model.objects.cluster import LIFECYCLE_LEASE, Lease, LeaseSpec
from eventbus.util.clock import Clock
from eventbus.util.log import log

#: A holder loses the lease if others observe no renewal for so many seconds.
LEASE_S = 8


class Election:
    """One candidate. `campaign` is called every second or two, by one thread.

    A candidate judges others by when it saw their renewals, not by the times in them. The writes of a leader must
    be conditional too: another candidate may have been elected between its read and its write.

    *annotations* are those of the lease, read when it is taken and stored with each renewal. A leader may replace them.

    Args: lease: namespace and name.  now: the time that is written to the lease, for people to read.
    """

    def __init__(
        self,
        *,
        leases: LeaseObjects,
        clock: Clock,
        identity: str,
        now: Callable[[], datetime],
        lease_s: int = LEASE_S,
        lease: tuple[str, str] = LIFECYCLE_LEASE,
    ) -> None:
        self.identity = identity
        self.annotations: Mapping[str, str] = {}
        self._name = lease
        self._leases = leases
        self._clock = clock
        self._now = now
        self._lease_s = lease_s
        self._version = ""  # version of the lease
        self._seen_at = 0.0
        self._renewed_at = -math.inf
        self._lease: Lease | None = None

    @property
    def renew_every_s(self) -> float:
        """Return how often `campaign` is to be called: client-go's retryPeriod, in the same proportion."""
        return self._lease_s / 4

    @property
    def leads(self) -> bool:
        """True for part of the lease only, so that a leader that cannot renew stops before another begins."""
        return self._clock.monotonic() - self._renewed_at < self._lease_s * 0.6

    def campaign(self) -> bool:
        """Renew the lease, or take it if it is free. Returns: `leads`.

        Raises: BusUnavailable, BusRefused: nothing is known; call again.
        """
        lease, self._lease = self._lease, None
        try:
            self._campaign(lease)
        except PASSING:
            self._renewed_at = -math.inf  # another candidate holds it
        return self.leads

    def resign(self) -> None:
        """Give the lease up, so that another need not wait. Raises: BusUnavailable: it runs out by itself."""
        lease, self._lease, self._renewed_at = self._lease, None, -math.inf
        if lease is not None:
            spec = msgspec.structs.replace(lease.spec, holder_identity="", lease_duration_seconds=1)
            with suppress(*PASSING):
                self._leases.replace(lease, msgspec.structs.replace(lease, spec=spec))

    def _campaign(self, own: Lease | None) -> None:
        """*own* is the lease as this candidate wrote it last, if it did."""
        began = self._clock.monotonic()
        if own is None:
            lease = self._find()
            if not self._may_take(lease):
                return
            own = lease
            if lease.spec.holder_identity != self.identity:
                self.annotations = lease.metadata.annotations
        was = own.spec.holder_identity
        self._lease = self._leases.replace(own, self._taken(own))
        self._renewed_at = began  # before the call: others may have seen it from then on
        if was != self.identity:
            log.info("%s is active now%s", self.identity, f", instead of {was}" if was else "")

    def _find(self) -> Lease:
        namespace, name = self._name
        try:
            return self._leases.get(name, namespace)
        except NotFound:
            empty = Lease(metadata=ObjectMeta(name=name, namespace=namespace), spec=LeaseSpec(holder_identity=""))
            return self._leases.create(empty)

    def _may_take(self, lease: Lease) -> bool:
        holder, now = lease.spec.holder_identity, self._clock.monotonic()
        if lease.metadata.resource_version != self._version:
            self._version, self._seen_at = lease.metadata.resource_version, now
        return not holder or holder == self.identity or now - self._seen_at >= self._lease_s

    def _taken(self, lease: Lease) -> Lease:
        now, spec = self._now(), lease.spec
        is_new = spec.holder_identity != self.identity
        transitions = (spec.lease_transitions or 0) + bool(is_new and spec.acquire_time)
        new = LeaseSpec(
            holder_identity=self.identity,
            lease_duration_seconds=self._lease_s,
            acquire_time=now if is_new else spec.acquire_time,
            renew_time=now,
            lease_transitions=transitions,
        )
        annotations = {**lease.metadata.annotations, **self.annotations}
        metadata = msgspec.structs.replace(lease.metadata, annotations=annotations)
        return msgspec.structs.replace(lease, metadata=metadata, spec=new)
