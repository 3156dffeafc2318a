"""A disk of a few kilobytes that a test may fill: a tmpfs in a mount namespace of its own."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

_BLOCK = 4096


@contextmanager
def small_disk(folder: Path, *, size_kib: int) -> Iterator[Path]:
    """Yield the path by which this process sees the disk, until the block ends. Skips where there is no namespace."""
    if not shutil.which("unshare"):
        pytest.skip("there is no unshare")
    disk = folder / "disk"
    disk.mkdir()
    # The namespace lives as long as its `cat`, which ends with our end of the pipe, however we end.
    mount = f"mount -t tmpfs -o size={size_kib}k,mode=700 tmpfs '{disk}' && echo mounted && exec cat"
    with subprocess.Popen(
        ["unshare", "--map-root-user", "--mount", "sh", "-c", mount], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdin is not None
        assert holder.stdout is not None
        if holder.stdout.readline() != b"mounted\n":
            pytest.skip("a user may make no mount namespace here")
        yield Path(f"/proc/{holder.pid}/root{disk}")
        holder.stdin.close()


def fill(disk: Path) -> Path:
    """Write to a file of *disk* until not a byte more can be written. Returns: the file; without it there is room."""
    filler = disk / "filler"
    with filler.open("wb", buffering=0) as file:
        for size in (_BLOCK, 1):
            with suppress(OSError):
                while True:
                    file.write(b"x" * size)
    return filler
