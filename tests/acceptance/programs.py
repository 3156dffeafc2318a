"""The console command: run to its end, in this process where that shows the same, or started and watched."""

from __future__ import annotations

import gc
import io
import logging
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from types import TracebackType
from typing import Self
from unittest.mock import patch

from tests.starting import STRICT, Process, same_at_start, start
from tests.waiting import PATIENCE_S

COMMAND = (sys.executable, "-m", "eventbus")
#: How long what a command records may take at its end: what a person would not wait for, a busy machine may need.
FLUSH_S = "60"


def environment(url: str, prefix: str, **settings: str) -> dict[str, str]:
    """Return the tests' environment with this bus and *settings*, like worker_block_ms="100"."""
    ours = {"EVENTBUS_REDIS_URL": url, "EVENTBUS_PREFIX": prefix, "EVENTBUS_FLUSH_S": FLUSH_S} | STRICT
    return dict(os.environ) | ours | {f"EVENTBUS_{name.upper()}": value for name, value in settings.items()}


#: Commands that run to their end by themselves, and whose process is not the point.
SHORT = {
    *("ack", "acl", "api-resources", "apply", "config", "create", "dead", "delete", "describe", "doctor", "events"),
    *("format", "functions", "get", "group", "heartbeat", "help", "kubeconfig", "options", "record", "rules"),
    *("silence", "spool", "status", "version", "wait", "why"),
}
#: Commands with signals, threads or children of their own.
LONG = {"exec", "logs", "mcp", "up", "down", "worker", "postgres", "completion"}
#: Variables that only a process obeys.
OF_PROCESSES = ("EVENTBUS_CRASH", "_EVENTBUS_COMPLETE")


def run(
    *arguments: str | bytes,
    env: Mapping[str, str],
    timeout_s: float = PATIENCE_S,
    afresh: bool = False,
    process: bool = False,
) -> subprocess.CompletedProcess[str]:
    """Run `eventbus *arguments*` to its end, a short command in this process: that costs a quarter.

    Args: process: in a process of its own; afresh: in an interpreter that has to import all of it.
    """
    words = [word for word in arguments if isinstance(word, str)]
    needs_process = len(words) < len(arguments) or not SHORT.intersection(words) or LONG.intersection(words)
    # Environment and output are the process's: two commands at the same time would have those of each other.
    process |= threading.current_thread() is not threading.main_thread()
    if process or afresh or needs_process or any(env.get(name) for name in OF_PROCESSES) or not same_at_start(env):
        return _run_process([*COMMAND, *arguments], env, timeout_s, afresh=afresh)
    return _run_here(words, env)


def _run_here(words: list[str], env: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    from eventbus.workers.cli import main

    written = io.BytesIO(), io.BytesIO()
    out, err = (io.TextIOWrapper(file, "utf-8", write_through=True) for file in written)
    with (
        open(os.devnull) as nothing,
        _as_it_was(),
        patch.dict(os.environ, env, clear=True),
        patch("sys.stdin", nothing),
        redirect_stdout(out),
        redirect_stderr(err),
    ):
        try:
            main(words, prog_name="eventbus")
            code = 0
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 1 if end.code else 0
    return subprocess.CompletedProcess([*COMMAND, *words], code, *(file.getvalue().decode() for file in written))


@contextmanager
def _as_it_was() -> Iterator[None]:
    """Hide the runner's handlers of logs, and restore what a command leaves to the end of its process."""
    numbers = signal.valid_signals()
    handlers = {number: signal.getsignal(number) for number in numbers}
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    loggers = [logging.getLogger(), logging.getLogger("eventbus")]
    logged = [(logger, logger.handlers[:], logger.level) for logger in loggers]
    collected = gc.get_threshold()
    loggers[0].handlers.clear()
    try:
        yield
    finally:
        gc.set_threshold(*collected)
        for logger, kept, level in logged:
            logger.handlers[:] = kept
            logger.setLevel(level)
        for number, handler in handlers.items():
            if signal.getsignal(number) is not handler:
                signal.signal(number, handler)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def run_python(source: str, *words: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """Run the program *source* to its end, in a process that begins with the product imported; *environ*: over ours."""
    return _run_process([sys.executable, "-c", source, *words], os.environ | STRICT | environ, PATIENCE_S)


def _run_process(
    command: Sequence[str | bytes], env: Mapping[str, str], timeout_s: float, *, afresh: bool = False
) -> subprocess.CompletedProcess[str]:
    ours, its = zip(os.pipe(), os.pipe(), strict=True)
    try:
        process = start(command, env=env, stdout=its[0], stderr=its[1], afresh=afresh)
    finally:
        for descriptor in its:
            os.close(descriptor)
    try:
        out, err = read_to_the_end(ours, timeout_s)
        code = process.wait(timeout_s)
    except BaseException:
        process.send_signal(signal.SIGKILL)
        process.wait()
        raise
    finally:
        for descriptor in ours:
            os.close(descriptor)
    return subprocess.CompletedProcess(command, code, out, err)


def read_to_the_end(pipes: tuple[int, ...], timeout_s: float) -> list[str]:
    """All that comes from each of them, until nobody holds its other end."""
    deadline = time.monotonic() + timeout_s
    read = {descriptor: bytearray() for descriptor in pipes}
    left = set(pipes)
    while left:
        ready, _, _ = select.select(left, [], [], max(0, deadline - time.monotonic()))
        if not ready:
            raise subprocess.TimeoutExpired(COMMAND, timeout_s, *map(bytes, read.values()))
        for descriptor in ready:
            data = os.read(descriptor, 65_536)
            read[descriptor] += data
            if not data:
                left.remove(descriptor)
    return [io.TextIOWrapper(io.BytesIO(data)).read() for data in read.values()]


class Program:
    """`eventbus *arguments*`, running until the block ends. What it writes is in files."""

    def __init__(self, *arguments: str, env: Mapping[str, str], folder: Path, afresh: bool = False) -> None:
        self._words = arguments
        number = len(list(folder.glob("program-*.out")))
        self._out, self._err = folder / f"program-{number}.out", folder / f"program-{number}.err"
        with self._out.open("wb") as out, self._err.open("wb") as err:
            self._process: Process = start([*COMMAND, *arguments], env=env, stdout=out, stderr=err, afresh=afresh)

    @property
    def out(self) -> str:
        """Return what it has written to standard output so far."""
        return self._out.read_text("utf-8")

    @property
    def err(self) -> str:
        """The same of standard error."""
        return self._err.read_text("utf-8")

    @property
    def pid(self) -> int:
        return self._process.pid

    def signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def wait(self, timeout_s: float = PATIENCE_S) -> int:
        """Wait for its end; returns the exit code, negative for a signal."""
        return self._process.wait(timeout_s)

    def stop(self) -> int:
        """SIGTERM, and wait."""
        self.signal(signal.SIGTERM)
        return self.wait()

    def kill(self) -> None:
        """SIGKILL, and wait."""
        self.signal(signal.SIGKILL)
        self.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGCONT)
            self.kill()
        if error is not None:
            sys.stderr.write(f"--- {self._words!r}\n{self.out[-2000:]}\n{self.err[-4000:]}\n")
