"""Mirror pods: copies of static pods in the store, which show the pods of this machine."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import msgspec

from eventbus.agent.pods.pod_manager import PodManager
from eventbus.agent.pods.status_manager import PodObjects
from eventbus.agent.pods.updates import CONFIG_HASH, CONFIG_MIRROR, RUN_BY_UP, full_name
from eventbus.errors import AlreadyExists, Conflict, InvalidObject, NotFound
from eventbus.model.objects.pod import Pod, PodSpec, PodStatus
from eventbus.util.log import log


class Mirrors:
    """Makes, replaces and removes mirror pods. Source: kubelet `pod/mirror_client.go`."""

    def __init__(self, manager: PodManager) -> None:
        self._manager = manager
        self._problems: dict[str, str] = {}  # full name → why it has no mirror
        self._created: dict[str, Pod] = {}  # by full name: as they were made, until the bus reports them

    def ensure(self, pods: PodObjects, static: Pod) -> bool:
        """Make the mirror of *static*, if it is missing or another's. Returns: True: it was made.

        A mirror that the store refuses is logged once; its pod is not shown, but runs.

        Raises: BusUnavailable, BusRefused.
        """
        mirror = self._find(pods, static)
        if mirror is not None and _shows(mirror, static) and mirror.metadata.deletion_timestamp is None:
            return False
        if mirror is not None:
            self.remove(pods, mirror)
        try:
            created = pods.create(mirror_of(static))
        except AlreadyExists:
            return self._take(pods, static)
        except InvalidObject as error:
            self._report(static, str(error))
            return False
        self._problems.pop(full_name(static), None)
        self._put(created)
        return True

    def _find(self, pods: PodObjects, static: Pod) -> Pod | None:
        """Return the mirror of *static*, None: it has none.

        The store is asked about a mirror that was made and that the bus has not reported since: if it was deleted
        before the informer of pods read it, no informer ever reports that.
        """
        held = self._manager.mirror_of(static)
        made = self._created.get(full_name(static))
        if held is None or held is not made:
            self._created.pop(full_name(static), None)
            return held
        with suppress(NotFound):
            if pods.get(held.metadata.name, held.metadata.namespace).metadata.uid == held.metadata.uid:
                return held
        self._manager.remove(held)
        return None

    def _put(self, mirror: Pod) -> None:
        self._created[full_name(mirror)] = mirror
        self._manager.put(mirror)

    def _take(self, pods: PodObjects, static: Pod) -> bool:
        """Use the pod in the store as *static*'s mirror, if it is that. Returns: as `ensure`."""
        with suppress(NotFound):  # gone since
            pod = pods.get(static.metadata.name, static.metadata.namespace)
            if _shows(pod, static):
                self._put(pod)
                return True
            if CONFIG_MIRROR in pod.metadata.annotations:
                self.remove(pods, pod)  # of an earlier manifest; the next sync makes it again
            else:
                self._report(static, "the store has a pod of that name that was not made by this agent")
        return False

    def _report(self, static: Pod, problem: str) -> None:
        if self._problems.get(full_name(static)) != problem:
            self._problems[full_name(static)] = problem
            log.error("pod %s runs, and is not shown in the store: %s", full_name(static), problem)

    def remove(self, pods: PodObjects, mirror: Pod) -> None:
        """Remove *mirror*, if the stored pod has its uid. Raises: BusUnavailable, BusRefused."""
        metadata = mirror.metadata
        self._manager.remove(mirror)
        with suppress(NotFound, Conflict):
            stored = pods.get(metadata.name, metadata.namespace)
            if stored.metadata.uid == metadata.uid:
                pods.delete(metadata.name, metadata.namespace, version=stored.metadata.resource_version)

    def remove_orphans(self, pods: PodObjects) -> None:
        """Take out mirrors of static pods that are no more."""
        for mirror in self._manager.mirrors():
            if self._manager.static_of(mirror) is None:
                self.remove(pods, mirror)


def mirror_of(static: Pod) -> Pod:
    """Return the copy of *static* that lies in the store."""
    annotations: dict[str, Any] = dict(static.metadata.annotations)
    annotations[CONFIG_MIRROR] = annotations.get(CONFIG_HASH, static.metadata.uid)
    metadata = msgspec.structs.replace(
        static.metadata, annotations=annotations, uid="", resource_version="", creation_timestamp=None
    )
    spec = static.spec
    if RUN_BY_UP in metadata.annotations:
        spec = _without_variables(spec)
    return msgspec.structs.replace(static, metadata=metadata, spec=spec, status=PodStatus())


def _without_variables(spec: PodSpec) -> PodSpec:
    """Return *spec*, of a line of `up`, without its variables except PORT.

    It has the whole environment of a person's shell, and a `.env` that may hold passwords.
    """
    containers = tuple(
        msgspec.structs.replace(container, env=tuple(each for each in container.env if each.name == "PORT"))
        for container in spec.containers
    )
    return msgspec.structs.replace(spec, containers=containers)


def _shows(mirror: Pod, static: Pod) -> bool:
    shown = mirror.metadata.annotations.get(CONFIG_MIRROR)
    return shown is not None and shown == static.metadata.annotations.get(CONFIG_HASH, static.metadata.uid)
