"""Looks up pods of this machine, their runs and their logs, in the agent's folder alone."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, Final

from eventbus.agent.runtime.contract import ContainerRuntimeStatus, PodRuntimeStatus
from eventbus.agent.runtime.folders import PodFolders
from eventbus.agent.runtime.observed import Observer
from eventbus.agent.shim.output import CHUNK, MOST_BYTES, MOST_FILES
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


_BLOCK: Final = 65_536
#: A log is rotated within microseconds, ten times a second at the most.
_TRIES: Final = 200
#: The line that replaces missed output.
LOST: Final = b"[part of the output is not shown: it came faster than it was read]"


class LogTail:
    """The bytes of the log at *path*, in their order. Never blocks; one thread uses it.

    Args: file: the newest of `open_pieces`; it is read from its position on. It becomes the tail's.

    *missed* is True after pieces were removed before they were read, also if no data follow. The caller resets it.
    """

    def __init__(self, path: Path, file: BinaryIO | None = None) -> None:
        self.missed = False
        self._path = path
        self._file = file

    def read(self) -> bytes:
        """Return the next output, at most 64 KiB; empty: no output yet."""
        if self._file is None:
            # From the beginning is from the oldest piece: much may have been written before the first look.
            self._file = _opened(self._oldest())
            if self._file is None:
                return b""
        while True:
            if data := self._file.read(_BLOCK):
                return data
            if not self._is_rotated():
                if not os.fstat(self._file.fileno()).st_nlink:
                    self._end_removed()
                return b""
            if data := self._file.read(_BLOCK):  # written before the rotation; it is complete now
                return data
            following = self._following()
            if following is None:
                return b""
            self._file.close()
            self._file = following

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _end_removed(self) -> None:
        """Close the piece of a log that is removed; newer pieces existed if this one has no room for another chunk."""
        assert self._file is not None
        self.missed |= os.fstat(self._file.fileno()).st_size + CHUNK > MOST_BYTES
        self.close()

    def _oldest(self) -> Path:
        return next((piece for piece in reversed(_pieces(self._path)) if piece.exists()), self._path)

    def _is_rotated(self) -> bool:
        assert self._file is not None
        newest = _inode(self._path)
        return newest is not None and newest != os.fstat(self._file.fileno()).st_ino

    def _following(self) -> BinaryIO | None:
        """Open the piece after ours; None: it is being made just now."""
        assert self._file is not None
        own = os.fstat(self._file.fileno()).st_ino
        pieces = _pieces(self._path)
        inodes = [_inode(piece) for piece in pieces]
        if own in inodes:
            place = inodes.index(own) - 1
        else:
            self.missed = True
            place = max(place for place, inode in enumerate(inodes) if inode is not None or place == 0)
        file = _opened(pieces[place]) if place >= 0 else None
        if file is not None and os.fstat(file.fileno()).st_ino != inodes[place]:  # rotated once more in between
            file.close()
            return None
        return file


def open_pieces(path: Path) -> list[BinaryIO]:
    """Open the pieces of the log at *path*, oldest first; a later rotation does not change the open files.

    Returns: files without a buffer, which the caller closes; empty: there is no log.
    """
    for tries_left in reversed(range(_TRIES)):
        files = [_opened(piece) for piece in _pieces(path)]  # newest first: a rotation shows in one that comes again
        opened = [file for file in files if file is not None]
        whole = (
            len({os.fstat(file.fileno()).st_ino for file in opened}) == len(opened) and files[: len(opened)] == opened
        )
        if whole or not tries_left:  # a piece was removed by hand
            break
        for file in opened:
            file.close()
    return opened[::-1]


def _pieces(path: Path) -> list[Path]:
    """Return the paths of all pieces that there may be, newest first."""
    return [path, *(path.with_name(f"{path.name}.{place}") for place in range(1, MOST_FILES))]


def _opened(path: Path) -> BinaryIO | None:
    try:
        return path.open("rb", buffering=0)
    except FileNotFoundError:
        return None


def _inode(path: Path) -> int | None:
    try:
        return path.stat().st_ino
    except OSError:
        return None
