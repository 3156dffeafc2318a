"""Lines of an `eventbus up`, as others see them; those of one that was killed go on until the next one, or `down`."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from eventbus.agent.logs import LocalPods
from eventbus.agent.pods.updates import CONFIG_MIRROR, RUN_BY_UP
from eventbus.client.store import RemoteStore
from eventbus.errors import NotFound
from eventbus.model.decodable import decodable
from eventbus.model.event import ObjectReference
from eventbus.model.kinds import POD
from eventbus.model.list_watch import ListOptions, list_all
from eventbus.store.object_store import ObjectStore

if TYPE_CHECKING:
    from eventbus.agent.runtime.process_runtime import ProcessRuntime

#: Below the state folder: where the lines of an `up` are; those of a second one, for another bus, in `up-2`, ….
LINES: Final = "up"
#: In the folder of an `up`: the address of its page, which its API worker writes.
PAGE_FILE: Final = "page.json"
#: The time that they get to end, seconds.
GRACE_S: Final = 5.0


def line_folders(directory: Path) -> list[Path]:
    """Return the folders of lines in the state folder *directory*."""
    folders = (path.with_suffix("") for path in directory.glob(f"{LINES}*.lock"))
    return sorted(path for path in folders if path.is_dir() and path.name.removeprefix(LINES)[:1] in ("", "-"))


def running_lines(directory: Path, namespace: str) -> list[str]:
    """Return the names of the pods of lines that run; *namespace*: "" is any."""
    pods = [pod for folder in line_folders(directory) for pod in LocalPods(folder.absolute()).all() if pod.active]
    return sorted(pod.name for pod in pods if namespace in ("", pod.namespace))


def run_by(folder: Path) -> str:
    """Return the value of the annotation `RUN_BY_UP` on the mirrors of an `up` with that folder."""
    return f"{os.uname().nodename}:{folder.absolute()}"


def remove_mirrors(store: ObjectStore | RemoteStore, folder: Path, *, but: Collection[str] = ()) -> None:
    """Take out the mirrors of an `up` with that folder, except those of pods with the uids *but*.

    Raises: BusUnavailable, BusRefused.
    """
    pods, mark = store.objects(POD), run_by(folder)
    for pod in list_all(pods, ListOptions())[0].items:
        annotations = pod.metadata.annotations
        mirrored = annotations.get(CONFIG_MIRROR)
        if annotations.get(RUN_BY_UP) == mark and mirrored is not None and mirrored not in but:
            with suppress(NotFound):
                pods.delete(pod.metadata.name, pod.metadata.namespace)


class Page(msgspec.Struct, frozen=True):
    """The address of a page, and the id of the bus that it shows."""

    bus: str
    page: str


def write_page(path: Path, page: Page) -> None:
    """Write the address of a page atomically: a reader finds all of it, or nothing. Raises: OSError."""
    new = path.with_name(f".{path.name}.{os.getpid()}")
    new.write_bytes(msgspec.json.encode(page))
    new.replace(path)


def read_page(path: Path) -> Page | None:
    """Return the page that `write_page` wrote; None: there is none yet."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=decodable(Page))
    except (OSError, msgspec.DecodeError):
        return None


def page_of(directory: Path, bus: str) -> str:
    """Return the address of the page that an `up` in *directory* serves of the bus with that id; "": there is none."""
    for folder in line_folders(directory):
        page = read_page(folder / PAGE_FILE)
        if page is not None and page.bus == bus:
            with _claimed(folder) as is_ours:
                if not is_ours:  # else it was killed, and its API worker has ended with it
                    return page.page
    return ""


def left_lines(directory: Path) -> list[str]:
    """Return the names of the pods that run, though no `up` in *directory* has them."""
    return [name for folder in line_folders(directory) for name in _left_in(folder)]


def end_left_lines(directory: Path) -> list[str]:
    """End them: SIGTERM, after five seconds SIGKILL. Returns: their names. Raises: RuntimeProblem: one does not end."""
    from eventbus.agent.pods.store_handle import StoreHandle
    from eventbus.agent.runtime.isolation import Isolation
    from eventbus.agent.runtime.process_runtime import ProcessRuntime
    from eventbus.util.clock import SystemClock

    ended = []
    for folder in line_folders(directory):
        if not _left_in(folder):
            continue
        with _claimed(folder) as is_ours:
            if not is_ours:
                continue
            runtime = ProcessRuntime(
                state_dir=folder, events=_Nobody(), configs=StoreHandle(), clock=SystemClock(), isolation=Isolation()
            )
            ended += end_pods(runtime)
            runtime.close()
    return ended


def end_pods(runtime: ProcessRuntime) -> list[str]:
    """End all pods of *runtime*, SIGTERM first, and remove them. Returns: the names of those that ran."""
    names = []
    for pod in runtime.pods():
        if pod.active:
            names.append(pod.name)
        runtime.kill_pod(pod.uid, None, GRACE_S)
        runtime.remove(pod.uid)
    return sorted(names)


class _Nobody:
    """Drops events, because there is no bus any more."""

    def event(self, about: ObjectReference, type: str, reason: str, message: str) -> None:
        pass


def _left_in(folder: Path) -> list[str]:
    with _claimed(folder) as is_ours:
        return sorted(pod.name for pod in LocalPods(folder.absolute()).all() if pod.active) if is_ours else []


@contextmanager
def _claimed(folder: Path) -> Iterator[bool]:
    """Hold the lock of *folder* for the time of the block. Yields: False: an `up` has it."""
    lock = os.open(folder.with_name(f"{folder.name}.lock"), os.O_RDWR | os.O_CLOEXEC)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True
    finally:
        os.close(lock)
