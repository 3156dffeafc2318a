"""The doctor's check of this machine: free space on the embedded server's disk."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

from eventbus.broker.health.findings import Finding, error, ok, warning
from eventbus.settings import MIB

#: The embedded server rewrites its file beside the old one: free bytes below which it soon cannot, or cannot already.
DISK_WARNING, DISK_ERROR = 1024 * MIB, 64 * MIB


def check_disk(environ: Mapping[str, str]) -> Finding:
    """Check that the embedded server's disk has room; another server's disk cannot be seen from here."""
    if environ.get("EVENTBUS_REDIS_URL"):
        return ok("disk", "the server's own: not looked at from here")
    from eventbus.broker.embedded.server import default_directory

    directory = default_directory(environ)
    there = next(path for path in (directory, *directory.parents) if path.exists())
    return judge_disk(directory, shutil.disk_usage(there).free)


def judge_disk(directory: Path, free: int) -> Finding:
    """Judge *free*, bytes."""
    text = f"{free // MIB} MiB free for the embedded server in {directory}"
    cure = "free some space there, or set EVENTBUS_STATE_DIR to another disk"
    if free < DISK_ERROR:
        return error("disk", text, cure)
    return warning("disk", text, cure) if free < DISK_WARNING else ok("disk", text)
