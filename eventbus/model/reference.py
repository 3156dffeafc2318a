"""Converts a caller's object to an ObjectReference, and makes an event's name from the object's.

Recorders, commands, the API and the web page all use this module to parse objects.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import Any, Final

import msgspec

from eventbus.errors import InvalidEvent
from eventbus.model.event import ObjectReference
from eventbus.model.names import MAX_SUBDOMAIN, is_dns_label, is_dns_subdomain
from eventbus.model.validation import MAX_KIND, MAX_NAME
from eventbus.util.text import byte_length, printable, shortened

_FIELD: Final = "involvedObject"

#: Field of ObjectReference → the other spelling of its key.
_CAMEL: Final = {
    "kind": "kind",
    "namespace": "namespace",
    "name": "name",
    "uid": "uid",
    "api_version": "apiVersion",
    "resource_version": "resourceVersion",
    "field_path": "fieldPath",
}
_KEYS: Final = frozenset(_CAMEL) | frozenset(_CAMEL.values())
_FROM_OBJECT: Final = ("kind", "api_version")
_FROM_METADATA: Final = ("namespace", "name", "uid", "resource_version")

_KIND: Final = re.compile(r"[A-Za-z0-9](?:[-A-Za-z0-9_.]*[A-Za-z0-9])?")

#: kubectl's short names of built-in kinds.
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

#: Cluster-scoped kinds of Kubernetes, in lower case.
_CLUSTER_SCOPED: Final = frozenset(
    {
        "apiservice",
        "certificatesigningrequest",
        "clusterrole",
        "clusterrolebinding",
        "componentstatus",
        "csidriver",
        "csinode",
        "customresourcedefinition",
        "flowschema",
        "ingressclass",
        "mutatingwebhookconfiguration",
        "namespace",
        "node",
        "persistentvolume",
        "prioritylevelconfiguration",
        "priorityclass",
        "runtimeclass",
        "storageclass",
        "validatingwebhookconfiguration",
        "volumeattachment",
    }
)

#: Where an object is that is written without its namespace, and is in one.
DEFAULT_NAMESPACE: Final = "default"

_FORMS: Final = "KIND/NAME, like Pod/web-0, or NAMESPACE/KIND/NAME, like shop/Pod/web-0"
_WAYS_OUT: Final = (
    "pass an ObjectReference, KIND/NAME, a mapping with kind and name, an object's manifest, "
    "or an object with the attributes kind and metadata"
)

_Get = Callable[[str], Any]


def reference_to(obj: object, namespace: str = DEFAULT_NAMESPACE) -> ObjectReference:
    """Return the reference that names *obj*, in *namespace* if *obj* does not say which.

    A string is `Order/7` or `shop/Order/7`; kubectl's words are spelled as kinds are: `pod`, `po` and `pods` are `Pod`.
    A mapping is either a reference itself (kind, name, namespace, uid, apiVersion, resourceVersion, fieldPath) or a
    manifest (kind, apiVersion, metadata). Of anything else but an ObjectReference the attributes kind, apiVersion and
    metadata are read; metadata has attributes or is a mapping. Keys and attributes may be camelCase or snake_case; None
    and absent mean empty.

    An object without a namespace stays without one if its kind is cluster-scoped in Kubernetes, like Node, or if it has
    a uid, because then a server has stored it without one. `validation.validate_recorded` checks that the kind and the
    name are set.

    Raises:   InvalidEvent: *obj* is None, has none of these shapes, is a string of another form, or has an unknown key
              or a value that is not a string.
    Source:   client-go tools/reference. Departures: there is no scheme, so an object without kind gives none; and
              *namespace*, which client-go's callers set themselves.
    """
    if isinstance(obj, ObjectReference):
        return obj if obj.namespace else _placed(obj, namespace)
    if obj is None:
        raise InvalidEvent(_FIELD, "can't reference a nil object")
    if isinstance(obj, str):
        return _from_string(obj, namespace)
    if isinstance(obj, Mapping):
        reference = _from_manifest(obj.get, obj["metadata"]) if "metadata" in obj else _from_keys(obj)
    elif isinstance(obj, bytes) or not (hasattr(obj, "kind") and hasattr(obj, "metadata")):
        raise InvalidEvent(_FIELD, f"can't reference a {type(obj).__name__}; {_WAYS_OUT}")
    else:
        reference = _from_manifest(_attributes_of(obj), getattr(obj, "metadata", None))
    return reference if reference.namespace else _placed(reference, namespace)


def reference_from_text(text: str) -> ObjectReference:
    """Parse KIND/NAME or NAMESPACE/KIND/NAME, typed by a user, for a search.

    The kind is kept as typed, for `meant_kinds`; the namespace is empty if it was not typed.

    Raises:   InvalidEvent: wrong number of slashes, an empty or too long part, or invalid characters; the message is
              for the user.
    """
    first, *others = text.split("/")
    if len(others) not in (1, 2):
        more = "; a name with a slash in it is given apart from its kind" if len(others) > 2 else ""
        raise InvalidEvent("object", f"{shortened(text)} is not of the form {_FORMS}{more}")
    namespace = first if len(others) == 2 else ""
    kind, name = (first, *others)[-2:]
    if not (kind and name) or (len(others) == 2 and not namespace):
        raise InvalidEvent("object", f"{shortened(text)} is not of the form {_FORMS}")
    return named_reference(kind, name, namespace)


def named_reference(kind: str, name: str, namespace: str = "") -> ObjectReference:
    """Return the reference of these parts, the kind as typed. Raises: InvalidEvent: as `reference_from_text`."""
    if _KIND.fullmatch(kind) is None or len(kind) > MAX_KIND:
        problem = f"{shortened(kind)} is not a kind (at most {MAX_KIND} letters, digits, '-', '_', '.')"
        raise InvalidEvent("kind", problem)
    if not name:
        raise InvalidEvent("name", f"is empty; the form is {_FORMS}")
    if name != name.strip() or name != printable(name):
        raise InvalidEvent("name", f"{shortened(name)} has white space around it or control characters in it")
    if byte_length(name) > MAX_NAME:
        raise InvalidEvent("name", f"{shortened(name)} has more than {MAX_NAME} bytes")
    if namespace and not is_dns_label(namespace):
        raise InvalidEvent("namespace", f"{shortened(namespace)} is not a DNS label (a-z, 0-9, '-', at most 63)")
    return ObjectReference(kind=kind, namespace=namespace, name=name)


def spelled_kind(typed: str) -> str:
    """Return *typed* as its kind is spelled: `pod`, `po`, `pods` and `deployments.apps` are kubectl's words for kinds.

    Any other stays as it is, and so does a word like `No`: a short name or plural is all lower case.
    """
    known = _SPELLED.get(typed.lower())
    if known is None and typed.islower():
        known = next((_SPELLED[kind] for kind in meant_kinds(typed) if kind in _SPELLED), None)
    return known or typed


def is_cluster_scoped(kind: str) -> bool:
    """Return True if objects of *kind*, in any case, are in no namespace in Kubernetes."""
    return kind.lower() in _CLUSTER_SCOPED


def known_kinds() -> list[str]:
    """Return the kinds that people type, in lower case."""
    return sorted(_SPELLED)


def meant_kinds(typed: str) -> Iterator[str]:
    """Yield the kinds, in lower case, that *typed* may mean, the likeliest first. A group after a dot is ignored."""
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


def event_name(object_name: str, time_ns: int) -> str:
    """Return `<object_name>.<time_ns in hex>`, or a random UUID where that is not a DNS-1123 subdomain.

    Args:     time_ns: nanoseconds since 1970.
    Source:   client-go tools/record makeEvent (since v0.33).
    """
    name = f"{object_name}.{time_ns:x}"
    if len(name) <= MAX_SUBDOMAIN and time_ns >= 0 and _begins_subdomain(object_name):
        return name
    from uuid import uuid4  # rarely needed, and a tenth of this package's import time

    return str(uuid4())


@lru_cache(maxsize=4096)
def _from_string(text: str, namespace: str) -> ObjectReference:
    typed = reference_from_text(text)
    reference = msgspec.structs.replace(typed, kind=spelled_kind(typed.kind))
    if reference.namespace:
        return reference
    if namespace and not is_dns_label(namespace):
        raise InvalidEvent("namespace", f"{shortened(namespace)} is not a DNS label (a-z, 0-9, '-', at most 63)")
    return _placed(reference, namespace)


def _placed(reference: ObjectReference, namespace: str) -> ObjectReference:
    """Return *reference* with *namespace*, unless it has a uid or no name, or its kind is cluster-scoped."""
    if reference.uid or not reference.name or is_cluster_scoped(reference.kind):
        return reference
    return msgspec.structs.replace(reference, namespace=namespace)


# A recorder names few objects many times.
_begins_subdomain = lru_cache(maxsize=4096)(is_dns_subdomain)


def _from_manifest(read: _Get, metadata: object) -> ObjectReference:
    if metadata is None:
        raise InvalidEvent(_FIELD, f"has no metadata; {_WAYS_OUT}")
    read_metadata: _Get = metadata.get if isinstance(metadata, Mapping) else _attributes_of(metadata)
    values = {field: _value(read, field) for field in _FROM_OBJECT}
    values |= {field: _value(read_metadata, field) for field in _FROM_METADATA}
    return ObjectReference(**values)


def _from_keys(mapping: Mapping[Any, Any]) -> ObjectReference:
    unknown = [key for key in mapping if key not in _KEYS]
    if unknown:
        known = ", ".join(_CAMEL.values())
        raise InvalidEvent(_FIELD, f"has the unknown key {shortened(unknown[0])}; a reference has {known}")
    if not mapping:
        raise InvalidEvent(_FIELD, f"is an empty mapping; {_WAYS_OUT}")
    return ObjectReference(**{field: _value(mapping.get, field) for field in _CAMEL})


def _value(read: _Get, field: str) -> str:
    value = read(_CAMEL[field])
    if value is None:
        value = read(field)
    if value is None:
        return ""
    if not isinstance(value, str):
        problem = f"must be a string, is {type(value).__name__}"
        raise InvalidEvent(f"{_FIELD}.{_CAMEL[field]}", problem)
    # A member of a string enum becomes its plain value.
    return value if type(value) is str else str.__str__(value)


def _attributes_of(obj: object) -> _Get:
    return lambda name: getattr(obj, name, None)
