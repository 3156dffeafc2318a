"""Two API workers of one bus behind one address, of which one is killed; and a client's program.

Collected by `make test-clients` alone, which fetches the clients.
"""

from __future__ import annotations

import json
import os
import subprocess
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.faults.proxy import Proxy
from tests.support.api_worker import ApiWorker, api_worker

collect_ignore_glob = [] if os.environ.get("EVENTBUS_TEST_CLIENTS") else ["test_*.py"]


class Front:
    """One address, behind which one worker answers, and after `fail_over` the other."""

    def __init__(self, workers: tuple[ApiWorker, ApiWorker], proxy: Proxy) -> None:
        self.workers = workers
        self.url = f"http://127.0.0.1:{proxy.port}"
        self._proxy = proxy

    def fail_over(self) -> ApiWorker:
        """Kill the worker that answers. Returns: the one that does from now on."""
        first, second = self.workers
        first.program.kill()
        self._proxy.switch(second.url)
        return second


@pytest.fixture(params=["1", "3"], ids=["one partition", "three partitions"])
def front(request: pytest.FixtureRequest, embedded_url: str, prefix: str, tmp_path: Path) -> Iterator[Front]:
    with ExitStack() as stack:
        folders = [tmp_path / name for name in ("first", "second")]
        for folder in folders:
            folder.mkdir()
        workers = [
            stack.enter_context(
                api_worker(
                    embedded_url, prefix, folder, "--grant", "operator=user:system:local", partitions=request.param
                )
            )
            for folder in folders
        ]
        proxy = stack.enter_context(Proxy(workers[0].url, seed=1))
        yield Front((workers[0], workers[1]), proxy)


class Client:
    """A running client, and what it has told so far."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.told: list[dict[str, Any]] = []
        self.rest: list[str] = []
        self._process = process
        self._threads = [threading.Thread(target=self._read), threading.Thread(target=self._read_errors)]
        for thread in self._threads:
            thread.start()

    @property
    def names(self) -> set[str]:
        """What it was told of, or listed."""
        listed = {name for line in self.told for name in line.get("listed", ())}
        return listed | {line["name"] for line in self.told if line.get("type") in ("ADDED", "MODIFIED")}

    def alive(self) -> bool:
        """Raises: AssertionError: it has ended, with what it said."""
        assert self._process.poll() is None, "\n".join(self.rest[-40:])
        return True

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        for thread in self._threads:
            thread.join()
        for pipe in (self._process.stdout, self._process.stderr):
            if pipe is not None:
                pipe.close()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            try:
                self.told.append(json.loads(line))
            except ValueError:
                self.rest.append(line)

    def _read_errors(self) -> None:
        assert self._process.stderr is not None
        self.rest.extend(self._process.stderr)


@contextmanager
def running(command: Sequence[str]) -> Iterator[Client]:
    """A client's program, killed at the end."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    client = Client(subprocess.Popen(command, text=True, errors="replace", **pipes))  # type: ignore[call-overload]
    try:
        yield client
    finally:
        client.close()


__all__ = ["Client", "Front", "running"]
