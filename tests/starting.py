"""Starts processes: `python -m MODULE` is forked by a forkserver where that is the same as a new interpreter.

So is `python -c PROGRAM`.
"""

from __future__ import annotations

import atexit
import fcntl
import os
import socket
import subprocess
import sys
import tempfile
import termios
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from io import FileIO
from pathlib import Path
from typing import IO, NamedTuple, Protocol

import msgspec

from tests.forkserver import NUMBER, Order, locked

PYTHON_M = [sys.executable, "-m"]
PYTHON_C = [sys.executable, "-c"]
#: For every process of the tests: a warning is an error, and a crash of the interpreter says more than SIGSEGV.
STRICT = {"PYTHONWARNINGS": "error", "PYTHONFAULTHANDLER": "1"}
#: Variables that are read while a command runs. Any other may have been read by the interpreter or by an import, so
#: where it differs from what the forkserver began with, nothing is forked.
READ_WHEN_RUN = (
    *("EVENTBUS_", "PATH", "_EVENTBUS_COMPLETE", "COMP_", "NO_COLOR", "COLUMNS", "TERM", "PYTEST_"),
    *("NOTIFY_SOCKET", "WATCHDOG_", "PORT", "PS1", "OF_MINE_"),
)
ROOT = Path(__file__).parents[1]
#: Variable with the folder that the processes of a run share (`tests/plugins/distribution.py`). Empty: none, each has a
#: forkserver of its own, as for a measurement of their processes.
FOLDER = "EVENTBUS_TEST_FOLDER"
#: What the forkserver begins with: as it is before any test has changed it.
ENVIRON = {**os.environ, **STRICT}


class Process(Protocol):
    """The part of `subprocess.Popen` that the tests use."""

    @property
    def pid(self) -> int: ...
    def poll(self) -> int | None: ...
    def wait(self, timeout: float | None = None) -> int: ...
    def send_signal(self, sig: int) -> None: ...


def start(
    arguments: Sequence[str | bytes],
    *,
    env: Mapping[str, str],
    stdin: int | None = None,
    stdout: int | IO[bytes],
    stderr: int | IO[bytes],
    folder: Path | None = None,
    terminal: bool = False,
    afresh: bool = False,
) -> Process:
    """Run *arguments*. *terminal*: with *stdin* as its own; *afresh*: in an interpreter with imports of its own."""
    words = [word for word in arguments if isinstance(word, str)]
    if not afresh and words[:2] in (PYTHON_M, PYTHON_C) and len(words) == len(arguments) and same_at_start(env):
        module, *rest = words[2:] if words[:2] == PYTHON_M else ["", *words[2:]]
        order = Order(module, rest, dict(env), str(folder or Path.cwd()), terminal)
        return Forked(order, [0 if stdin is None else stdin, _number(stdout), _number(stderr)])
    return subprocess.Popen(
        arguments,
        cwd=folder,
        env=env,
        stdin=stdin,
        stdout=stdout,
        stderr=stderr,
        start_new_session=terminal,
        preexec_fn=_own_terminal if terminal else None,  # so that Ctrl-C reaches it
    )


class Piped(NamedTuple):
    """A started process, and our ends of its pipes, without buffers."""

    process: Process
    stdin: FileIO
    stdout: FileIO
    stderr: FileIO


@contextmanager
def start_piped(arguments: Sequence[str], *, env: Mapping[str, str], afresh: bool = False) -> Iterator[Piped]:
    """Run *arguments* in the folder of the repository; at the end of the block the pipes are closed."""
    (its_in, our_in), (our_out, its_out), (our_err, its_err) = os.pipe(), os.pipe(), os.pipe()
    with FileIO(our_in, "wb") as stdin, FileIO(our_out, "rb") as stdout, FileIO(our_err, "rb") as stderr:
        try:
            process = start(
                arguments, env=env, stdin=its_in, stdout=its_out, stderr=its_err, folder=ROOT, afresh=afresh
            )
        finally:
            for descriptor in (its_in, its_out, its_err):
                os.close(descriptor)
        yield Piped(process, stdin, stdout, stderr)


class Forked:
    """A process of the forkserver; as `subprocess.Popen`, of which it has what `Process` names."""

    def __init__(self, order: Order, standard: Sequence[int]) -> None:
        self.args = [*PYTHON_M, order.module, *order.words] if order.module else [*PYTHON_C, *order.words]
        self.returncode: int | None = None
        self._answers, its = socket.socketpair()
        with its:
            socket.send_fds(_forkserver(), [b"!"], [*standard, its.fileno()])
        self._answers.sendall(msgspec.msgpack.encode(order))
        self._answers.shutdown(socket.SHUT_WR)
        self.pid = self._read()

    def poll(self) -> int | None:
        try:
            return self.wait(0)
        except subprocess.TimeoutExpired:
            return None

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            self._answers.settimeout(timeout)
            try:
                self.returncode = self._read()
            except (TimeoutError, BlockingIOError):
                raise subprocess.TimeoutExpired(self.args, timeout or 0) from None
            self._answers.close()
        return self.returncode

    def send_signal(self, sig: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, sig)

    def _read(self) -> int:
        data = self._answers.recv(NUMBER.size)
        assert len(data) == NUMBER.size, "the forkserver is gone"
        number: int = NUMBER.unpack(data)[0]
        return number


@cache
def _forkserver() -> socket.socket:
    """Connect to the forkserver of this run. The first process that needs it starts it; it ends with the last one."""
    folder = Path(os.environ.get(FOLDER) or _own_folder())
    address, control = str(folder / "forkserver"), socket.socket(socket.AF_UNIX)
    with locked(folder):
        try:
            control.connect(address)
        except OSError:  # there is none yet, or the last one has ended
            _start_forkserver(address)
            control.connect(address)
    atexit.register(control.close)
    return control


def _start_forkserver(address: str) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(address)
        listener.listen()
        words = [*PYTHON_M, "tests.forkserver", str(listener.fileno())]
        process = subprocess.Popen(words, env=ENVIRON, stdin=subprocess.DEVNULL, pass_fds=[listener.fileno()], cwd=ROOT)
    atexit.register(process.wait)  # called after the control is closed


def _own_folder() -> str:
    """Return a folder for a process that belongs to no run of several."""
    folder = tempfile.TemporaryDirectory(prefix="eb")
    atexit.register(folder.cleanup)
    return folder.name


def same_at_start(env: Mapping[str, str]) -> bool:
    """Return whether a process with *env* has what this one had at its imports."""
    return _read_at_start(env) == _read_at_start(ENVIRON)


def _read_at_start(env: Mapping[str, str]) -> dict[str, str]:
    return {name: text for name, text in env.items() if not name.startswith(READ_WHEN_RUN)}


def _number(file: int | IO[bytes]) -> int:
    return file if isinstance(file, int) else file.fileno()


def _own_terminal() -> None:
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


__all__ = ["FOLDER", "STRICT", "Forked", "Piped", "Process", "same_at_start", "start", "start_piped"]
