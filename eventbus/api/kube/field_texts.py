"""The descriptions of fields that the API's OpenAPI has, which `kubectl explain` shows."""

from __future__ import annotations

import re
from collections.abc import Mapping
from inspect import cleandoc
from typing import Final

#: A field as docstrings name it: *restart_policy*.
_NAMED: Final = re.compile(r"\*(\w+)\*")

_KIND: Final = "The kind of the object."
_API_VERSION: Final = "The API group and version, as events.k8s.io/v1; the core group has a version alone."
_METADATA: Final = "Name, namespace, labels and the other metadata of every object."

_ABOUT: Final = {"apiVersion": _API_VERSION, "kind": _KIND, "metadata": _METADATA}

_EVENT: Final = {
    **_ABOUT,
    "series": "The count of a repeated event, by recorders of events.k8s.io.",
    "action": "The action that was taken or failed, in CamelCase.",
    "reason": "The reason for the event, in CamelCase for machines; at most 128 bytes.",
    "type": "Normal or Warning.",
    "related": "A second object that the event relates to.",
    "reportingInstance": "The instance of the controller that reports the event, as a host or pod.",
    "eventTime": "The time of the first occurrence, in microseconds; by recorders of events.k8s.io.",
}

#: Type → field → text. Fields that are not here have none.
FIELD_TEXTS: Final[Mapping[str, Mapping[str, str]]] = {
    "Event": {
        **_EVENT,
        "involvedObject": "The object that the event is about.",
        "message": "A description for people.",
        "source": "The component that reports the event, and its host.",
        "firstTimestamp": "The time of the first occurrence.",
        "lastTimestamp": "The time of the last occurrence.",
        "count": "The number of occurrences.",
        "reportingComponent": "The controller that reports the event; by recorders of events.k8s.io.",
    },
    "EventsV1": {
        **_EVENT,
        "regarding": "The object that the event is about.",
        "note": "A description for people.",
        "reportingController": "The controller that reports the event, as example.com/controller.",
        "deprecatedSource": "The component and host that report the event; the field of core/v1.",
        "deprecatedFirstTimestamp": "The time of the first occurrence; the field of core/v1.",
        "deprecatedLastTimestamp": "The time of the last occurrence; the field of core/v1.",
        "deprecatedCount": "The number of occurrences; the field of core/v1.",
    },
    "EventSource": {"component": "The name of the program.", "host": "The host that the program runs on."},
    "EventSeries": {"count": "The number of occurrences.", "lastObservedTime": "The time of the last occurrence."},
    "ObjectReference": {
        "apiVersion": _API_VERSION,
        "kind": "Its kind.",
        "namespace": "Its namespace; empty for cluster-scoped objects.",
        "name": "Its name.",
        "uid": "The unique id of the object.",
        "resourceVersion": "The resource version of the object.",
        "fieldPath": "The part of the object, as spec.containers{web}.",
    },
    "OwnerReference": {
        "apiVersion": "Group and version of the owner.",
        "kind": "The owner's kind.",
        "name": "The owner's name.",
        "uid": "The unique id of the object.",
        "controller": "Whether this owner manages the object; at most one owner does.",
        "blockOwnerDeletion": "Stored unchanged; no deletion waits for it.",
    },
    "ObjectMeta": {
        "name": "The name, unique for the kind and namespace.",
        "generateName": "The prefix of a generated name, for objects created without a name.",
        "namespace": "The namespace; nodes and namespaces have none.",
        "uid": "The unique id, set by the bus.",
        "resourceVersion": "Changes with each write; a write with an older version is refused.",
        "generation": "The number of changes of the spec, for kinds with a spec.",
        "creationTimestamp": "The time of creation, set by the bus.",
        "deletionTimestamp": "The time by which a deletion in progress is to end.",
        "deletionGracePeriodSeconds": "The time from the request to delete until then.",
        "labels": "Keys and values by which objects are selected.",
        "annotations": "Keys and values that tools store with the object; selectors ignore them.",
        "ownerReferences": "The owners of the object.",
        "finalizers": "The steps to finish before the object is deleted.",
        "managedFields": "Always empty: the bus does not record the writer of each field.",
    },
    "Lease": {**_ABOUT, "spec": "The holder and the times of the lease."},
    "LeaseSpec": {
        "holderIdentity": "The holder; empty if the lease is free.",
        "leaseDurationSeconds": "The time after a renewal in which no other holder may acquire the lease.",
        "acquireTime": "The time at which the holder acquired the lease.",
        "renewTime": "The time of the last renewal.",
        "leaseTransitions": "The number of changes of the holder.",
    },
    "Namespace": {**_ABOUT, "spec": "The desired state.", "status": "The current state."},
    "NamespaceSpec": {"finalizers": "Stored unchanged; no deletion waits for them."},
    "NamespaceStatus": {"phase": "Active."},
    "Node": {**_ABOUT, "spec": "The desired state.", "status": "The state that the node reports."},
    "NodeSpec": {
        "providerID": "The cloud provider's name of the machine.",
        "unschedulable": "Whether new pods are kept off the node.",
        "taints": "Marks that keep pods off the node.",
    },
    "Taint": {
        "key": "Its name.",
        "value": "The value of the key.",
        "effect": "NoSchedule, PreferNoSchedule or NoExecute.",
        "timeAdded": "The time at which it was added.",
    },
    "NodeStatus": {
        "capacity": "The machine's resources by name.",
        "allocatable": "The resources that pods may use.",
        "conditions": "The conditions of the node, as Ready.",
        "addresses": "The addresses of the node.",
        "nodeInfo": "The machine and its operating system.",
        "phase": "Not used any more.",
    },
    "NodeCondition": {
        "type": "The condition: Ready, MemoryPressure, DiskPressure, …",
        "status": "True, False or Unknown.",
        "lastHeartbeatTime": "The time of the last report.",
        "lastTransitionTime": "The time of the last change of the status.",
        "reason": "The reason, in CamelCase.",
        "message": "A description for people.",
    },
    "NodeAddress": {"type": "Hostname, InternalIP, ExternalIP, …", "address": "The address itself."},
}


def field_text(owner: str, field: str) -> str:
    """Return the description of a field of the type *owner*, or "" if it has none."""
    return FIELD_TEXTS.get(owner.lstrip("_"), {}).get(field, "")


def described(docstring: str) -> str:
    """Return the first paragraph of a type's docstring in one line, with its fields under their JSON names."""
    text = cleandoc(docstring).partition("\n\n")[0]
    return " ".join(_NAMED.sub(lambda name: _camel(name[1]), text).split())


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.title() for word in rest)
