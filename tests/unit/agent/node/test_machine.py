"""What is measured of the machine that the tests run on."""

from __future__ import annotations

import threading
from pathlib import Path

import psutil

from eventbus.agent.node.machine import Machine


def test_threads_take_numbers_of_processes_too(tmp_path: Path) -> None:
    end = threading.Event()
    threads = [threading.Thread(target=end.wait) for _ in range(100)]
    for thread in threads:
        thread.start()
    try:
        used, most = Machine(tmp_path).pids()
        assert len(psutil.pids()) + 50 < used < most
    finally:
        end.set()
        for thread in threads:
            thread.join()
