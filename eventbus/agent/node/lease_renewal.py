"""Renews the lease of a node: one small write each time, without a read."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime
from typing import Protocol

import msgspec

from eventbus.errors import AlreadyExists, Conflict, NotFound
from eventbus.model.event import ObjectMeta
from eventbus.model.objects.cluster import NODE_LEASES, Lease, LeaseSpec
from eventbus.util.clock import Clock
from eventbus.util.log import log


class LeaseObjects(Protocol):
    """The part of a store of leases that a renewal uses."""

    def get(self, name: str, namespace: str = "") -> Lease: ...
    def create(self, found: Lease) -> Lease: ...
    def replace(self, former: Lease, new: Lease) -> Lease: ...
    def delete(self, name: str, namespace: str = "") -> None: ...


class LeaseRenewal:
    """The lease of one node, in kube-node-lease. One thread.

    Args: duration_s: how long the node may be silent before it counts as lost; whole seconds, at least 1.
    """

    def __init__(self, *, leases: LeaseObjects, clock: Clock, name: str, holder: str, duration_s: int) -> None:
        self.renewed = 0
        self._leases = leases
        self._clock = clock
        self._name = name
        self._holder = holder
        self._duration_s = duration_s
        self._lease: Lease | None = None
        self._has_reported_other = False

    def renew(self) -> None:
        """Renew the lease. The first time, and after another process has written it, it is read before.

        Raises: BusUnavailable: call again. BusRefused: this user may not.
                Conflict, AlreadyExists, NotFound: another process writes it at the same time; call again.
        """
        try:
            if self._lease is None:
                self._lease = self._find_or_create()
            else:
                self._lease = self._leases.replace(self._lease, self._renewed(self._lease))
        except BaseException:
            self._lease = None  # after any error the stored lease is unknown
            raise
        self.renewed += 1

    def remove(self) -> None:
        """Remove the lease, if it exists."""
        self._lease = None
        with suppress(NotFound):
            self._leases.delete(self._name, NODE_LEASES)

    def _find_or_create(self) -> Lease:
        try:
            lease = self._leases.get(self._name, NODE_LEASES)
        except NotFound:
            new = Lease(metadata=ObjectMeta(name=self._name, namespace=NODE_LEASES))
            return self._leases.create(self._renewed(new))
        other = lease.spec.holder_identity or ""
        if self.renewed and other not in ("", self._holder) and not self._has_reported_other:
            self._has_reported_other = True  # a process that is started again and again is another holder each time
            log.error(
                "%s renews the lease of node %s, too: end one of the two agents, or give it another --node-name. Each "
                "`eventbus up` has an agent; the line `agent: eventbus worker agent --node-name NAME` replaces it",
                *(other, self._name),
            )
        return self._leases.replace(lease, self._renewed(lease))

    def _renewed(self, lease: Lease) -> Lease:
        now = datetime.fromtimestamp(self._clock.time_ns() / 1e9, UTC)
        spec = LeaseSpec(holder_identity=self._holder, lease_duration_seconds=self._duration_s, renew_time=now)
        return msgspec.structs.replace(lease, spec=spec)


#: Errors that may be gone at the next renewal.
PASSING = (Conflict, AlreadyExists, NotFound)
