"""Converts objects to and from JSON as plain dicts, with Go's keys in Go's order; merges JSON patches."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, TypeVar

import msgspec

from eventbus.errors import InvalidObject
from eventbus.model.decodable import decodable
from eventbus.model.encoding.event_json import metadata_to_json, micros_to_json, put_set, seconds_to_json
from eventbus.model.encoding.json_read import as_go_reads
from eventbus.model.frozen import decode_frozen
from eventbus.model.objects.cluster import Lease, Namespace, Node, NodeCondition, NodeSpec, NodeStatus, Taint
from eventbus.model.objects.pod import Pod
from eventbus.model.validation import problem_at

T = TypeVar("T")


def node_to_json(node: Node) -> dict[str, Any]:
    """Return *node* as core/v1 JSON, times as strings."""
    return {
        "kind": Node.kind,
        "apiVersion": Node.api_version,
        "metadata": metadata_to_json(node.metadata),
        "spec": _spec(node.spec),
        "status": _status(node.status),
    }


def lease_to_json(lease: Lease) -> dict[str, Any]:
    """Return *lease* as coordination.k8s.io/v1 JSON, times as strings."""
    spec = lease.spec
    given = {
        "holderIdentity": spec.holder_identity,
        "leaseDurationSeconds": spec.lease_duration_seconds,
        "acquireTime": micros_to_json(spec.acquire_time),
        "renewTime": micros_to_json(spec.renew_time),
        "leaseTransitions": spec.lease_transitions,
    }
    return {
        "kind": Lease.kind,
        "apiVersion": Lease.api_version,
        "metadata": metadata_to_json(lease.metadata),
        "spec": {key: value for key, value in given.items() if value is not None},
    }


def namespace_to_json(namespace: Namespace) -> dict[str, Any]:
    """Return *namespace* as core/v1 JSON."""
    return {
        "kind": Namespace.kind,
        "apiVersion": Namespace.api_version,
        "metadata": metadata_to_json(namespace.metadata),
        "spec": {"finalizers": list(namespace.spec.finalizers)} if namespace.spec.finalizers else {},
        "status": {"phase": namespace.status.phase},
    }


def struct_to_json(struct: msgspec.Struct, *, kind: str, api_version: str) -> dict[str, Any]:
    """Return any other object: kind, apiVersion and metadata, then its fields as msgspec writes them."""
    plain: dict[str, Any] = {"kind": kind, "apiVersion": api_version}
    plain["metadata"] = metadata_to_json(struct.metadata)  # type: ignore[attr-defined]
    rest: dict[str, Any] = msgspec.to_builtins(struct, str_keys=True)
    return plain | {key: value for key, value in rest.items() if key != "metadata"}


def pod_to_json(pod: Pod) -> dict[str, Any]:
    """Return *pod* as core/v1 JSON, times as strings of whole seconds."""
    parts = {"spec": pod.spec, "status": pod.status}
    return {
        "kind": Pod.kind,
        "apiVersion": Pod.api_version,
        "metadata": metadata_to_json(pod.metadata),
        **{name: _in_seconds(msgspec.to_builtins(part, builtin_types=(datetime,))) for name, part in parts.items()},
    }


def _in_seconds(plain: Any) -> Any:
    """*plain* with its times as Go writes a metav1.Time."""
    if isinstance(plain, dict):
        return {key: _in_seconds(value) for key, value in plain.items()}
    if isinstance(plain, list | tuple):
        return [_in_seconds(value) for value in plain]
    return seconds_to_json(plain) if isinstance(plain, datetime) else plain


def struct_from_json(mapping: Mapping[str, Any], shape: type[T], *, kind: str, api_version: str) -> T:
    """Read an object that is already a mapping; null and times as `as_go_reads` has them, unknown keys are dropped.

    kind and apiVersion may be missing but not be others.

    Raises: InvalidObject: a wrong type; the path of the field is in the message.
    """
    if not isinstance(mapping, Mapping):
        raise InvalidObject(f"{kind} is invalid: must be an object, is {type(mapping).__name__}")
    for key, wanted in (("kind", kind), ("apiVersion", api_version)):
        if mapping.get(key) not in (None, "", wanted):
            raise InvalidObject(f"{kind} is invalid: {key}: must be {wanted}, is {ascii(mapping[key])[:80]}")
    try:
        return msgspec.convert(as_go_reads(mapping, shape), decodable(shape), dec_hook=decode_frozen)
    except msgspec.ValidationError as error:
        path, problem = problem_at(error)
        raise InvalidObject(f"{kind} is invalid: {f'{path}: ' if path else ''}{problem}") from None
    except (RecursionError, UnicodeEncodeError):
        raise InvalidObject(f"{kind} is invalid: nested too deeply, or no UTF-8") from None


def _spec(spec: NodeSpec) -> dict[str, Any]:
    plain: dict[str, Any] = {}
    put_set(plain, providerID=spec.provider_id, unschedulable=spec.unschedulable)
    put_set(plain, taints=[_taint(taint) for taint in spec.taints])
    return plain


def _taint(taint: Taint) -> dict[str, Any]:
    plain: dict[str, Any] = {"key": taint.key}
    put_set(plain, value=taint.value)
    plain["effect"] = taint.effect
    put_set(plain, timeAdded=seconds_to_json(taint.time_added))
    return plain


def _status(status: NodeStatus) -> dict[str, Any]:
    plain: dict[str, Any] = {}
    put_set(plain, capacity=dict(sorted(status.capacity.items())))
    put_set(plain, allocatable=dict(sorted(status.allocatable.items())))
    put_set(plain, phase=status.phase)
    put_set(plain, conditions=[_condition(condition) for condition in status.conditions])
    put_set(plain, addresses=[{"type": address.type, "address": address.address} for address in status.addresses])
    plain["daemonEndpoints"] = {"kubeletEndpoint": {"Port": 0}}
    plain["nodeInfo"] = msgspec.to_builtins(status.node_info)
    return plain


def _condition(condition: NodeCondition) -> dict[str, Any]:
    plain: dict[str, Any] = {
        "type": condition.type,
        "status": condition.status,
        "lastHeartbeatTime": seconds_to_json(condition.last_heartbeat_time),
        "lastTransitionTime": seconds_to_json(condition.last_transition_time),
    }
    put_set(plain, reason=condition.reason, message=condition.message)
    return plain


def merge(target: Any, patch: Any) -> Any:
    """Return *target* with *patch* applied: null removes a key, a value that is not a mapping replaces."""
    if not isinstance(patch, Mapping):
        return patch
    merged = dict(target) if isinstance(target, Mapping) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = merge(merged.get(key), value)
    return merged


def difference(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """Return the patch that turns *old* into *new*; {} if they are equal. A null in *new* counts as a missing key."""
    patch: dict[str, Any] = {key: None for key, value in old.items() if value is not None and new.get(key) is None}
    for key, value in new.items():
        former = old.get(key)
        if value is None or value == former:
            continue
        if isinstance(value, Mapping) and isinstance(former, Mapping):
            patch[key] = difference(former, value)
        else:
            patch[key] = value
    return patch
