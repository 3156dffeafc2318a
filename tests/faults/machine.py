"""Tools of the machine that only some faults need. One that is missing is a skip with its reason; in CI a failure."""

from __future__ import annotations

import mmap
import os
import shutil
import struct
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from eventbus.broker.connection.connect import make_client
from eventbus.broker.embedded.server import find_binary
from tests.waiting import eventually


def need(program: str) -> str:
    """The path of *program*, or the test is skipped."""
    found = shutil.which(program)
    if found is None:
        pytest.skip(f"{program} is not installed")
    return found


@contextmanager
def slow_fsync(pid: int, seconds: float) -> Iterator[None]:
    """Every fdatasync and fsync of the process takes so much longer."""
    strace = need("strace")
    delay = f"delay_enter={int(seconds * 1e6)}"
    inject = ["-e", f"inject=fdatasync,fsync:{delay}", "-e", "trace=fdatasync,fsync"]
    tracer = subprocess.Popen([strace, "-qq", "-f", "-p", str(pid), *inject, "-o", "/dev/null"], stderr=subprocess.PIPE)
    status = Path(f"/proc/{pid}/status")
    eventually(lambda: tracer.poll() is not None or "TracerPid:\t0\n" not in status.read_text())
    if tracer.poll() is not None:
        assert tracer.stderr
        pytest.skip(f"strace may not trace here: {tracer.stderr.read().decode().strip()}")
    try:
        yield
    finally:
        tracer.kill()  # it would wait for delays of its own before it heard of anything milder
        tracer.wait(30)
        if tracer.stderr:
            tracer.stderr.close()


class Clock:
    """The wall clock of processes that are started with `env`: moved by hand."""

    def __init__(self, folder: Path) -> None:
        compiler = need("cc")
        library = folder / "clockshim.so"
        source = Path(__file__).with_name("clockshim.c")
        subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", library, source, "-ldl"], check=True)
        self._library = library
        file, name = tempfile.mkstemp(dir=folder)
        os.write(file, struct.pack("d", 0.0))
        self._page = mmap.mmap(file, 8)
        os.close(file)
        self._name = name

    @property
    def env(self) -> dict[str, str]:
        return {"LD_PRELOAD": str(self._library), "CLOCK_OFFSET_FILE": self._name}

    def move(self, seconds: float) -> None:
        """To so many seconds from the true time."""
        self._page[:8] = struct.pack("d", seconds)


class SmallDisk:
    """A server whose files are on a disk of a few MB, in a mount namespace of its own."""

    def __init__(self, folder: Path, *, size_mb: int, config: dict[str, str]) -> None:
        need("unshare")
        if os.geteuid():
            pytest.skip("mounting a small disk needs root")
        self._disk = folder / "disk"
        self._disk.mkdir()
        self._socket = folder / "small.sock"
        self._size_mb = size_mb
        self._config = config
        self._process: subprocess.Popen[bytes] | None = None
        self._holder: subprocess.Popen[bytes] | None = None

    def start(self) -> str:
        if self._holder is None:
            mount = f"mount -t tmpfs -o size={self._size_mb}m tmpfs {self._disk} && echo mounted && exec sleep 1000000"
            self._holder = subprocess.Popen([need("unshare"), "-m", "sh", "-c", mount], stdout=subprocess.PIPE)
            assert self._holder.stdout
            with self._holder.stdout as said:
                assert said.readline() == b"mounted\n"
        settings = {
            "port": "0",
            "unixsocket": str(self._socket),
            "dir": str(self._disk),
            "appendonly": "yes",
            "save": "",
        }
        arguments = [word for key, value in (settings | self._config).items() for word in (f"--{key}", value)]
        inside = [need("nsenter"), "-t", str(self._holder.pid), "-m", str(find_binary().path), *arguments]
        self._process = subprocess.Popen(inside, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        url = f"unix://{self._socket}"

        def answers() -> bool:
            with make_client(url) as client:
                client.ping()
            return True

        eventually(answers, despite=Exception)
        return url

    def stop(self) -> None:
        for process in (self._process, self._holder):
            if process is not None and process.poll() is None:
                process.kill()
                process.wait(30)

    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process else None

    def fill(self, leave_kb: int) -> None:
        """Put a file onto the disk that leaves so much."""
        assert self._holder
        inside = Path(f"/proc/{self._holder.pid}/root{self._disk}")
        free = os.statvfs(inside)
        with suppress(OSError), (inside / "ballast").open("wb", buffering=0) as ballast:  # the server writes as well
            for _ in range(max(0, free.f_bavail * free.f_frsize // 1024 - leave_kb)):
                ballast.write(b"\0" * 1024)

    def empty(self) -> None:
        """Take it away again."""
        assert self._holder
        Path(f"/proc/{self._holder.pid}/root{self._disk}/ballast").unlink(missing_ok=True)
