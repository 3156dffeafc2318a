"""Facts about this machine: lines and page of `eventbus up`, and the doctor's checks of disk, `up` and spool."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from eventbus.broker.health.findings import Finding, error, failed, ok, warning
from eventbus.errors import ConfigError
from eventbus.settings import MIB

#: Free bytes of a warning and an error: the embedded server needs room to rewrite its file next to the old one.
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


def check_left_lines(environ: Mapping[str, str]) -> Finding:
    """Check that no lines of a killed `eventbus up` are still running."""
    if directory := _up_directory(environ):
        from eventbus.agent.procfile.orphaned_processes import left_lines

        if left := left_lines(directory):
            cure = "eventbus down, or an `eventbus up` there, ends them"
            return warning("lines", f"an `eventbus up` that was killed has left running: {', '.join(left)}", cure)
    return ok("lines", "none was left by an `eventbus up`")


def check_spool(spool: str) -> Finding:
    """Check the spool for folders that cannot be read and folders that wait to be sent."""
    from eventbus.record.spool.journal import State, list_spool

    try:
        folders = list_spool(Path(spool))
    except ConfigError as problem:
        return failed("spool", problem)
    except OSError as problem:
        return error("spool", f"{spool}: {problem.strerror}: nothing is kept on disk", "correct EVENTBUS_SPOOL")
    if bad := [each for each in folders if each.state is State.UNREADABLE]:
        text = "; ".join(f"{each.name}: {each.problem}" for each in bad[:3])
        more = f"; {len(bad) - 3} more" if len(bad) > 3 else ""
        return warning("spool", f"{text}{more}", f"look into {spool}, and remove unusable folders")
    if waiting := sum(each.events for each in folders if each.state is State.WAITING):
        gone = "1 event of a process that is gone waits"
        wait = gone if waiting == 1 else f"{waiting} events of processes that are gone wait"
        return warning("spool", f"{wait} in {spool}", "eventbus spool send")
    return ok("spool", f"{len(folders)} in use in {spool}" if folders else f"nothing waits in {spool}")


def up_lines(namespace: str) -> list[str]:
    """Return the pod names of running lines; *namespace*: "" is any."""
    directory = _up_directory(os.environ)
    if directory is None:
        return []
    from eventbus.agent.procfile.orphaned_processes import running_lines

    return running_lines(directory, namespace)


def up_page(bus: str) -> str:
    """Return the address of the page that an `up` on this machine serves for the bus with that id; "": none."""
    directory = _up_directory(os.environ)
    if directory is None:
        return ""
    from eventbus.agent.procfile.orphaned_processes import page_of

    return page_of(directory, bus)


def _up_directory(environ: Mapping[str, str]) -> Path | None:
    """Return the state directory if an `up` has run there; None spares the imports of its readers."""
    from eventbus.broker.embedded.server import default_directory

    directory = default_directory(environ)
    return directory if any(directory.glob("up*.lock")) else None
