"""Pods from files: a folder of manifests, read again when it changes, and every 20 s."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from eventbus.agent.config.manifest import MAX_BYTES, read_pods
from eventbus.agent.config.pod_config import PodConfig
from eventbus.agent.pods.updates import Source
from eventbus.errors import ConfigError, EventBusError
from eventbus.model.objects.pod import Pod
from eventbus.util.clock import Clock
from eventbus.util.log import log
from eventbus.util.own_files import check_own_folders, read_own
from eventbus.util.periodic import Periodic

#: Seconds between two reads of all files. Changes of the folder are noticed every second.
READ_EVERY_S: Final = 20.0
LOOK_EVERY_S: Final = 1.0
_SUFFIXES: Final = (".yaml", ".yml", ".json")

#: Called with a manifest that cannot be used: its place, and the reason.
Invalid = Callable[[str, str], object]


class FileSource:
    """Sets the pods of this machine's files.

    An invalid file is reported once for each reason, and its former pods stay. A file that is removed
    takes its pods with it; a folder that cannot be read takes none.

    Args: manifests: a folder; files with other endings or with a dot before their name are ignored.
    """

    def __init__(
        self,
        config: PodConfig,
        *,
        node: str,
        manifests: Path,
        invalid: Invalid,
        clock: Clock,
    ) -> None:
        config.expect(Source.FILE)
        self._config = config
        self._node = node
        self._manifests = manifests
        self._invalid = invalid
        self._clock = clock
        self._pods: dict[Path, list[Pod]] = {}
        self._data: dict[Path, bytes] = {}  # the bytes that each was made of: YAML takes long to read
        self._problems: dict[Path, str] = {}
        self._doubles: set[str] = set()  # the reports about pods of one name
        self._read_stamps: object = None
        self._read_at = -READ_EVERY_S
        self._loop = Periodic(self.look, every_s=LOOK_EVERY_S, name="eventbus-agent-files")

    def start(self) -> None:
        self._loop.start()

    def stop(self, timeout_s: float) -> bool:
        return self._loop.stop(timeout_s)

    def look(self) -> None:
        """Read all files if one has changed, or if the last read was 20 s ago."""
        stamps = list(self._stamps())
        now = self._clock.monotonic()
        if stamps != self._read_stamps or now - self._read_at >= READ_EVERY_S:
            self._read_stamps, self._read_at = stamps, now
            self.read()

    def read(self) -> None:
        """Read everything, and set the pods."""
        paths = self._paths()
        if paths is None:
            return
        for path in paths:
            try:
                self._pods[path] = self._pods_of(path)
                self._problems.pop(path, None)
            except (EventBusError, OSError) as error:
                self._failed(path, str(error))
        for path in self._pods.keys() - set(paths):
            del self._pods[path]
            self._data.pop(path, None)
        self._config.set(Source.FILE, self._without_doubles())

    def _pods_of(self, path: Path) -> list[Pod]:
        data = read_own(path, MAX_BYTES)
        if self._data.get(path) == data and path in self._pods and path not in self._problems:
            return self._pods[path]
        self._data[path] = data
        return read_pods(data, str(path), node=self._node, source=Source.FILE)

    def _paths(self) -> list[Path] | None:
        """Return the files to read; None: the folder cannot be read, or is not ours alone."""
        try:
            check_own_folders(self._manifests)
            names = sorted(os.listdir(self._manifests))
        except (ConfigError, OSError) as error:
            self._failed(self._manifests, str(error))
            return None
        self._problems.pop(self._manifests, None)
        return [self._manifests / name for name in names if name.endswith(_SUFFIXES) and name[0] != "."]

    def _without_doubles(self) -> list[Pod]:
        """Return all pods; of two pods with the same name the first stays, as with the kubelet."""
        pods: dict[tuple[str, str], tuple[Path, Pod]] = {}
        doubles: dict[str, Path] = {}
        for path, pods_of_file in sorted(self._pods.items()):
            for pod in pods_of_file:
                first_path, first = pods.setdefault((pod.metadata.namespace, pod.metadata.name), (path, pod))
                if first is not pod:
                    doubles[f"{path}: a pod named {pod.metadata.name} comes from {first_path} already"] = path
        for problem in doubles.keys() - self._doubles:
            self._report(doubles[problem], problem)
        self._doubles = set(doubles)
        return [pod for _, pod in pods.values()]

    def _failed(self, path: Path, problem: str) -> None:
        if self._problems.get(path) != problem:
            self._problems[path] = problem
            self._report(path, problem)

    def _report(self, path: Path, problem: str) -> None:
        log.error("%s", problem)
        self._invalid(str(path), problem)

    def _stamps(self) -> Iterator[tuple[str, int, int, int]]:
        """Yield the values that change with a file: name, inode, size, time of its change."""
        folder = str(self._manifests)
        try:
            names = sorted(os.listdir(folder))
        except OSError:
            names = []
        for path in [folder, *(f"{folder}/{name}" for name in names)]:
            try:
                status = os.stat(path)
                yield path, status.st_ino, status.st_size, status.st_mtime_ns
            except OSError:
                yield path, 0, 0, 0
