"""References and names of pods and containers, for the events and messages of the runtime."""

from __future__ import annotations

from eventbus.model.event import ObjectReference
from eventbus.model.objects.pod import Pod


def about_pod(pod: Pod) -> ObjectReference:
    """The reference of a whole pod."""
    return about(pod.metadata.namespace, pod.metadata.name, pod.metadata.uid)


def about_container(pod: Pod, name: str) -> ObjectReference:
    """The reference of one of its containers."""
    part = "initContainers" if any(one.name == name for one in pod.spec.init_containers) else "containers"
    found = pod.metadata
    return about(found.namespace, found.name, found.uid, f"spec.{part}{{{name}}}")


def about(namespace: str, name: str, uid: str, field_path: str = "") -> ObjectReference:
    """Return the reference of a pod, or of the part of it that *field_path* names."""
    return ObjectReference(
        kind=Pod.kind, namespace=namespace, name=name, uid=uid, api_version=Pod.api_version, field_path=field_path
    )


def pod_name(pod: Pod) -> str:
    """As the kubelet's messages name it: `web-0_shop(uid)`."""
    return f"{pod.metadata.name}_{pod.metadata.namespace}({pod.metadata.uid})"
