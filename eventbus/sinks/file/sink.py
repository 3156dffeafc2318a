"""Writes JSON Lines: each write as `{"deliveryId": …, "event": …}`, in a file that rotates, or on standard output.

    file:/var/log/events.jsonl?max-size=100MiB&max-age=1d&keep=5&fsync=every&mode=640
    file:events.jsonl            stdout:

Appending: a line that was written and not yet noted is written again, with the same delivery id. Any number of
workers may share a file, also with logrotate.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import stat
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final
from urllib.parse import parse_qsl, unquote, urlsplit

import msgspec

from eventbus.decodable import decodable
from eventbus.encoding.event_json import encode_core
from eventbus.errors import ConfigError, EventUnbuildable, InvalidEvent, SinkGone, SinkUnreachable
from eventbus.event import Event
from eventbus.sinks.contract import EventPatch, SinkAnswer, SinkMode, SinkWrite, Verb
from eventbus.sinks.file.put_off_sync import PutOffSync
from eventbus.sinks.registry import SinkOptions

_BYTES: Final = {"": 1, "KiB": 1024, "MiB": 1024**2, "GiB": 1024**3}
_SECONDS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
#: How a line of ours begins: only such a one is cut off when it was left unfinished.
_LINE_START: Final = b'{"deliveryId":'
#: How far back the beginning of an unfinished line is looked for, bytes.
_LONGEST_LINE: Final = 1 << 20


class FileOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options of a rotating file: its largest size and age, how many former ones stay, and when it is synced."""

    max_bytes: int = 0  #: 0: no bound
    max_age_s: int = 0  #: 0: no bound
    keep: int = 5  #: former files, `.1` is the newest
    mode: int = 0o600  #: of a new file, and of the lock beside it; a file that is there keeps its own
    #: What was written is synced so many seconds later at most: 0 before it counts as done; negative: when the kernel
    #: likes.
    fsync_every_s: float = 0.0


def make_file_sink(url: str, options: SinkOptions) -> JsonLinesSink:
    """Make a sink. Raises: ConfigError: no path, one that cannot be written to, or an unknown or wrong option."""
    parts = urlsplit(url)
    path = unquote(parts.path)
    if "\0" in path:
        raise ConfigError("file sink: the path has a %00 in it, which no file's name can: take it out")
    if not path or parts.netloc not in ("", "localhost"):
        raise ConfigError(f"sink {url!r}: give a path, like file:/var/log/events.jsonl")
    file = RotatingFile(Path(path), _parse_options(parts.query))
    file.check()
    return JsonLinesSink(options.name, file.append, close=file.sync)


def make_stdout_sink(url: str, options: SinkOptions) -> JsonLinesSink:
    """Make a sink. Raises: ConfigError: `stdout:` takes nothing behind the colon."""
    if url != "stdout:":
        raise ConfigError(f"sink {url!r}: give stdout:")
    return JsonLinesSink(options.name, _write_stdout)


class JsonLinesSink:
    """A `BatchSink` that appends. *append* writes whole lines, all of them or none; both may raise OSError."""

    mode = SinkMode.APPEND

    def __init__(self, name: str, append: Callable[[bytes], None], *, close: Callable[[], None] = lambda: None) -> None:
        self.name = name
        self._append = append
        self._close = close

    def create(self, event: Event) -> Event:
        return self._write_one(Verb.CREATE, event)

    def update(self, event: Event) -> Event:
        return self._write_one(Verb.UPDATE, event)

    def patch(self, event: Event, patch: EventPatch) -> Event:
        return self._write_one(Verb.PATCH, event, patch)

    def write(self, writes: Sequence[SinkWrite]) -> Sequence[SinkAnswer]:
        """Append all in one write. Raises: SinkUnreachable: the disk is full, the folder is gone.

        SinkGone: nobody reads."""
        lines, answers = [], list[SinkAnswer]()
        for write in writes:
            try:
                lines.append(_line(write))
                answers.append(write.event)
            except InvalidEvent as error:
                answers.append(EventUnbuildable(str(error)))
        try:
            self._append(b"".join(lines))
        except OSError as error:
            where = f"{error.filename}: " if error.filename else ""
            raise SinkUnreachable(f"{where}{error.strerror or error}") from error
        return answers

    def close(self) -> None:
        """Sync what was written. Nothing is kept open. Raises: OSError."""
        self._close()

    def _write_one(self, verb: Verb, event: Event, patch: EventPatch | None = None) -> Event:
        answer = self.write([SinkWrite.of(verb, event, patch)])[0]
        if not isinstance(answer, Event):
            raise answer
        return answer


class RotatingFile:
    """A file that any number of threads and processes append to, one at a time: a lock file beside it says who.

    The lock file's time of change is when the file was begun.
    """

    def __init__(self, path: Path, options: FileOptions, *, now: Callable[[], float] = time.time) -> None:
        self._path = path
        self._options = options
        self._now = now
        self._put_off = PutOffSync(options.fsync_every_s)
        # Not the file itself, which is renamed. Each append opens it anew: a lock belongs to the open file.
        self._lock_path = path.with_name(path.name + ".lock")

    def check(self) -> None:
        """Check that the file could be written to now; make nothing. Raises: ConfigError: waiting would not help."""
        folder = self._path.parent
        if not folder.is_dir():
            raise ConfigError(f"file sink: there is no folder {folder}: make it, or give another path")
        files = (self._path, self._lock_path)
        for file in files:
            if file.is_symlink():
                real = os.path.realpath(file)
                raise ConfigError(f"file sink: {file} is a symbolic link: give the path that it leads to, {real}")
            if file.exists() and not file.is_file():
                raise ConfigError(f"file sink: {file} is no regular file: give another path, or stdout:")
        for needed in dict.fromkeys(file if os.path.exists(file) else folder for file in files):
            if not os.access(needed, os.W_OK):
                raise ConfigError(f"file sink: this user may not write to {needed}: permit it, or give another path")

    def append(self, data: bytes) -> None:
        """Write *data*, all of it or nothing. Raises: OSError."""
        if not data:
            return
        with self._locked() as lock:
            self._rotate(lock, len(data))
            file, begun = _open(self._path, self._options.mode)
            try:
                if begun:
                    os.utime(lock, (self._now(), self._now()))
                    self._sync_folder()
                _write_whole(file, _after_torn_line(file) + data)
                self._sync(file)
            finally:
                os.close(file)

    def sync(self) -> None:
        """Sync what was put off. Raises: OSError."""
        self._put_off.finish()

    @contextlib.contextmanager
    def _locked(self) -> Iterator[int]:
        try:
            lock, _made = _open(self._lock_path, self._options.mode)
        except FileNotFoundError as error:  # of the folder, which is what a person has given, not of the lock
            raise FileNotFoundError(error.errno, error.strerror, str(self._path.parent)) from None
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield lock
        finally:
            os.close(lock)

    def _rotate(self, lock: int, more: int) -> None:
        options = self._options
        try:
            size = self._path.stat().st_size
        except FileNotFoundError:
            return
        full = 0 < options.max_bytes < size + more and size > 0
        old = 0 < options.max_age_s <= self._now() - os.fstat(lock).st_mtime
        if not (full or old):
            return
        for number in range(options.keep, 0, -1):
            former = self._former(number - 1)
            with contextlib.suppress(FileNotFoundError):
                former.replace(self._former(number))
        if options.keep == 0:
            self._path.unlink()

    def _former(self, number: int) -> Path:
        return self._path.with_name(f"{self._path.name}.{number}") if number else self._path

    def _sync_folder(self) -> None:
        """Sync the folder: a new file's name must be as safe as its content."""
        if self._options.fsync_every_s >= 0:
            folder = os.open(self._path.parent, os.O_RDONLY | os.O_DIRECTORY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)

    def _sync(self, file: int) -> None:
        if self._options.fsync_every_s == 0:
            os.fsync(file)
        elif self._options.fsync_every_s > 0:
            self._put_off.appended(file)


def _line(write: SinkWrite) -> bytes:
    return b'%s%s,"event":%s}\n' % (_LINE_START, msgspec.json.encode(write.delivery_id), encode_core(write.event))


def _open(path: Path, mode: int) -> tuple[int, bool]:
    """Open the regular file *path*, never what a link leads to; the second value says whether it was made, with *mode*.

    Raises: OSError.
    """
    flags = os.O_RDWR | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    while True:
        with contextlib.suppress(FileExistsError):
            file = os.open(path, flags | os.O_CREAT | os.O_EXCL, 0o600)
            with contextlib.suppress(OSError):  # a file system without modes
                os.fchmod(file, mode)  # whatever the umask is
            return file, True
        with contextlib.suppress(FileNotFoundError):  # it was removed or rotated in between
            file = os.open(path, flags)
            break
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise OSError(errno.EINVAL, "is no regular file", str(path))
    return file, False


def _write_whole(file: int, data: bytes) -> None:
    """Append all of *data*, or leave the file as it was."""
    size, view = os.fstat(file).st_size, memoryview(data)
    try:
        while view:
            view = view[os.write(file, view) :]
    except OSError:
        os.ftruncate(file, size)
        raise


def _after_torn_line(file: int) -> bytes:
    """Cut off our own line that a crash left unfinished, and return b"", or return what ends a foreign one."""
    size = os.fstat(file).st_size
    start = max(0, size - _LONGEST_LINE)
    if not size or os.pread(file, 1, size - 1) == b"\n":
        return b""
    tail = os.pread(file, size - start, start)
    torn = start + tail.rfind(b"\n") + 1
    if not os.pread(file, len(_LINE_START), torn).startswith(_LINE_START):
        return b"\n"
    os.ftruncate(file, torn)
    return b""


_STDOUT: Final = 1  #: the descriptor itself: what Python makes of it may be a text file with a memory
_STDOUT_LOCK: Final = threading.Lock()


def _write_stdout(data: bytes) -> None:
    with _STDOUT_LOCK:
        sys.stdout.flush()
        view = memoryview(data)
        try:
            while view:
                view = view[os.write(_STDOUT, view) :]
        except BrokenPipeError as error:
            raise SinkGone("nobody reads standard output any more") from error


def _parse_options(query: str) -> FileOptions:
    found: dict[str, str] = dict(parse_qsl(query, keep_blank_values=True))
    parsers: dict[str, Callable[[str], dict[str, float]]] = {
        "max-size": lambda text: {"max_bytes": _number(text, r"(KiB|MiB|GiB|)", _BYTES)},
        "max-age": lambda text: {"max_age_s": _number(text, r"([smhd])", _SECONDS)},
        "keep": lambda text: {"keep": _number(text, r"()", _BYTES)},
        "mode": lambda text: {"mode": _mode(text)},
        "fsync": lambda text: {"fsync_every_s": _fsync(text)},
    }
    fields: dict[str, float] = {}
    for name, text in found.items():
        if name not in parsers:
            raise ConfigError(f"file sink: unknown option {name!r}; there are {', '.join(parsers)}")
        try:
            fields |= parsers[name](text)
        except ValueError as error:
            raise ConfigError(f"file sink: {name}={text!r} will not do") from error
    return msgspec.convert(fields, decodable(FileOptions))


def _mode(text: str) -> int:
    """Parse a mode as chmod takes it. Without the owner's own rights the file could not be opened again."""
    if not re.fullmatch(r"0?[67][0-7]{2}", text):
        raise ValueError(text)
    return int(text, 8)


def _fsync(text: str) -> float:
    words = {"every": 0.0, "never": -1.0}
    return words[text] if text in words else _number(text, r"([smhd])", _SECONDS)


def _number(text: str, unit: str, units: dict[str, int]) -> int:
    found = re.fullmatch(rf"(\d{{1,12}}){unit}", text)
    if not found:
        raise ValueError(text)
    return int(found[1]) * units[found[2]]
