"""The console command as real processes: run to its end, or started and watched."""

from __future__ import annotations

import io
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.starting import STRICT, Process, start
from tests.waiting import PATIENCE_S

COMMAND = (sys.executable, "-m", "eventbus")
#: How long what a command records may take at its end: what a person would not wait for, a busy machine may need.
FLUSH_S = "60"


def environment(url: str, prefix: str, **settings: str) -> dict[str, str]:
    """Return the tests' environment with this bus and *settings*, like worker_block_ms="100"."""
    ours = {"EVENTBUS_REDIS_URL": url, "EVENTBUS_PREFIX": prefix, "EVENTBUS_FLUSH_S": FLUSH_S} | STRICT
    return dict(os.environ) | ours | {f"EVENTBUS_{name.upper()}": value for name, value in settings.items()}


def run(
    *arguments: str | bytes, env: Mapping[str, str], timeout_s: float = PATIENCE_S, afresh: bool = False
) -> subprocess.CompletedProcess[str]:
    """Run `eventbus *arguments*` to its end; *afresh*: in an interpreter that has to import all of it."""
    ours, its = zip(os.pipe(), os.pipe(), strict=True)
    try:
        process = start([*COMMAND, *arguments], env=env, stdout=its[0], stderr=its[1], afresh=afresh)
    finally:
        for descriptor in its:
            os.close(descriptor)
    try:
        out, err = _read_to_the_end(ours, timeout_s)
        code = process.wait(timeout_s)
    except BaseException:
        process.send_signal(signal.SIGKILL)
        process.wait()
        raise
    finally:
        for descriptor in ours:
            os.close(descriptor)
    return subprocess.CompletedProcess([*COMMAND, *arguments], code, out, err)


def _read_to_the_end(pipes: tuple[int, ...], timeout_s: float) -> list[str]:
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
