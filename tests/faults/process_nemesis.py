"""The faults of the soak's workers and producers: they die, freeze and are told to end, and others take their place."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Callable

from tests.faults.scene import Process, Producing, Scene

RATE = 400
PRODUCERS, WORKERS = 2, 2


class ProcessNemesis:
    """Knows every fault by its name: *faults*, to which others add theirs. What is killed is started again.

    A fault begins, lasts a while that chance decides, and is over when its method returns.

    Args: url: returns that by which workers and producers find the scene's servers.  mark: before each name.
    """

    def __init__(self, scene: Scene, url: Callable[[], str], chance: random.Random, mark: str = "") -> None:
        self._scene = scene
        self._url = url
        self._chance = chance
        self.workers: list[Process] = []
        self.running: list[Producing] = []
        self.faults: dict[str, Callable[[], None]] = {
            f"{mark}worker killed": self.kill_worker,
            f"{mark}worker frozen": self.freeze_worker,
            f"{mark}worker stopped": self.stop_worker,
            f"{mark}producer killed": self.kill_producer,
            f"{mark}producer stopped": self.stop_producer,
        }

    def start(self) -> None:
        for _ in range(WORKERS):
            self._start_worker()
        for _ in range(PRODUCERS):
            self._start_producer()

    def _start_worker(self) -> None:
        self.workers.append(self._scene.worker(url=self._url()))

    def _start_producer(self) -> None:
        self.running.append(self._scene.producer(url=self._url(), rate=RATE, objects=200))

    def kill_worker(self) -> None:
        self.workers.pop(self._chance.randrange(WORKERS)).kill()
        self._start_worker()

    def freeze_worker(self) -> None:
        victim = self._chance.choice(self.workers)
        victim.signal(signal.SIGSTOP)
        time.sleep(self._chance.uniform(0.5, 5))  # beyond the take-over time, or not
        victim.signal(signal.SIGCONT)

    def stop_worker(self) -> None:
        victim = self.workers.pop(self._chance.randrange(WORKERS))
        victim.signal(signal.SIGTERM)
        assert victim.wait(30) == 0, victim.said
        self._start_worker()

    def kill_producer(self) -> None:
        self.running.pop(self._chance.randrange(PRODUCERS)).kill()
        self._start_producer()

    def stop_producer(self) -> None:
        stopped = self.running.pop(self._chance.randrange(PRODUCERS))
        stopped.signal(signal.SIGTERM)
        assert stopped.wait(40) == 0, stopped.said
        assert not stopped.losses, stopped.losses
        self._start_producer()
