"""Updates from the sources of pods, and the work they become for a pod's worker: plain values."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from eventbus.model.objects.pod import Pod

#: Where a pod came from, and the content it had there; the kubelet's annotations.
CONFIG_SOURCE = "kubernetes.io/config.source"
CONFIG_HASH = "kubernetes.io/config.hash"
#: On a mirror pod: the hash of the static pod that it shows.
CONFIG_MIRROR = "kubernetes.io/config.mirror"
#: On a pod that no agent runs but an `eventbus up`, and on its mirror: the folder of that `up`.
RUN_BY_UP = "eventbus.dev/run-by-up"


class Source(StrEnum):
    """The three sources of pods. *bus* is the kubelet's `api`."""

    FILE = "file"
    HTTP = "http"
    BUS = "api"


class Op(StrEnum):
    """The kind of an update: a difference to the last list of a source."""

    ADD = "ADD"
    UPDATE = "UPDATE"
    DELETE = "DELETE"
    REMOVE = "REMOVE"
    RECONCILE = "RECONCILE"


class PodUpdate(NamedTuple):
    """Pods of one source, and the kind of their change."""

    op: Op
    pods: tuple[Pod, ...]
    source: Source


class Work(StrEnum):
    """The kind of work that a pod's worker is given."""

    CREATE = "create"
    UPDATE = "update"
    SYNC = "sync"
    KILL = "kill"


def full_name(pod: Pod) -> str:
    """Return `name_namespace`, by which a static pod and its mirror find each other."""
    return f"{pod.metadata.name}_{pod.metadata.namespace}"


def source_of(pod: Pod) -> Source:
    """Return the source of *pod*; without an annotation, the bus."""
    word = pod.metadata.annotations.get(CONFIG_SOURCE, "")
    return next((source for source in Source if source == word), Source.BUS)


def is_mirror(pod: Pod) -> bool:
    """Return True for the copy of a static pod that lies in the store, for people to see."""
    return CONFIG_MIRROR in pod.metadata.annotations


def is_static(pod: Pod) -> bool:
    """Return True if the pod is this machine's own, from a file or a URL."""
    return not is_mirror(pod) and source_of(pod) is not Source.BUS
