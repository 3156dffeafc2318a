"""Facts derived from a pod: references and names for events, hashes, the QoS class."""

from __future__ import annotations

from hashlib import sha256
from typing import Final

import msgspec

from eventbus.model.event import ObjectReference
from eventbus.model.names import parse_quantity
from eventbus.model.objects.container import Container
from eventbus.model.objects.pod import Pod


def about_pod(pod: Pod) -> ObjectReference:
    """The reference of a whole pod."""
    return about(pod.metadata.namespace, pod.metadata.name, pod.metadata.uid)


def about_container(pod: Pod, name: str) -> ObjectReference:
    """The reference of one of its containers."""
    part = "initContainers" if any(container.name == name for container in pod.spec.init_containers) else "containers"
    metadata = pod.metadata
    return about(metadata.namespace, metadata.name, metadata.uid, f"spec.{part}{{{name}}}")


def about(namespace: str, name: str, uid: str, field_path: str = "") -> ObjectReference:
    """Return the reference of a pod, or of the part of it that *field_path* names."""
    return ObjectReference(
        kind=Pod.kind, namespace=namespace, name=name, uid=uid, api_version=Pod.api_version, field_path=field_path
    )


def pod_name(pod: Pod) -> str:
    """As the kubelet's messages name it: `web-0_shop(uid)`."""
    return f"{pod.metadata.name}_{pod.metadata.namespace}({pod.metadata.uid})"


def container_hash(container: Container) -> str:
    """The hash of all that a container is started from. Hex, 16 digits.

    Source: kubelet `HashContainer`. Departure: there only name and image count since 1.31; here a change of anything
    in a manifest restarts the process, as its author would expect.
    """
    return _hash(msgspec.json.encode(container, order="deterministic"))


def sandbox_hash(pod: Pod) -> str:
    """Return the hash of the fields that all containers of a pod share. Hex, 16 digits."""
    spec = pod.spec
    shared = (spec.security_context, spec.volumes, spec.host_network, spec.hostname)
    return _hash(msgspec.json.encode(shared, order="deterministic"))


def _hash(data: bytes) -> str:
    return sha256(data).hexdigest()[:16]


GUARANTEED, BURSTABLE, BEST_EFFORT = "Guaranteed", "Burstable", "BestEffort"
_COUNTED: Final = ("cpu", "memory")


def qos_class(pod: Pod) -> str:
    """Guaranteed: every container has limits of cpu and memory, which are its requests; BestEffort: none has any."""
    containers = pod.spec.every_container
    guaranteed, any_said = bool(containers), False
    for container in containers:
        limits, requests = container.resources.limits, container.resources.requests
        for name in _COUNTED:
            limit = parse_quantity(limits.get(name, 0)) or 0.0
            request = parse_quantity(requests[name]) if name in requests else limit
            any_said = any_said or limit > 0 or (request or 0.0) > 0
            guaranteed = guaranteed and limit > 0 and request == limit
    if not any_said:
        return BEST_EFFORT
    return GUARANTEED if guaranteed else BURSTABLE
