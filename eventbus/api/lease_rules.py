"""Checks leases by the rules of the API server.

Source: kubernetes `pkg/apis/coordination/validation/validation.go`.
"""

from __future__ import annotations

from collections.abc import Iterator

from eventbus.api.status import Cause
from eventbus.objects.lease import LeaseSpec


def lease_causes(spec: LeaseSpec) -> Iterator[Cause]:
    """List what is wrong with a lease."""
    duration_s, transitions = spec.lease_duration_seconds, spec.lease_transitions
    if duration_s is not None and duration_s <= 0:
        problem = f"Invalid value: {duration_s}: must be greater than 0"
        yield Cause("FieldValueInvalid", problem, "spec.leaseDurationSeconds")
    if transitions is not None and transitions < 0:
        problem = f"Invalid value: {transitions}: must be greater than or equal to 0"
        yield Cause("FieldValueInvalid", problem, "spec.leaseTransitions")


__all__ = ["lease_causes"]
