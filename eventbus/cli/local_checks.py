"""What the doctor looks for on this side: the embedded server's disk, and a package that has the name of ours."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

from eventbus.broker.findings import Finding, error, ok, warning
from eventbus.settings import MIB

#: The embedded server rewrites its file beside the old one: free bytes below which it soon cannot, or cannot already.
DISK_WARNING, DISK_ERROR = 1024 * MIB, 64 * MIB


def check_disk(environ: Mapping[str, str]) -> Finding:
    """Room for the embedded server's file; on another server's disk nobody can look from here."""
    if environ.get("EVENTBUS_REDIS_URL"):
        return ok("disk", "the server's own: not looked at from here")
    from eventbus.broker.embedded import default_directory

    directory = default_directory(environ)
    there = next(path for path in (directory, *directory.parents) if path.exists())
    return judge_disk(directory, shutil.disk_usage(there).free)


def judge_disk(directory: Path, free: int) -> Finding:
    """*free*: bytes."""
    text = f"{free // MIB} MiB free for the embedded server in {directory}"
    cure = "free some space there, or set EVENTBUS_STATE_DIR to another disk"
    if free < DISK_ERROR:
        return error("disk", text, cure)
    return warning("disk", text, cure) if free < DISK_WARNING else ok("disk", text)


def check_workers_package(path: Iterable[str] | None = None) -> Finding:
    """Whether `python -m workers` and `import workers` find ours. *path*: folders, default sys.path."""
    import eventbus

    ours = Path(eventbus.__file__).resolve().parents[1] / "workers"
    found = [place for folder in (sys.path if path is None else path) if (place := _workers_in(folder or os.getcwd()))]
    first = next(iter(found), None)
    if first is None:
        cure = "install eventbus as a whole: the package `workers` is part of it"
        return error("workers package", "there is no package `workers` on the module path", cure)
    if first != ours:
        cure = f"rename it, or take its folder behind {ours.parent} on the module path (PYTHONPATH)"
        return error("workers package", f"{first} hides ours: `eventbus worker …` runs that, or nothing", cure)
    others = sorted({str(place) for place in found if place != ours})
    if others:
        cure = "rename it: where its folder comes first on the module path, `python -m workers` runs that"
        return warning("workers package", f"{', '.join(others)} has the name of ours", cure)
    return ok("workers package", "ours")


def _workers_in(folder: str) -> Path | None:
    """The package or module `workers` in *folder*; a folder without `__init__.py` gives way to any real one."""
    for place in (Path(folder, "workers", "__init__.py"), Path(folder, "workers.py")):
        if place.is_file():
            return (place.parent if place.name == "__init__.py" else place).resolve()
    return None
