"""Looks up pods of this machine, their runs and their logs, in the agent's folder alone."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, Final

from eventbus.agent.logs.log_tail import LOST, LogTail, open_pieces
from eventbus.agent.runtime.contract import ContainerRuntimeStatus, PodRuntimeStatus
from eventbus.agent.runtime.folders import PodFolders
from eventbus.agent.runtime.observed import Observer
from eventbus.util.clock import SystemClock

#: Seconds between two reads of a followed log.
LOOK_EVERY_S = 0.2
#: In an agent's folder: a file with the name of the agent's node.
NODE_NAME: Final = "node"


class LocalPods:
    """Reads the files that an agent keeps in *folder*. The agent need not run."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._folders = folder, PodFolders(folder)
        self._observer = Observer(self._folders, SystemClock())

    def all(self) -> Sequence[PodRuntimeStatus]:
        """Return all pods with any traces."""
        return self._observer.pods()

    def named(self, name: str, namespace: str) -> list[PodRuntimeStatus]:
        """Return the pods of that name, the newest first; a static one may be called without its node's name."""
        pods = [pod for pod in self._observer.pods() if pod.namespace == namespace]
        exact = [pod for pod in pods if pod.name == name]
        meant = exact or [pod for pod in pods if pod.name == f"{name}-{self._node()}"]
        return sorted(meant, key=_begun, reverse=True)

    def open_log(self, pod: PodRuntimeStatus, run: ContainerRuntimeStatus) -> list[BinaryIO]:
        """Open the pieces of a run's log, oldest first; see `open_pieces`."""
        return open_pieces(self._folders.of(pod.uid).log(run.name, run.attempt))

    def follow(self, pod: PodRuntimeStatus, run: ContainerRuntimeStatus, file: BinaryIO | None) -> Iterator[bytes]:
        """Yield the output after the position of the newest piece, until the run has ended; blocks."""
        tail, end = LogTail(self._folders.of(pod.uid).log(run.name, run.attempt), file), b"\n"
        try:
            while True:
                ended = self._has_ended(pod, run)  # before reading, so that its last output is read after it
                data: bytes | None = None
                while data is None or data:
                    data = tail.read()
                    if tail.missed:
                        tail.missed = False
                        yield LOST + b"\n" if end == b"\n" else b"\n" + LOST + b"\n"
                        end = b"\n"
                    if data:
                        yield data
                        end = data[-1:]
                if ended:
                    return
                time.sleep(LOOK_EVERY_S)
        finally:
            tail.close()

    def _node(self) -> str:
        """Return the name of the node of these pods; lines of `eventbus up` have the host's name."""
        from eventbus.agent.node.factory import node_name

        with suppress(OSError):
            return (self._folder / NODE_NAME).read_text()
        return node_name(socket.gethostname())

    def _has_ended(self, pod: PodRuntimeStatus, run: ContainerRuntimeStatus) -> bool:
        status = self._observer.status(pod.uid)
        newest = status.container(run.name) if status is not None else None
        return newest is None or newest.id != run.id or not newest.running


def _begun(pod: PodRuntimeStatus) -> float:
    created = pod.sandbox.created_at if pod.sandbox is not None else None
    return created.timestamp() if created is not None else 0.0
