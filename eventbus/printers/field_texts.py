"""The descriptions of fields that the API's OpenAPI has, which `kubectl explain` shows."""

from __future__ import annotations

import re
from collections.abc import Mapping
from inspect import cleandoc
from typing import Final

#: A field as docstrings name it: *restart_policy*.
_NAMED: Final = re.compile(r"\*(\w+)\*")

_KIND: Final = "The sort of object this is."
_API_VERSION: Final = "Group and version of the shape that this has, as events.k8s.io/v1; of core the version alone."
_METADATA: Final = "Name, namespace, labels, and what the bus notes of every object."

_ABOUT: Final = {"apiVersion": _API_VERSION, "kind": _KIND, "metadata": _METADATA}

_EVENT: Final = {
    **_ABOUT,
    "series": "How a repeated event is counted by recorders of events.k8s.io.",
    "action": "What was done, or tried, in one word of CamelCase.",
    "reason": "Why it is told, in one word of CamelCase for machines; at most 128 bytes.",
    "type": "Normal or Warning.",
    "related": "A second object that has to do with it.",
    "reportingInstance": "Which of several that run speaks, as a host or pod.",
    "eventTime": "When it happened first, to the microsecond; of recorders of events.k8s.io.",
}

#: Type → field → text. Fields that are not here have none.
FIELD_TEXTS: Final[Mapping[str, Mapping[str, str]]] = {
    "Event": {
        **_EVENT,
        "involvedObject": "The object that it happened to.",
        "message": "The same for people.",
        "source": "Who says it: a component, and its host.",
        "firstTimestamp": "When it happened first.",
        "lastTimestamp": "When it happened last.",
        "count": "How often it has happened.",
        "reportingComponent": "Who says it, as example.com/controller; of recorders of events.k8s.io.",
    },
    "EventsV1": {
        **_EVENT,
        "regarding": "The object that it happened to.",
        "note": "The same for people.",
        "reportingController": "Who says it, as example.com/controller.",
        "deprecatedSource": "Who says it, as core/v1 has it: a component, and its host.",
        "deprecatedFirstTimestamp": "When it happened first, as core/v1 has it.",
        "deprecatedLastTimestamp": "When it happened last, as core/v1 has it.",
        "deprecatedCount": "How often it has happened, as core/v1 has it.",
    },
    "EventSource": {"component": "The program that speaks.", "host": "The machine it runs on."},
    "EventSeries": {"count": "How often it has happened.", "lastObservedTime": "When it happened last."},
    "ObjectReference": {
        "apiVersion": _API_VERSION,
        "kind": "Its kind.",
        "namespace": "Its namespace; empty: it lies in none.",
        "name": "Its name.",
        "uid": "Which of all that ever had the name.",
        "resourceVersion": "The version of it that is meant.",
        "fieldPath": "The part of it that is meant, as spec.containers{web}.",
    },
    "OwnerReference": {
        "apiVersion": "Group and version of the owner.",
        "kind": "The owner's kind.",
        "name": "The owner's name.",
        "uid": "Which of all that ever had the name.",
        "controller": "Whether that owner manages this object; one at the most does.",
        "blockOwnerDeletion": "Kept as it comes; nothing here waits for it.",
    },
    "ObjectMeta": {
        "name": "Its name; no other object of the kind and namespace has it.",
        "generateName": "How a name begins that is made when the object is; where no name is given.",
        "namespace": "The namespace that it lies in; nodes and namespaces lie in none.",
        "uid": "Which of all that ever had the name; given by the bus.",
        "resourceVersion": "Changes with each write; a write that names another than the newest is refused.",
        "generation": "How often the spec was changed; of kinds that have one.",
        "creationTimestamp": "When it was made; given by the bus.",
        "deletionTimestamp": "When it is to be gone; set by a delete that something still has to end.",
        "deletionGracePeriodSeconds": "How long it has from the delete until then.",
        "labels": "Short words by which objects are selected.",
        "annotations": "Any text that tools keep with an object; nothing selects by it.",
        "ownerReferences": "The objects that it belongs to.",
        "finalizers": "What has to be done before it goes, as who has to do it names it.",
        "managedFields": "Always empty: nobody here keeps who wrote which field.",
    },
    "Lease": {**_ABOUT, "spec": "Who holds it, and since when."},
    "LeaseSpec": {
        "holderIdentity": "Who holds it; empty: nobody.",
        "leaseDurationSeconds": "How long after a renewal others leave it alone.",
        "acquireTime": "When its holder got it.",
        "renewTime": "When its holder renewed it last.",
        "leaseTransitions": "How often it has changed hands.",
    },
    "Namespace": {**_ABOUT, "spec": "What is wanted of it.", "status": "What it is."},
    "NamespaceSpec": {"finalizers": "Kept as they come; nobody here waits for them."},
    "NamespaceStatus": {"phase": "Active."},
    "Node": {**_ABOUT, "spec": "What is wanted of it.", "status": "What it reports of itself."},
    "NodeSpec": {
        "providerID": "What who lends the machine calls it.",
        "unschedulable": "Whether nothing new is to be put on it.",
        "taints": "What keeps work away from it.",
    },
    "Taint": {
        "key": "Its name.",
        "value": "What goes with the name.",
        "effect": "NoSchedule, PreferNoSchedule or NoExecute.",
        "timeAdded": "When it was set.",
    },
    "NodeStatus": {
        "capacity": "What the machine has, by the name of the resource.",
        "allocatable": "What of that is left for work.",
        "conditions": "What is well with it, and what is not.",
        "addresses": "By which it is reached.",
        "nodeInfo": "Its machine and system.",
        "phase": "Not used any more.",
    },
    "NodeCondition": {
        "type": "What it is about: Ready, MemoryPressure, DiskPressure, …",
        "status": "True, False or Unknown.",
        "lastHeartbeatTime": "When that was said last.",
        "lastTransitionTime": "When the status became this.",
        "reason": "Why, in one word of CamelCase.",
        "message": "The same for people.",
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
