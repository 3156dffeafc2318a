"""Writes the log to a stream, at least once for each event, or to a file, exactly once.

The log workers of one machine may share a file. A worker locks the file to write. The system releases the lock of a
process that dies, so text after the last newline is then a torn line that no process will finish.
"""

from __future__ import annotations

import fcntl
import os
import stat
import threading
import time
from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence, Set
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, Protocol

from eventbus.errors import EventBusError
from eventbus.util.log import log
from eventbus.workers.log_lines import begins_like_ours, uid_of_line

#: Bytes from the end in which to search for lines that may already be written. At 200 bytes a line this is a million
#: events: more than arrive in the 15 s before a dead worker's batches are taken over.
TAIL_BYTES = 256 * 1024 * 1024
CHUNK_BYTES = 1024 * 1024
#: Uids without a number that are known: some 30 MB. An older event that Redis delivers again is then written again.
MOST_OTHERS = 200_000
#: Seconds to wait for another worker's lock: less than a live worker's pause, more than any write.
LOCK_S = 5.0


class OutputUnavailable(EventBusError):
    """The log cannot be written now (disk full, no permission). Follow the message; no event is lost."""


class ReaderGone(EventBusError):
    """The reader of standard output has closed it. The worker ends."""


class Line(NamedTuple):
    """A line with its newline, and the uid that `uid_of_line` finds in it."""

    uid: str
    text: bytes


class Batch(NamedTuple):
    """The lines of one delivery."""

    id: bytes
    lines: Sequence[Line]


class Owned(NamedTuple):
    """The ids of batches that this worker still owns. Others were taken over while this process was paused.

    *sent_again*: Redis may have lost writes, so producers may have sent events again that are already in the file.
    """

    ids: Set[bytes]
    sent_again: bool = False


class Output(Protocol):
    """Writes batches of lines. Any thread."""

    def write(self, batches: Sequence[Batch], *, again: bool, owned: Callable[[], Owned]) -> list[bytes]:
        """Write whole batches, in order.

        Args:    again: some of the lines may already be written.  owned: called while the output is locked.
        Returns: ids of the batches that are written, to be acknowledged.
        Raises:  OutputUnavailable: it is unknown how much was written; write the same batches again, with *again*.
                 ReaderGone: the worker must end.
        """
        ...

    def close(self) -> None: ...


class StreamOutput:
    """Standard output, a pipe, a device: redelivered events are written again."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._lock = threading.Lock()
        self._torn = False

    def write(self, batches: Sequence[Batch], *, again: bool, owned: Callable[[], Owned]) -> list[bytes]:
        with self._lock:
            for batch in batches:
                self._write(b"".join(line.text for line in batch.lines))
        return [batch.id for batch in batches]

    def close(self) -> None:
        """Do nothing: the stream belongs to the caller."""

    def _write(self, data: bytes) -> None:
        rest = memoryview(b"\n" + data if self._torn else data)
        try:
            while rest:
                rest = rest[os.write(self._descriptor, rest) :]
                self._torn = True
        except BrokenPipeError as error:
            raise ReaderGone("standard output is closed") from error
        except OSError as error:
            raise OutputUnavailable(f"standard output cannot be written: {error.strerror}") from error
        self._torn = False


class FileOutput:
    """A file that gets each line once, even if the workers that share it crash at any time.

    Follows a rename (logrotate): the path is looked up before each write. Rotated files are not searched for
    redelivered events.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._descriptor = -1
        self._written: _WrittenUids | None = None

    def open(self) -> None:
        """Open or create the file. Raises: OutputUnavailable."""
        with self._lock, _explained(self._path):
            self._reopen()

    def write(self, batches: Sequence[Batch], *, again: bool, owned: Callable[[], Owned]) -> list[bytes]:
        """Append the batches that are still owned, each event once; return their ids. Locks the file."""
        with self._lock, _explained(self._path):
            while True:
                with self._locked() as descriptor:
                    self._repair(descriptor)
                    # Called under the lock: a worker that took a batch over cannot write it before we release the lock.
                    still = owned()
                    self._written = (self._written or _WrittenUids()) if still.sent_again else None
                    if self._written is None or self._written.unread(descriptor) <= CHUNK_BYTES:
                        return self._append_new(descriptor, batches, still, again)
                # To read 256 MiB takes seconds, so other workers may write in the meantime.
                self._written.read(descriptor)

    def _append_new(self, descriptor: int, batches: Sequence[Batch], still: Owned, again: bool) -> list[bytes]:
        ours = [batch for batch in batches if batch.id in still.ids]
        wanted = {line.uid for batch in ours for line in batch.lines}
        there: Set[str] = frozenset()
        if self._written is not None:
            self._written.read(descriptor)
            there = {uid for uid in wanted if uid in self._written}
        elif again:
            there = _find_uids(descriptor, wanted)
        for batch in ours:
            lines = [line for line in batch.lines if line.uid not in there]
            self._append(descriptor, b"".join(line.text for line in lines))
            if self._written is not None:
                self._written.appended(lines)
        return [batch.id for batch in ours]

    def close(self) -> None:
        with self._lock:
            if self._descriptor >= 0:
                os.close(self._descriptor)
                self._descriptor = -1

    @contextmanager
    def _locked(self) -> Iterator[int]:
        while True:
            if self._descriptor < 0:
                self._reopen()
            descriptor = self._descriptor
            self._lock_file(descriptor)
            if _is_still(self._path, descriptor):
                break
            self._reopen()  # renamed or removed; closing releases the lock
        try:
            yield descriptor
        finally:
            fcntl.flock(descriptor, fcntl.LOCK_UN)

    def _lock_file(self, descriptor: int) -> None:
        deadline = time.monotonic() + LOCK_S
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except BlockingIOError:
                if time.monotonic() > deadline:
                    problem = f"{self._path} is locked by a process that does not write (lsof names it): end it"
                    raise OutputUnavailable(problem) from None
                time.sleep(0.001)

    def _reopen(self) -> None:
        fresh = os.open(self._path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
        if self._descriptor >= 0:
            os.close(self._descriptor)
        self._descriptor = fresh

    def _append(self, descriptor: int, data: bytes) -> None:
        """Append *data* completely. After an error, such as a full disk, truncate the file to its former size."""
        if not data:
            return
        before = os.fstat(descriptor).st_size
        try:
            rest = memoryview(data)
            while rest:
                rest = rest[os.write(descriptor, rest) :]
        except OSError:
            os.ftruncate(descriptor, before)
            raise

    def _repair(self, descriptor: int) -> None:
        """Remove or end a torn last line. Its event was not acknowledged, so it is delivered again."""
        size = os.fstat(descriptor).st_size
        if size == 0 or os.pread(descriptor, 1, size - 1) == b"\n":
            return
        end = _end_of_last_line(descriptor, size)
        torn = os.pread(descriptor, 64, end)
        if begins_like_ours(torn):
            log.warning("%s: a crash has cut off the last line; the %d bytes of it are removed", self._path, size - end)
            os.ftruncate(descriptor, end)
        else:
            os.write(descriptor, b"\n")  # another program's text is kept


class _WrittenUids:
    """The uids in a file's last TAIL_BYTES, and in all lines that are appended later.

    Producers number their events, so a few ranges cover most uids; more ranges if other files have the events of other
    partitions. The uids of rotated files stay known. Of uids without a number, only the newest MOST_OTHERS are known.
    """

    def __init__(self) -> None:
        self._ranges: dict[str, _Ranges] = {}  #: by producer
        self._others: dict[str, None] = {}  #: without a number, such as those of written events; oldest first
        self._file = (-1, -1)
        self._at = 0  #: offset up to which the file was read, always the end of a line

    def __contains__(self, uid: str) -> bool:
        producer, number = _numbered(uid)
        if number is None:
            return uid in self._others
        return producer in self._ranges and number in self._ranges[producer]

    def unread(self, descriptor: int) -> int:
        """Return the number of bytes that `read` would read."""
        there = os.fstat(descriptor)
        if self._file != (there.st_dev, there.st_ino) or there.st_size < self._at:
            self._file, self._at = (there.st_dev, there.st_ino), max(0, there.st_size - TAIL_BYTES)
        return there.st_size - self._at

    def read(self, descriptor: int) -> None:
        """Add the lines that were appended since the last call."""
        left, rest = self.unread(descriptor), b""
        while left > 0 and (chunk := os.pread(descriptor, min(left, CHUNK_BYTES), self._at + len(rest))):
            left -= len(chunk)
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                self._at += len(line) + 1
                if uid := uid_of_line(line):
                    self._add(uid)

    def appended(self, lines: Sequence[Line]) -> None:
        """Add lines that were appended directly after the lines that were read."""
        for line in lines:
            self._at += len(line.text)
            self._add(line.uid)

    def _add(self, uid: str) -> None:
        producer, number = _numbered(uid)
        if number is None:
            self._others.pop(uid, None)
            self._others[uid] = None
            if len(self._others) > MOST_OTHERS:
                del self._others[next(iter(self._others))]
            return
        self._ranges.setdefault(producer, _Ranges()).add(number)


class _Ranges:
    """A set of numbers below 2^64, as ranges of 16 bytes each, with lookup by bisection."""

    def __init__(self) -> None:
        self._firsts, self._lasts = array("Q"), array("Q")  # ascending

    def __contains__(self, number: int) -> bool:
        place = bisect_right(self._firsts, number)
        return place > 0 and number <= self._lasts[place - 1]

    def add(self, number: int) -> None:
        if number in self:
            return
        firsts, lasts = self._firsts, self._lasts
        place = bisect_right(firsts, number)
        if place and lasts[place - 1] == number - 1:
            lasts[place - 1] = number
        else:
            firsts.insert(place, number)
            lasts.insert(place, number)
            place += 1
        if place < len(firsts) and firsts[place] == number + 1:
            firsts.pop(place)
            lasts[place - 1] = lasts.pop(place)


def _numbered(uid: str) -> tuple[str, int | None]:
    """Split a recorder's uid, `producer:number`; number None: the uid has another form."""
    producer, _, number = uid.rpartition(":")
    return (producer, int(number)) if number.isascii() and number.isdecimal() and len(number) < 20 else (uid, None)


def open_output(path: str | None) -> Output:
    """Open the output: standard output for None, else a file, pipe or device. Raises: OutputUnavailable."""
    if path is None:
        return StreamOutput(1)
    with _explained(Path(path)):
        if os.path.exists(path) and not stat.S_ISREG(os.stat(path).st_mode):
            return StreamOutput(os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC))
    file = FileOutput(Path(path))
    file.open()
    return file


def _find_uids(descriptor: int, wanted: Set[str]) -> Set[str]:
    """Return the uids of *wanted* that are in the file's last `TAIL_BYTES`; stop when all are found."""
    uids: set[str] = set()
    for line in _lines_backwards(descriptor):
        uid = uid_of_line(line)
        if uid is not None and uid in wanted:
            uids.add(uid)
            if len(uids) == len(wanted):
                break
    return uids


def _lines_backwards(descriptor: int) -> Iterator[bytes]:
    """Yield complete lines, the last one first, without newlines."""
    at = os.fstat(descriptor).st_size
    stop = max(0, at - TAIL_BYTES)
    rest = b""
    while at > stop:
        start = max(stop, at - CHUNK_BYTES)
        first, *lines = (os.pread(descriptor, at - start, start) + rest).split(b"\n")
        yield from reversed(lines)
        rest, at = first, start
    if stop == 0:
        yield rest


def _end_of_last_line(descriptor: int, size: int) -> int:
    at = size
    while at > 0:
        start = max(0, at - CHUNK_BYTES)
        uids = os.pread(descriptor, at - start, start).rfind(b"\n")
        if uids >= 0:
            return start + uids + 1
        at = start
    return 0


def _is_still(path: Path, descriptor: int) -> bool:
    try:
        there = os.stat(path)
    except FileNotFoundError:
        return False
    ours = os.fstat(descriptor)
    return (there.st_dev, there.st_ino) == (ours.st_dev, ours.st_ino)


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise OutputUnavailable(f"{path} cannot be written: {error.strerror}") from error
