"""Messages to systemd: ready once for each status, alive at most four times in the interval of the watchdog."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from eventbus.workers.systemd import Systemd


@pytest.fixture
def manager(short_path: Path) -> Iterator[socket.socket]:
    """The socket of systemd."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as line:
        line.bind(str(short_path / "notify"))
        yield line


def received(manager: socket.socket) -> list[str]:
    found = []
    while True:
        try:
            found.append(manager.recv(4096).decode())
        except BlockingIOError:
            return found


def test_each_status_is_reported_once_on_one_line(manager: socket.socket) -> None:
    systemd = Systemd({"NOTIFY_SOCKET": manager.getsockname()})
    systemd.ready("waits for Redis")
    systemd.ready("waits for Redis")
    systemd.ready("works on\nredis://host")
    systemd.stopping()
    assert received(manager) == [
        "READY=1\nSTATUS=waits for Redis",
        "READY=1\nSTATUS=works on redis://host",
        "STOPPING=1",
    ]


def test_the_watchdog_hears_four_times_an_interval(manager: socket.socket) -> None:
    now_s = 0.0
    environ = {"NOTIFY_SOCKET": manager.getsockname(), "WATCHDOG_USEC": "60000000", "WATCHDOG_PID": str(os.getpid())}
    systemd = Systemd(environ, monotonic=lambda: now_s)
    for _ in range(60):
        systemd.alive()
        now_s += 1
    assert received(manager) == ["WATCHDOG=1"] * 4


def test_the_watchdog_of_another_process_is_not_answered(manager: socket.socket) -> None:
    systemd = Systemd({"NOTIFY_SOCKET": manager.getsockname(), "WATCHDOG_USEC": "60000000", "WATCHDOG_PID": "1"})
    systemd.alive()
    assert received(manager) == []


def test_programs_that_the_worker_starts_do_not_report_in_its_name(manager: socket.socket) -> None:
    environ = {"NOTIFY_SOCKET": manager.getsockname(), "WATCHDOG_USEC": "1", "WATCHDOG_PID": "1", "HOME": "/"}
    Systemd(environ)
    assert environ == {"HOME": "/"}


def test_an_abstract_socket_is_found() -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as line:
        line.bind(f"\0eventbus-test-{os.getpid()}")
        Systemd({"NOTIFY_SOCKET": f"@eventbus-test-{os.getpid()}"}).stopping()
        assert line.recv(100) == b"STOPPING=1"


def test_without_systemd_nothing_is_sent_and_a_socket_that_is_gone_is_only_logged(
    caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    Systemd({}).ready("works")
    assert caplog.messages == []
    Systemd({"NOTIFY_SOCKET": str(tmp_path / "gone")}).ready("works")
    assert "cannot report to systemd" in caplog.text
