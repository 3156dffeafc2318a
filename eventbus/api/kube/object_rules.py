"""Validates an object before it is stored, by the API server's rules for its kind and for all kinds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from eventbus.api import status
from eventbus.api.kube.config_rules import config_map_causes, secret_causes
from eventbus.api.kube.event_rules import event_causes
from eventbus.api.kube.metadata_rules import (
    changed_causes,
    invalid,
    label_name_causes,
    metadata_causes,
    segment_causes,
    subdomain_causes,
)
from eventbus.api.kube.namespaces import NAMESPACE
from eventbus.api.kube.request_info import Asked
from eventbus.api.status import Cause
from eventbus.model.event import ObjectMeta
from eventbus.model.kinds import CONFIGMAP, EVENTS_V1, LEASE, POD, SECRET
from eventbus.model.objects.cluster import LeaseSpec
from eventbus.model.objects.pod_rules import spec_problems
from eventbus.store.storage import with_metadata
from eventbus.store.writer import generated_name


def check_rules(asked: Asked, new: Any, former: Any = None) -> None:
    """Run the API server's validation. Raises: Refusal: 422, with all causes."""
    causes: list[Cause] = []
    if former is None and new.metadata.generate_name and not new.metadata.name:
        new = with_metadata(new, name=generated_name(new.metadata.generate_name))  # an error names it
    kind, metadata = asked.resource.kind, new.metadata
    if former is not None:  # the rules of each kind repeat those of all kinds, and are reported twice
        causes += [*metadata_causes(metadata), *changed_causes(metadata, former.metadata)]
    if not metadata.name:
        causes.append(Cause("FieldValueRequired", "Required value: name or generateName is required", "metadata.name"))
    if asked.resource.is_events:
        causes += event_causes(new, new_api=kind is EVENTS_V1, former=former)
        if former is None and not causes:  # causes of the kind come first, and exclude the others
            causes += [*segment_causes(metadata), *metadata_causes(metadata)]
    elif former is None:
        causes += label_name_causes(metadata) if kind is NAMESPACE else subdomain_causes(metadata)
        causes += [*metadata_causes(metadata), *_core_causes(asked, metadata)]
    else:
        if asked.resource.group == "" and not asked.subresource:
            causes += [*metadata_causes(metadata), *_core_causes(asked, metadata)]
        causes += [*changed_causes(metadata, former.metadata), *_core_causes(asked, metadata)]
    if kind is LEASE:
        causes += _lease_causes(new.spec)
    elif kind is CONFIGMAP:
        causes += config_map_causes(new, former)
    elif kind is SECRET:
        causes += secret_causes(new, former)
    elif kind is POD and not asked.subresource:
        causes += [Cause(*problem) for problem in spec_problems(new.spec, former and former.spec)]
    if causes:
        raise invalid_object(asked, metadata.name, causes)


def _core_causes(asked: Asked, metadata: ObjectMeta) -> Iterator[Cause]:
    """Require a domain in the finalizers of the core group, except Kubernetes' own."""
    for number, finalizer in enumerate(metadata.finalizers if asked.resource.group == "" else ()):
        if "/" not in finalizer and finalizer not in _FINALIZERS:
            problem = "name is neither a standard finalizer name nor is it fully qualified"
            yield invalid(f"metadata.finalizers[{number}]", finalizer, problem)


_FINALIZERS: Final = frozenset({"kubernetes", "orphan", "foregroundDeletion"})


def _lease_causes(spec: LeaseSpec) -> Iterator[Cause]:
    """List the errors of a lease. Source: `pkg/apis/coordination/validation/validation.go`."""
    duration_s, transitions = spec.lease_duration_seconds, spec.lease_transitions
    if duration_s is not None and duration_s <= 0:
        problem = f"Invalid value: {duration_s}: must be greater than 0"
        yield Cause("FieldValueInvalid", problem, "spec.leaseDurationSeconds")
    if transitions is not None and transitions < 0:
        problem = f"Invalid value: {transitions}: must be greater than or equal to 0"
        yield Cause("FieldValueInvalid", problem, "spec.leaseTransitions")


def invalid_object(asked: Asked, name: str, causes: Sequence[Cause]) -> status.Refusal:
    """Return 422. For events it omits the group, because the API server has one kind for both groups."""
    group = "" if asked.resource.is_events else asked.resource.group
    return status.invalid(asked.resource.kind.name, name, causes, group=group)
