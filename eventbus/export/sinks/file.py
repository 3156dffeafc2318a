"""Writes JSON Lines: each write as `{"deliveryId": …, "event": …}`, in a file that rotates, or on standard output.

    file:/var/log/events.jsonl?max-size=100MiB&max-age=1d&keep=5&fsync=every&mode=640
    file:events.jsonl            stdout:

The sink appends. If a worker dies after it wrote a line and before it stored its position, the line is written again
with the same delivery id. Any number of workers may share a file, also with logrotate.
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

from eventbus.errors import ConfigError, EventUnbuildable, SinkGone, SinkUnreachable
from eventbus.export.sinks.common import LINE_START, AppendsBatches, json_line
from eventbus.export.sinks.contract import SinkAnswer, SinkMode, SinkWrite
from eventbus.export.sinks.registry import SinkOptions
from eventbus.model.decodable import decodable

_BYTES: Final = {"": 1, "KiB": 1024, "MiB": 1024**2, "GiB": 1024**3}
_SECONDS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
#: The last bytes of the file that are searched for the start of an unfinished line.
_LONGEST_LINE: Final = 1 << 20


class FileOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options of a rotating file: its maximum size and age, the number of old files, and whether it is synced."""

    max_bytes: int = 0  #: 0: no limit
    max_age_s: int = 0  #: 0: no limit
    keep: int = 5  #: rotated files; `.1` is the newest
    mode: int = 0o600  #: of a new file and of its lock file; an existing file keeps its mode
    fsync: bool = True  #: before a write returns; else the kernel writes the lines to disk, after half a minute


def make_file_sink(url: str, options: SinkOptions) -> JsonLinesSink:
    """Make a sink. Raises: ConfigError: the path is missing or not writable, or an option is unknown or wrong."""
    parts = urlsplit(url)
    path = unquote(parts.path)
    if "\0" in path:
        raise ConfigError("file sink: the path has a %00 in it, which no file's name can: take it out")
    if not path or parts.netloc not in ("", "localhost"):
        raise ConfigError(f"sink {url!r}: give a path, like file:/var/log/events.jsonl")
    file = RotatingFile(Path(path), _parse_options(parts.query))
    file.check()
    return JsonLinesSink(options.name, file.append)


def make_stdout_sink(url: str, options: SinkOptions) -> JsonLinesSink:
    """Make a sink. Raises: ConfigError: text follows the colon of `stdout:`."""
    if url != "stdout:":
        raise ConfigError(f"sink {url!r}: give stdout:")
    return JsonLinesSink(options.name, _write_stdout)


class JsonLinesSink(AppendsBatches):
    """A `BatchSink` that appends. *append* writes whole lines, all of them or none; it may raise OSError."""

    mode = SinkMode.APPEND

    def __init__(self, name: str, append: Callable[[bytes], None]) -> None:
        self.name = name
        self._append = append

    def write(self, writes: Sequence[SinkWrite]) -> Sequence[SinkAnswer]:
        """Append the batch in one write.

        Raises: SinkUnreachable: for example, the disk is full.  SinkGone: the reader of standard output has closed it.
        """
        lines, answers = [], list[SinkAnswer]()
        for write in writes:
            try:
                lines.append(json_line(write))
                answers.append(write.event)
            except EventUnbuildable as error:
                answers.append(error)
        try:
            self._append(b"".join(lines))
        except OSError as error:
            where = f"{error.filename}: " if error.filename else ""
            raise SinkUnreachable(f"{where}{error.strerror or error}") from error
        return answers

    def close(self) -> None:
        """Do nothing: the sink keeps no file open."""


class RotatingFile:
    """A file that any number of threads and processes append to, one at a time, under a lock file.

    The lock file's modification time is the time at which the current file was created.
    """

    def __init__(self, path: Path, options: FileOptions, *, now: Callable[[], float] = time.time) -> None:
        self._path = path
        self._options = options
        self._now = now
        # The file itself cannot be locked because it is renamed. Each append opens the lock file again, because a
        # flock belongs to the open file, not to the thread.
        self._lock_path = path.with_name(path.name + ".lock")

    def check(self) -> None:
        """Check that the file is writable, without creating it. Raises: ConfigError: a retry would not help."""
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
        """Append *data* completely or not at all. Raises: OSError."""
        if not data:
            return
        with self._locked() as lock:
            self._rotate(lock, len(data))
            file, created = _open(self._path, self._options.mode)
            try:
                if created:
                    os.utime(lock, (self._now(), self._now()))
                    self._sync_folder()
                _write_whole(file, _after_torn_line(file) + data)
                if self._options.fsync:
                    os.fsync(file)
            finally:
                os.close(file)

    @contextlib.contextmanager
    def _locked(self) -> Iterator[int]:
        try:
            lock, _ = _open(self._lock_path, self._options.mode)
        except FileNotFoundError as error:  # name the folder, which the user knows, not the lock file
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
        """Sync the folder: a new file's name must be as durable as its content."""
        if self._options.fsync:
            folder = os.open(self._path.parent, os.O_RDONLY | os.O_DIRECTORY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)


def _open(path: Path, mode: int) -> tuple[int, bool]:
    """Open the regular file *path* without following links. The second value is True if it was created, with *mode*.

    Raises: OSError.
    """
    flags = os.O_RDWR | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    while True:
        with contextlib.suppress(FileExistsError):
            file = os.open(path, flags | os.O_CREAT | os.O_EXCL, 0o600)
            with contextlib.suppress(OSError):  # a file system without modes
                os.fchmod(file, mode)  # independent of the umask
            return file, True
        with contextlib.suppress(FileNotFoundError):  # it was removed or rotated in between
            file = os.open(path, flags)
            break
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise OSError(errno.EINVAL, "is no regular file", str(path))
    return file, False


def _write_whole(file: int, data: bytes) -> None:
    """Append all of *data*, or truncate the file to its former size."""
    size, view = os.fstat(file).st_size, memoryview(data)
    try:
        while view:
            view = view[os.write(file, view) :]
    except OSError:
        os.ftruncate(file, size)
        raise


def _after_torn_line(file: int) -> bytes:
    """Cut off an unfinished line of this sink and return b"". Return a newline if the unfinished line is foreign."""
    size = os.fstat(file).st_size
    start = max(0, size - _LONGEST_LINE)
    if not size or os.pread(file, 1, size - 1) == b"\n":
        return b""
    tail = os.pread(file, size - start, start)
    torn = start + tail.rfind(b"\n") + 1
    if not os.pread(file, len(LINE_START), torn).startswith(LINE_START):
        return b"\n"
    os.ftruncate(file, torn)
    return b""


_STDOUT: Final = 1  #: the descriptor itself, because `sys.stdout` may be a buffered text file
_STDOUT_LOCK: Final = threading.Lock()


def _write_stdout(data: bytes) -> None:
    with _STDOUT_LOCK:
        sys.stdout.flush()
        view = memoryview(data)
        try:
            while view:
                view = view[os.write(_STDOUT, view) :]
        except BrokenPipeError as error:
            raise SinkGone("the reader of standard output has closed it") from error


def _parse_options(query: str) -> FileOptions:
    options: dict[str, str] = dict(parse_qsl(query, keep_blank_values=True))
    parsers: dict[str, tuple[Callable[[str], dict[str, int]], str]] = {
        "max-size": (lambda text: {"max_bytes": _number(text, r"(KiB|MiB|GiB|)", _BYTES)}, "a size, as in 100MiB"),
        "max-age": (lambda text: {"max_age_s": _number(text, r"([smhd])", _SECONDS)}, "a time, as in 90s, 12h or 1d"),
        "keep": (lambda text: {"keep": _number(text, r"()", _BYTES)}, "a number of files"),
        "mode": (lambda text: {"mode": _mode(text)}, "octal permissions, as in 0640"),
        "fsync": (lambda text: {"fsync": _fsync(text)}, "every or never"),
    }
    fields: dict[str, int] = {}
    for name, text in options.items():
        if name not in parsers:
            raise ConfigError(f"file sink: unknown option {name!r}; there are {', '.join(parsers)}")
        parse, form = parsers[name]
        try:
            fields |= parse(text)
        except ValueError as error:
            raise ConfigError(f"file sink: {name}={text!r} is not valid: use {form}") from error
    return msgspec.convert(fields, decodable(FileOptions))


def _mode(text: str) -> int:
    """Parse a mode as chmod takes it. Without the owner's own rights the file could not be opened again."""
    if not re.fullmatch(r"0?[67][0-7]{2}", text):
        raise ValueError(text)
    return int(text, 8)


def _fsync(text: str) -> bool:
    if text not in ("every", "never"):
        raise ValueError(text)
    return text == "every"


def _number(text: str, unit: str, units: dict[str, int]) -> int:
    match = re.fullmatch(rf"(\d{{1,12}}){unit}", text)
    if not match:
        raise ValueError(text)
    return int(match[1]) * units[match[2]]
