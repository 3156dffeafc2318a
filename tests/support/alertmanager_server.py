"""A real Alertmanager, and its amtool, of Debian's package."""

from __future__ import annotations

import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.ports import free_port
from tests.waiting import eventually


@contextmanager
def alertmanager_server(folder: Path, config: str = "") -> Iterator[str]:
    """Run one with *config*, or with only the receiver `a`; yield its URL. Skips the test if it is not installed."""
    port = free_port()
    (folder / "alertmanager.yml").write_text(config or "route: {receiver: a}\nreceivers: [{name: a}]\n")
    words = [f"--config.file={folder}/alertmanager.yml", f"--storage.path={folder}", "--cluster.listen-address="]
    words.append(f"--web.listen-address=127.0.0.1:{port}")
    program = find_program("prometheus-alertmanager")
    with (folder / "log").open("w") as log, subprocess.Popen([program, *words], stderr=log) as process:
        try:
            eventually(lambda: _is_open(port))
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()


def find_program(name: str) -> str:
    """Return its path. Skips the test if it is not installed."""
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"needs {name}: .ci/alertmanager-programs")
    return found


def _is_open(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
