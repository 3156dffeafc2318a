"""Lists the folders of a spool, for people; changes nothing."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from enum import StrEnum
from pathlib import Path

import msgspec

from eventbus.errors import ConfigError, PoisonBatch
from eventbus.model.encoding.wire import unpack_wire
from eventbus.record.spool.journal import BATCHES, UNREADABLE, check_folder, folders, is_held, read_file
from eventbus.record.spool.records import Contents


class State(StrEnum):
    """The state of a folder."""

    HELD = "held"  #: its process lives, or another one is sending its events
    WAITING = "waiting"  #: its process is gone: the next process sends its events
    UNREADABLE = "unreadable"  #: it cannot be read, or only in part: look at it, and remove it


class SpoolFolder(msgspec.Struct, frozen=True, kw_only=True):
    """The state and content of one folder."""

    name: str
    state: State
    events: int = 0
    bytes: int = 0
    oldest_ms: int = 0  #: when the oldest event was recorded; 0: unknown
    pid: int = 0
    host: str = ""
    bus: str = ""  #: where its process looked for the bus
    prefix: str = ""
    problem: str = ""


def list_spool(root: Path) -> list[SpoolFolder]:
    """List every folder below *root*, oldest first; none if *root* is missing.

    Raises: ConfigError: *root* is not this user's alone.  OSError: it cannot be read.
    """
    if not os.path.lexists(root):
        return []
    return [_look_at(folder) for folder in folders(root)]


def _look_at(folder: Path) -> SpoolFolder:
    try:
        check_folder(folder)
        held = is_held(folder)
        contents = read_file(folder)
    except (ConfigError, OSError) as error:
        return SpoolFolder(name=folder.name, state=State.UNREADABLE, problem=str(error))
    size, problem = 0, contents.problem
    with suppress(OSError):
        size = (folder / BATCHES).stat().st_size
    bad = bool(problem) and not contents.torn
    if (folder / UNREADABLE).exists():
        bad, problem = True, f"the file {UNREADABLE!r} has parts that cannot be read"
    header = contents.header
    return SpoolFolder(
        name=folder.name,
        state=State.HELD if held else State.UNREADABLE if bad else State.WAITING,
        events=contents.events,
        bytes=size,
        oldest_ms=_oldest_ms(contents),
        pid=header.pid if header else 0,
        host=header.host if header else "",
        bus=header.address if header else "",
        prefix=header.prefix if header else "",
        problem=problem,
    )


def _oldest_ms(contents: Contents) -> int:
    firsts = [line.in_order()[0].packed.events()[0] for line in contents.lines.values() if line.batches]
    return min(_times((*firsts, *contents.unplaced[:1])), default=0)


def _times(events: Iterable[bytes]) -> Iterable[int]:
    for event in events:
        with suppress(PoisonBatch, msgspec.MsgspecError):
            if us := unpack_wire(event).last_us:
                yield us // 1000
