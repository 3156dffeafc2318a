"""The desired pods of this machine, for all parts of the agent."""

from __future__ import annotations

import threading

from eventbus.agent.pods.updates import full_name, is_mirror, is_static
from eventbus.model.objects.pod import Pod


class PodManager:
    """Keeps pods by uid and by full name, and mirror pods with the static pods that they show. Thread-safe.

    A running pod that it does not know is not wanted, and is ended.

    Source: kubelet `pod/pod_manager.go`.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pods: dict[str, Pod] = {}
        self._mirrors: dict[str, Pod] = {}  # by full name

    def put(self, pod: Pod) -> None:
        """Add a pod, or a mirror pod, or its newer state."""
        with self._lock:
            if is_mirror(pod):
                self._mirrors[full_name(pod)] = pod
            else:
                self._pods[pod.metadata.uid] = pod

    def remove(self, pod: Pod) -> None:
        """Take out a pod, or a mirror pod; another mirror of that name stays."""
        with self._lock:
            if is_mirror(pod):
                mirror = self._mirrors.get(full_name(pod))
                if mirror is not None and mirror.metadata.uid == pod.metadata.uid:
                    del self._mirrors[full_name(pod)]
            else:
                self._pods.pop(pod.metadata.uid, None)

    def pods(self) -> list[Pod]:
        """Return all pods, without mirrors."""
        with self._lock:
            return list(self._pods.values())

    def mirrors(self) -> list[Pod]:
        """Return all mirror pods, as the store has them."""
        with self._lock:
            return list(self._mirrors.values())

    def by_uid(self, uid: str) -> Pod | None:
        """Return the pod of that uid, never a mirror."""
        with self._lock:
            return self._pods.get(uid)

    def by_full_name(self, name: str) -> Pod | None:
        """Return the newest pod of that name."""
        with self._lock:
            return next((pod for pod in reversed(self._pods.values()) if full_name(pod) == name), None)

    def mirror_of(self, pod: Pod) -> Pod | None:
        """Return the mirror of a static pod, as the store has it; None: it has none, or *pod* is not static."""
        if not is_static(pod):
            return None
        with self._lock:
            return self._mirrors.get(full_name(pod))

    def static_of(self, mirror: Pod) -> Pod | None:
        """Return the static pod that *mirror* shows; None: an orphan, to be taken out of the store."""
        pod = self.by_full_name(full_name(mirror))
        return pod if pod is not None and is_static(pod) else None
