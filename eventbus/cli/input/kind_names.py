"""Resolves typed kinds, as `po`, `pods` or `deployments.apps`. Events know only `Pod` and `Deployment`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec

from eventbus.errors import InvalidEvent
from eventbus.event import ObjectReference
from eventbus.reference import reference_from_text

#: kubectl's short names of what is built in.
_SHORT: Final = {
    "cj": "cronjob",
    "cm": "configmap",
    "crd": "customresourcedefinition",
    "crds": "customresourcedefinition",
    "csr": "certificatesigningrequest",
    "deploy": "deployment",
    "ds": "daemonset",
    "ep": "endpoints",
    "ev": "event",
    "hpa": "horizontalpodautoscaler",
    "ing": "ingress",
    "limits": "limitrange",
    "netpol": "networkpolicy",
    "no": "node",
    "ns": "namespace",
    "pc": "priorityclass",
    "pdb": "poddisruptionbudget",
    "po": "pod",
    "pv": "persistentvolume",
    "pvc": "persistentvolumeclaim",
    "quota": "resourcequota",
    "rc": "replicationcontroller",
    "rs": "replicaset",
    "sa": "serviceaccount",
    "sc": "storageclass",
    "sts": "statefulset",
    "svc": "service",
}


#: How the kinds are spelled that people type in lower case.
_SPELLED: Final = {
    kind.lower(): kind
    for kind in (
        "ConfigMap",
        "CronJob",
        "CustomResourceDefinition",
        "DaemonSet",
        "Deployment",
        "Endpoints",
        "Event",
        "HorizontalPodAutoscaler",
        "Ingress",
        "Job",
        "Lease",
        "LimitRange",
        "Namespace",
        "NetworkPolicy",
        "Node",
        "PersistentVolume",
        "PersistentVolumeClaim",
        "Pod",
        "PodDisruptionBudget",
        "PriorityClass",
        "ReplicaSet",
        "ReplicationController",
        "ResourceQuota",
        "Secret",
        "Service",
        "ServiceAccount",
        "StatefulSet",
        "StorageClass",
    )
}


def known_kinds() -> list[str]:
    """Return the kinds that people type, in lower case."""
    return sorted(_SPELLED)


def recorded_reference(text: str, namespace: str) -> ObjectReference:
    """Return the object that KIND/NAME on a command line means, so that its events count with those of programs.

    kubectl's own words become the kind they stand for (`pod`, `po` and `pods` are `Pod`); any other stays as typed.

    Raises: InvalidEvent: not of the form KIND/NAME.
    """
    reference = reference_from_text(text, namespace)
    for kind in meant_kinds(reference.kind):
        if kind in _SPELLED:
            return msgspec.structs.replace(reference, kind=_SPELLED[kind])
    return reference


def object_from_words(words: tuple[str, ...]) -> ObjectReference:
    """Parse `pod/web-0`, or `pod web-0` as in kubectl; the kind stays as typed.

    Raises: InvalidEvent: neither.
    """
    if len(words) == 1 and "/" not in words[0]:
        raise InvalidEvent("object", f"{words[0]!r} needs its kind: KIND/NAME, like pod/{words[0]}")
    if len(words) > 2:
        raise InvalidEvent("object", f"{' '.join(words)!r} is not of the form KIND/NAME, like pod/web-0")
    return reference_from_text("/".join(words))


def objects_from_words(words: tuple[str, ...]) -> list[ObjectReference]:
    """Parse `node/a node/b`, or `node a b`. Raises: InvalidEvent: neither."""
    if "/" in words[0]:
        return [object_from_words((word,)) for word in words]
    return [object_from_words((words[0], name)) for name in words[1:]] or [object_from_words(words)]


def meant_kinds(typed: str) -> Iterator[str]:
    """Yield the kinds, in lower case, that *typed* may mean, the likeliest first. A group behind a dot is ignored."""
    word = typed.lower()
    yield word
    plain = word.partition(".")[0]
    if plain != word:
        yield plain
    if plain in _SHORT:
        yield _SHORT[plain]
    # English in reverse: policies → policy, ingresses → ingress, pods → pod.
    for ending, singular in (("ies", "y"), ("ses", "s"), ("xes", "x"), ("ches", "ch"), ("s", "")):
        if plain.endswith(ending) and len(plain) > len(ending):
            yield plain.removesuffix(ending) + singular
