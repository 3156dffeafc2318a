"""A private server for every part: random loopback port, folder of its own, AOF with fsync every second."""

from __future__ import annotations

import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import redis

from eventbus.broker.embedded.server import find_binary, inspect_binary


class Server:
    """A server process that can be restarted on the same port."""

    def __init__(self, url: str, command: list[str], folder: Path) -> None:
        self.url = url
        self.folder = folder
        self._command = command
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        return self._process.pid if self._process else 0

    def start(self) -> None:
        log = (self.folder / "log").open("ab")
        with log:
            self._process = subprocess.Popen(self._command, cwd=self.folder, stdout=log, stderr=log)
        port = int(self.url.rpartition(":")[2].partition("/")[0])
        deadline = time.monotonic() + 600
        while not self._answers(port):
            if time.monotonic() > deadline or self._process.poll() is not None:
                raise RuntimeError(f"{self._command[0]} does not answer: {(self.folder / 'log').read_text()[-500:]}")
            time.sleep(0.01)

    def stop(self) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.wait(60)
            self._process = None

    def wipe(self) -> None:
        """Forget everything, while stopped."""
        for part in self.folder.iterdir():
            if part.name != "log":
                shutil.rmtree(part) if part.is_dir() else part.unlink()

    def _answers(self, port: int) -> bool:
        if not self.url.startswith("redis:"):
            with socket.socket() as probe:
                return probe.connect_ex(("127.0.0.1", port)) == 0
        try:
            with redis.Redis.from_url(self.url, retry=None) as client:
                return bool(client.ping())
        except redis.RedisError:
            return False


def redis_program() -> tuple[Path, str]:
    """The redis-server on PATH if it is 7.0 or newer, else the embedded one; and its name with its version."""
    for name in ("redis-server", "valkey-server"):
        found = shutil.which(name)
        binary = inspect_binary(Path(found)) if found else None
        if binary is not None and binary.version >= (7, 0):
            break
    else:
        binary = find_binary()
    return binary.path, f"{binary.kind} {'.'.join(map(str, binary.version))}"


@contextmanager
def a_server(kind: str = "redis") -> Iterator[Server]:
    """A fresh one. *kind*: redis or nats."""
    with tempfile.TemporaryDirectory(prefix="eventbus-bench-") as name:
        folder, port = Path(name), str(_free_port())
        if kind == "nats":
            command = ["nats-server", "-js", "-sd", str(folder / "js"), "-a", "127.0.0.1", "-p", port]
            server = Server(f"nats://127.0.0.1:{port}", command, folder)
        else:
            program, _ = redis_program()
            command = [str(program), "--bind", "127.0.0.1", "--port", port, "--dir", str(folder)]
            command += ["--appendonly", "yes", "--appendfsync", "everysec"]
            server = Server(f"redis://127.0.0.1:{port}/0", command, folder)
        server.start()
        try:
            yield server
        finally:
            server.stop()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
