"""Records the changes of a host's systemd units, which the service manager writes to the journal.

Everything comes from the journal, so a watcher that was down misses nothing that the journal still has. It reads the
messages of the manager itself (PID 1): others can write a message with the same fields, but only root with its pid.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import subprocess
import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

from eventbus.errors import ConfigError, EventBusError
from eventbus.model.event import ObjectReference
from eventbus.model.validation import MAX_NEW_MESSAGE
from eventbus.record.occurrence import OccurrenceRecorder
from eventbus.util.backoff import Backoff
from eventbus.util.failpoints import failpoint
from eventbus.util.log import log
from eventbus.util.outcome import signal_name
from eventbus.util.own_files import read_own
from eventbus.util.text import cut_bytes, printable

COMPONENT: Final = "systemd"
KIND: Final = "Unit"

# MESSAGE_ID of the manager's messages: sd-messages.h of systemd.
_STARTED: Final = "39f53479d3a045ac8e11786248231fbf"
_STOPPED: Final = "7ad2d189f7e94e70a38c781354912448"
_FAILED: Final = "d9b373ed55a64feb8242e02dbe79a49c"
_JOB_FAILED: Final = "be02cf6855d2428ba40df7e9d022f03d"
_RESTARTING: Final = "5eb03494b6584870a536b337290809b3"
_EXITED: Final = "98e322203f7a4ed290d09fe03c09fe15"

#: Bytes of one of the last lines of a unit, which are texts of its own.
_LINE_BYTES: Final = 200
#: Bytes of an entry of the journal in JSON: journalctl leaves out fields of more than 4 KiB.
_MOST_ENTRY: Final = 1024 * 1024
_ANSWER_S: Final = 60.0
_CURSOR: Final = re.compile(r"[a-z]=[0-9a-f]+(;[a-z]=[0-9a-f]+){1,9}")
_MOST_CURSOR: Final = 1024
_BACKOFF: Final = Backoff(first_s=1, last_s=30, at_least=0.5)


class Entry(NamedTuple):
    """An entry of the journal. *fields*: texts, without control characters."""

    cursor: str
    at_us: int
    fields: dict[str, str]

    @property
    def unit(self) -> str:
        return self.fields.get("UNIT") or self.fields.get("USER_UNIT", "")

    @property
    def invocation(self) -> str:
        """Return the id of this run of the unit; "": it does not run."""
        return self.fields.get("INVOCATION_ID") or self.fields.get("USER_INVOCATION_ID", "")


class Change(NamedTuple):
    """A change of a unit, as it is to be recorded."""

    type: str
    reason: str
    message: str


class Journal:
    """The journal of this host, read with journalctl. One thread; `close` from any.

    Args: user: the messages of the service manager of this user, instead of those of the system's.
    """

    def __init__(self, *, user: bool = False, program: str = "journalctl") -> None:
        ids = (_STARTED, _STOPPED, _FAILED, _JOB_FAILED, _RESTARTING)
        self._prefix = "USER_" if user else ""  # of the fields of its messages
        self._own = [f"_UID={os.getuid()}"] if user else []
        self._manager = [*self._own, "_COMM=systemd"] if user else ["_PID=1"]
        self._changes = [*self._manager, *(f"MESSAGE_ID={each}" for each in ids)]
        self._program = program
        self._following: subprocess.Popen[bytes] | None = None
        self._closed = False

    def newest(self) -> str:
        """Return the cursor of the manager's newest message. Raises: ConfigError: it has none that we may read."""
        found = self._read("--lines=1", *self._manager)
        if not found:
            cure = "add its user to the group systemd-journal, and check that systemd runs on this host"
            raise ConfigError(f"journalctl shows this command no message of systemd: {cure}", cure=cure)
        return found[-1].cursor

    def follow(self, after: str) -> Iterator[Entry]:
        """Yield the messages about changes after a cursor, and wait for more; ends when journalctl ends."""
        with self._start("--follow", "--no-tail", f"--after-cursor={after}", *self._changes) as process:
            self._following = process
            try:
                if self._closed:
                    return
                assert process.stdout is not None
                while line := process.stdout.readline(_MOST_ENTRY):
                    if (entry := _entry(line)) is not None:
                        yield entry
            finally:
                self._following = None
                process.kill()

    def close(self) -> None:
        """End `follow`."""
        self._closed = True
        if (process := self._following) is not None:
            process.kill()

    def end_of(self, entry: Entry, lines: int) -> tuple[str, list[str]]:
        """Return how the main process of the unit of *entry* ended ("" is unknown), and the last *lines* of the unit.

        Journald does not know the invocation of a process that lives for some milliseconds only, but its unit.
        """
        invocation = entry.invocation
        its = f"{self._prefix}INVOCATION_ID={invocation}"
        found = self._read("--lines=1", *self._manager, f"MESSAGE_ID={_EXITED}", its) if invocation else []
        how = _exit(found[-1].fields) if found else ""
        if not lines:
            return how, []
        before = ("--reverse", f"--cursor={entry.cursor}", f"--lines={lines}")
        said = self._read(*before, f"_SYSTEMD_{self._prefix}UNIT={entry.unit}", *self._own)
        own: list[str] = []
        for each in said:
            if each.fields.get("_SYSTEMD_INVOCATION_ID", invocation) != invocation:
                break  # of the run before
            own.insert(0, cut_bytes(each.fields.get("MESSAGE", ""), _LINE_BYTES))
        return how, own

    def _read(self, *words: str) -> list[Entry]:
        with self._start(*words) as process:
            try:
                out, _ = process.communicate(timeout=_ANSWER_S)
            except subprocess.TimeoutExpired:
                process.kill()
                log.warning("%s has not answered within %d s", self._program, _ANSWER_S)
                return []
        return [entry for line in out.splitlines() if (entry := _entry(line)) is not None]

    def _start(self, *words: str) -> subprocess.Popen[bytes]:
        command = [self._program, "--output=json", "--no-pager", "--quiet", *words]
        try:
            return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
        except OSError as error:
            raise ConfigError(f"{self._program} cannot be started: {error.strerror}. This needs systemd") from error


class Position:
    """The cursor of the last recorded entry, in a file. A context manager: meanwhile no other process has the file.

    Raises: ConfigError: another process has it.  OSError: its lock file cannot be made.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> Self:
        lock = self._path.with_name(f"{self._path.name}.lock")
        self._lock = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._lock)
            # Of two with other patterns, each would save positions beyond changes that the other has not recorded.
            cure = "stop it, or give this one a file of its own: --state FILE"
            raise ConfigError(f"another watch-systemd uses {self._path}: {cure}", cure=cure) from None
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._lock)

    def load(self) -> str:
        """Return the cursor; "": there is none yet. Raises: ConfigError: others can write it, or it is damaged."""
        if not self._path.exists():
            return ""
        text = read_own(self._path, _MOST_CURSOR).decode("ascii", "replace").strip()
        if not _CURSOR.fullmatch(text):
            cure = "remove it, and changes from then on are recorded"
            raise ConfigError(f"{self._path} has no position in a journal: {cure}", cure=cure)
        return text

    def save(self, cursor: str) -> None:
        """Raises: OSError."""
        new = self._path.with_name(f"{self._path.name}.new")
        handle = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with os.fdopen(handle, "w") as file:
            file.write(f"{cursor}\n")
            file.flush()
            os.fsync(file.fileno())
        os.replace(new, self._path)


class UnitWatcher:
    """Records each change once, and saves its position after each. `run` in one thread, `stop` from any.

    Args: units: patterns of names.  lines: last lines of a unit that fails, in the message.
    """

    def __init__(
        self,
        *,
        journal: Journal,
        recorder: OccurrenceRecorder,
        position: Position,
        after: str,
        units: Sequence[str],
        namespace: str,
        node: str,
        lines: int,
    ) -> None:
        self._journal = journal
        self._recorder = recorder
        self._position = position
        self._after = after
        self._units = units
        self._namespace = namespace
        self._node = node
        self._lines = lines
        self._stop = threading.Event()

    def run(self) -> None:
        """Watch until `stop`. Raises: ConfigError, OSError: it cannot go on."""
        failures = 0
        while not self._stop.is_set():
            before = self._after
            for entry in self._journal.follow(self._after):
                if not self._record(entry):
                    return
            failures = failures + 1 if before == self._after else 1
            if not self._stop.wait(_BACKOFF.pause_s(failures)):
                log.warning("journalctl has ended; it is started again")

    def stop(self) -> None:
        self._stop.set()
        self._journal.close()

    def _record(self, entry: Entry) -> bool:
        """Record the change, if it is one. Returns: False: it is not recorded, because the watcher has to stop."""
        change = self._change(entry)
        if change is not None:
            about = ObjectReference(KIND, self._namespace, entry.unit)
            # The bus knows the identity for two hours: a change that was recorded before a crash is not recorded again.
            identity = f"systemd {self._namespace} {self._node} {entry.cursor}"
            message = cut_bytes(change.message, MAX_NEW_MESSAGE)
            self._recorder.record(identity, about, change.type, change.reason, message, at_ns=entry.at_us * 1000)
            if not self._flush():
                return False
            failpoint("systemd:recorded")
            self._position.save(entry.cursor)
        self._after = entry.cursor
        return True

    def _flush(self) -> bool:
        """Wait until the change is recorded. Returns: False: the watcher stops before."""
        failures = 0
        while not self._stop.is_set():
            try:
                self._recorder.flush()
            except EventBusError as error:
                failures += 1
                if failures == 1:
                    log.warning("the changes of units wait in the journal: %s", error)
                self._stop.wait(_BACKOFF.pause_s(failures))
                continue
            if failures:
                log.warning("the changes of units are recorded again")
            return True
        return False

    def _change(self, entry: Entry) -> Change | None:
        fields, unit, message = entry.fields, entry.unit, entry.fields.get("MESSAGE", "")
        if not any(fnmatchcase(unit, pattern) for pattern in self._units):
            return None
        kind = fields.get("MESSAGE_ID")
        if kind == _STARTED and entry.invocation:  # without one it was skipped: a condition was not met
            reason = "Completed" if message.startswith("Finished ") else "Started"  # a oneshot has run
            return Change("Normal", reason, message)
        if kind == _STOPPED:
            return Change("Normal", "Stopped", message)
        if kind == _RESTARTING:
            # The same message each time, without the number of restarts, so that repeats are counted.
            return Change("Normal", "Restarting", f"Restarting {unit} automatically")
        if kind == _FAILED:
            return Change("Warning", "Failed", self._failure(entry))
        if kind == _JOB_FAILED and fields.get("JOB_RESULT") != "failed":  # that one has a message of its own
            return Change("Warning", "Failed", f"{message} ({fields.get('JOB_RESULT')})")
        return None

    def _failure(self, entry: Entry) -> str:
        how, lines = self._journal.end_of(entry, self._lines)
        result = entry.fields.get("UNIT_RESULT", "")
        text = ", ".join(filter(None, (f"result {result}" if result else "", how)))
        return f"{text}. Last lines: {' | '.join(lines)}" if lines else text


def _exit(fields: dict[str, str]) -> str:
    """Return `exit code 1`, or `signal SIGKILL`."""
    status = fields.get("EXIT_STATUS", "")
    if not status.isdecimal():
        return ""
    name = signal_name(int(status)).removeprefix("signal ")
    code = fields.get("EXIT_CODE", "")
    return {"exited": f"exit code {status}", "killed": f"signal {name}", "dumped": f"signal {name}, core dumped"}.get(
        code, ""
    )


def _entry(line: bytes) -> Entry | None:
    """Read a line of journalctl; None: it is none, which is logged."""
    with suppress(ValueError, TypeError, KeyError):
        found = json.loads(line)
        cursor, at_us = found["__CURSOR"], int(found["__REALTIME_TIMESTAMP"])
        if _CURSOR.fullmatch(cursor):
            return Entry(cursor, at_us, {key: _text(value) for key, value in found.items() if key[:2] != "__"})
    log.warning("journalctl printed a line that cannot be read: %s", cut_bytes(repr(line[:200]), 200))
    return None


def _text(value: Any) -> str:
    """Return a field as text: journalctl prints bytes that are not UTF-8 as numbers, and a long field as null."""
    if isinstance(value, list) and value and isinstance(value[-1], list | str):  # a field with several values
        value = value[-1]
    if isinstance(value, list):
        with suppress(ValueError, TypeError):
            value = bytes(value).decode("utf-8", "replace")
    return printable(value) if isinstance(value, str) else ""


__all__ = ["Change", "Entry", "Journal", "Position", "UnitWatcher"]
