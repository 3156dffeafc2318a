"""Starts the tests' processes quickly: one process has imported the product, and forks for every start.

Importing takes ten times as long as what most commands do, and took most of the time that all tests take. What is
forked is a process like any other, with its own descriptors, environment, folder and signals; only the imports are
shared, and at the end no module is taken down. The other side is `starting.py`.

The processes of a run share one, which ends with the last of them. Each has a connection to it, the control. A start
is a byte on the control, with four descriptors: standard input, output and error, and a socket of its own. On that
comes an `Order`, and back go the process id and, at its end, the exit code as `subprocess` has it.
"""

from __future__ import annotations

import atexit
import fcntl
import gc
import os
import select
import signal
import socket
import struct
import sys
import termios
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages
from runpy import run_module
from types import ModuleType

import msgspec

PACKAGES = (
    *(
        "eventbus.broker",
        "eventbus.store",
        "eventbus.record",
        "eventbus.consume",
        "eventbus.correlate",
        "eventbus.export",
    ),
    *("eventbus.agent", "eventbus.lifecycle", "eventbus.cli", "eventbus.workers"),
)
#: What asyncio, a recorder and an agent import when they begin to work.
LATE = ("redis", "encodings.idna", "multiprocessing.util", "psutil")
NUMBER = struct.Struct("i")
#: Read at import, where each module takes what it is to ask.
CRASH = "EVENTBUS_CRASH"
#: Nobody comes past there: so what they take is an object, which in a child can be given another order.
NOWHERE = "kill:nowhere"


class Order(msgspec.Struct):
    """The program to start; *terminal*: standard input becomes the terminal of a session of its own.

    Without a *module* the first word is its source, as that of `python -c`.
    """

    module: str
    words: list[str]
    environ: dict[str, str]
    folder: str
    terminal: bool


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """While a process of the run looks for the server of *folder* or starts it, that one does not end."""
    with (folder / "lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


class ForkServer:
    """Forks for what it reads from the controls that *listener* accepts, until the last of them is closed."""

    def __init__(self, listener: socket.socket) -> None:
        self._listener = listener
        self._path = Path(listener.getsockname())
        self._controls: list[socket.socket] = []
        self._children: dict[int, socket.socket] = {}
        self._bell, self._ringer = os.pipe()
        os.set_blocking(self._ringer, False)
        signal.set_wakeup_fd(self._ringer)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        # The terminal's Ctrl-C is for the tests; those that are forked hear it again.
        signal.signal(signal.SIGINT, signal.SIG_IGN)

    def next_child(self) -> Order | None:
        """Returns in each child, with what it is to be; in this process only at the end, with nothing."""
        while True:
            awaited: list[int | socket.socket] = [self._bell, self._listener, *self._controls]
            ready, _, _ = select.select(awaited, [], [])
            if self._bell in ready:
                os.read(self._bell, 4096)
                self._report_ends()
            if self._listener in ready:
                self._controls.append(self._listener.accept()[0])
            for control in [control for control in self._controls if control in ready]:
                word, descriptors, _, _ = socket.recv_fds(control, 1, 4)
                if not word:
                    self._controls.remove(control)
                    control.close()
                    if not self._controls and self._ends():
                        return None
                elif order := self._fork(descriptors):
                    return order

    def _ends(self) -> bool:
        """Let no other process find this server, unless one has just connected."""
        with suppress(FileNotFoundError), locked(self._path.parent):  # the folder is gone: so is the run
            if select.select([self._listener], [], [], 0)[0]:
                return False
            self._path.unlink()
        return True

    def _fork(self, descriptors: list[int]) -> Order | None:
        *standard, own = descriptors
        answers = socket.socket(fileno=own)
        with answers.makefile("rb") as asked:
            order = msgspec.msgpack.decode(asked.read(), type=Order)
        child = os.fork()
        if child:
            for descriptor in standard:
                os.close(descriptor)
            self._children[child] = answers
            answers.sendall(NUMBER.pack(child))
            return None
        answers.close()
        self._forget()
        for number, descriptor in enumerate(standard):
            os.dup2(descriptor, number)
            os.close(descriptor)
        return order

    def _report_ends(self) -> None:
        for child in list(self._children):
            ended, status = os.waitpid(child, os.WNOHANG)
            if ended:
                with self._children.pop(child) as answers:
                    _send_to_whoever_listens(answers, NUMBER.pack(os.waitstatus_to_exitcode(status)))

    def _forget(self) -> None:
        """A child has none of this process's signals and descriptors."""
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        os.close(self._bell)
        os.close(self._ringer)
        for connection in (self._listener, *self._controls, *self._children.values()):
            connection.close()
        self._children.clear()


def _send_to_whoever_listens(answers: socket.socket, data: bytes) -> None:
    try:
        answers.sendall(data)
    except BrokenPipeError:
        return  # nobody waits for this one any more


def become(order: Order) -> None:
    """Run `python -m *module* *words*`, or `python -c *words*`, in this process, without starting an interpreter."""
    if order.terminal:
        os.setsid()
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    os.chdir(order.folder)
    os.environ.clear()
    os.environ.update(order.environ)
    if crash := os.environ.get(CRASH):
        failpoint = import_module("eventbus.util.failpoints").failpoint
        vars(failpoint).update(vars(type(failpoint)(crash)))
    # Not made anew: some library may hold them since its import.
    assert sys.__stdout__
    sys.__stdout__.reconfigure(line_buffering=os.isatty(1))
    sys.path[0] = order.folder
    sys.argv = ["", *order.words] if order.module else ["-c", *order.words[1:]]
    try:
        if order.module:
            # Kept as by an interpreter: what only the module has must live until atexit calls its functions.
            _main = run_module(order.module, run_name="__main__", alter_sys=True)
        else:
            sys.modules["__main__"] = main = ModuleType("__main__")
            exec(compile(order.words[0], "<string>", "exec"), vars(main))  # noqa: S102
    except SystemExit as end:
        if not isinstance(end.code, int | None):
            raise  # a text to be printed
        _end(end.code or 0)
        raise
    _end(0)


def _end(code: int) -> None:
    """End with *code* as an interpreter does, but take no module down: that takes longer than what most commands do.

    Returns only where output cannot be written, which the interpreter has its own words for.
    """
    threading._shutdown()  # type: ignore[attr-defined]
    gc.collect()  # tells of what was not closed; the command's last function freezes
    atexit._run_exitfuncs()
    with suppress(OSError, ValueError):
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _import_everything() -> None:
    """Import all that any command imports, also late; not the sinks' libraries, which few have."""
    os.environ[CRASH] = NOWHERE
    gc.disable()
    for name in LATE:
        import_module(name)
    with warnings.catch_warnings():  # the API's library of HTTP changes their filters
        for package in PACKAGES:
            for module in walk_packages(import_module(package).__path__, f"{package}."):
                if not module.name.endswith("__main__"):
                    import_module(module.name)
    gc.enable()
    gc.collect()
    gc.freeze()  # so that a collection in a child does not touch, and thereby copy, every page


if __name__ == "__main__":
    _import_everything()
    with socket.socket(fileno=int(sys.argv[1])) as listener:
        asked = ForkServer(listener).next_child()
    if asked:
        become(asked)
