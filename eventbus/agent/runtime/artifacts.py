"""Provides a container's programs: those of this machine, or an archive that is unpacked into a cache.

An image is "" or `local` (the machine's own programs), or `file:/path/app.tar.gz@sha256:…`. An archive is unpacked once
into `<state_dir>/artifacts/<sha256>`, for all containers with that image, and removed when unused for ten minutes.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import tarfile
import tempfile
import threading
import time
import zipfile
from collections.abc import Callable, Collection
from pathlib import Path
from typing import IO, Final, NamedTuple

from eventbus.agent.runtime.contract import (
    ERR_IMAGE_NEVER_PULL,
    ERR_IMAGE_PULL,
    INVALID_IMAGE_NAME,
    RuntimeProblem,
)
from eventbus.agent.runtime.folders import make_folder, remove_tree
from eventbus.model.objects.container import Container
from eventbus.util.log import log

LOCAL: Final = ("", "local")
_ARCHIVE: Final = re.compile(r"file:(?://)?(?P<path>/[^@]+)@sha256:(?P<digest>[0-9a-f]{64})")
_CHUNK: Final = 1024 * 1024
#: The end of the name of an unpacked archive that is being removed.
_GONE: Final = "-gone"
#: The time that an unused unpacked archive is kept, seconds. Its file is on this machine and can be unpacked again.
UNUSED_S: Final = 600.0
#: imagePullPolicy. By default, an archive is unpacked if its digest is not in the cache.
NEVER, ALWAYS = "Never", "Always"


class ArtifactProblem(RuntimeProblem):
    """An artifact is not to be had. *reason* is that of the waiting state."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class Archive(NamedTuple):
    """A file and the expected hash of its bytes."""

    path: Path
    digest: str


class Artifacts:
    """The cache of unpacked archives. Any thread; an archive is unpacked by one thread at a time."""

    def __init__(self, state_dir: Path) -> None:
        self._root = state_dir / "artifacts"
        self._lock = threading.Lock()
        self._busy: dict[str, threading.Lock] = {}
        # Of folders that this agent makes or removes now. Not its pid: in a container each agent has the same.
        self._mark = os.urandom(8).hex()

    def archive_of(self, container: Container) -> Archive | None:
        """Return the archive that *container* is unpacked from, if any. Raises: ArtifactProblem: no such image."""
        if container.image in LOCAL:
            return None
        match = _ARCHIVE.fullmatch(container.image)
        if match is None:
            raise ArtifactProblem(
                INVALID_IMAGE_NAME,
                f'Failed to apply default image tag "{container.image}": there is no registry here; leave image out, '
                "or give file:/path/app.tar.gz@sha256:DIGEST",
            )
        return Archive(Path(match["path"]), match["digest"])

    def folder(self, archive: Archive) -> Path:
        """Return the folder of *archive*, once it is unpacked."""
        return self._root / archive.digest

    def ensure(self, container: Container, pulling: Callable[[], object]) -> bool:
        """Provide the image of *container*. Returns: whether it had to be unpacked; *pulling* was called then.

        Blocks while it is unpacked. Raises: ArtifactProblem.
        """
        archive = self.archive_of(container)
        if archive is None:
            return False
        with self._lock:
            busy = self._busy.setdefault(archive.digest, threading.Lock())
        with busy:
            present = self.folder(archive).is_dir()
            if container.image_pull_policy == NEVER and not present:
                raise ArtifactProblem(
                    ERR_IMAGE_NEVER_PULL,
                    f'Container image "{container.image}" is not present with pull policy of Never',
                )
            if present:
                os.utime(self.folder(archive))  # it is used before its run is recorded: see `collect`
            if present and container.image_pull_policy != ALWAYS:
                return False
            pulling()
            self._unpack(archive, present=present)
            return True

    def collect(self, images: Collection[str]) -> None:
        """Remove archives that no container of *images* has used for UNUSED_S, and half unpacked ones of a dead agent.

        *images* are the images of all runs. The time of last use is the mtime of the archive's folder.
        """
        used = {match["digest"] for image in images if (match := _ARCHIVE.fullmatch(image))}
        for path in sorted(self._root.glob("*")):
            try:
                if path.name.startswith("."):
                    if self._mark not in path.name or path.name.endswith(_GONE):
                        remove_tree(path)
                elif path.name in used:
                    os.utime(path)
                else:
                    self._remove_unused(path)
            except OSError as error:
                log.info("the leftovers of %s stay for now: %s", path, error)

    def _remove_unused(self, path: Path) -> None:
        with self._lock:
            busy = self._busy.setdefault(path.name, threading.Lock())
        with busy:
            if time.time() - path.stat().st_mtime < UNUSED_S:
                return
            # Renamed first: half of an archive must not look like a whole one.
            gone = path.with_name(f".{path.name}-{self._mark}{_GONE}")
            path.rename(gone)
        log.info("artifact %s is removed: no pod has used it for %g s", path.name, UNUSED_S)
        remove_tree(gone)

    def _unpack(self, archive: Archive, *, present: bool) -> None:
        try:
            make_folder(self._root)
            # A copy without a name is unpacked: it cannot be replaced or changed after its digest is checked.
            with tempfile.TemporaryFile(dir=self._root) as copy:
                if (digest := _copy(archive.path, copy)) != archive.digest:
                    raise ArtifactProblem(
                        ERR_IMAGE_PULL, f"{archive.path} has the digest sha256:{digest}, not the one asked for"
                    )
                if present:
                    return
                folder = self._root / f".{archive.digest}-{self._mark}"
                try:
                    _extract(copy, folder)
                    os.utime(folder)  # an archive may set its top folder's time, too
                    os.rename(folder, self.folder(archive))
                finally:
                    shutil.rmtree(folder, ignore_errors=True)
        except (OSError, tarfile.TarError, zipfile.BadZipFile) as error:
            why = error.strerror if isinstance(error, OSError) and error.strerror else error
            raise ArtifactProblem(ERR_IMAGE_PULL, f"cannot unpack {archive.path}: {why}") from None


def _copy(path: Path, to: IO[bytes]) -> str:
    """Copy the file *path*. Returns: the digest of the copy."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
            to.write(chunk)
    return digest.hexdigest()


def _extract(file: IO[bytes], folder: Path) -> None:
    """Unpack a tar or zip archive. Entries that lead out of *folder* are refused."""
    folder.mkdir(mode=0o755)  # the folder above decides about access
    is_zip = zipfile.is_zipfile(file)
    file.seek(0)
    if is_zip:
        with zipfile.ZipFile(file) as archive:
            for member in archive.infolist():
                extracted = Path(archive.extract(member, folder))
                if mode := member.external_attr >> 16 & 0o777:
                    extracted.chmod(mode)
        return
    with tarfile.open(fileobj=file) as archive:
        archive.extractall(folder, filter="data")
