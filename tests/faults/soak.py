"""A random nemesis for as long as you like: `make soak MINUTES=30 ARGS="--seed 7"`.

One fault every few seconds, chosen by the seed, under steady load; each is over before the next begins. What was
acknowledged is compared with what is there at the end, as in every other fault test. The server writes always, so that
nothing at all may be lost or counted twice. Exit code 1 if something was.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from eventbus.settings import MIB
from tests.faults.proxy import Mode, Proxy
from tests.faults.scene import Process, Producing, Scene, reached, until
from tests.faults.table import Row, format_rows

RATE = 400
PRODUCERS, WORKERS = 2, 2
PAUSE_S = (2.0, 5.0)
#: after a fault is over, the longest until events are recorded again
RECOVERY_S = 60.0


class Nemesis:
    """Knows every fault by its name; restarts what it has killed."""

    def __init__(self, scene: Scene, line: Proxy, chance: random.Random) -> None:
        self._scene = scene
        self._line = line
        self._chance = chance
        self.workers: list[Process] = []
        self.running: list[Producing] = []
        self.faults: dict[str, Callable[[], None]] = {
            "worker killed": self.kill_worker,
            "worker frozen": self.freeze_worker,
            "worker stopped": self.stop_worker,
            "producer killed": self.kill_producer,
            "producer stopped": self.stop_producer,
            "server killed": self.kill_server,
            "server frozen": self.freeze_server,
            "server busy": self.keep_busy,
            "memory full": self.fill_memory,
            "functions flushed": self.flush_functions,
            "key of the wrong type": self.spoil_key,
            **{f"network: {mode}": self._bad_line(mode) for mode in Mode if mode is not Mode.PASS},
        }

    def start(self) -> None:
        for _ in range(WORKERS):
            self._start_worker()
        for _ in range(PRODUCERS):
            self._start_producer()

    def _start_worker(self) -> None:
        self.workers.append(self._scene.worker(url=self._line.url))

    def _start_producer(self) -> None:
        self.running.append(self._scene.producer(url=self._line.url, rate=RATE, objects=200))

    def kill_worker(self) -> None:
        victim = self.workers.pop(self._chance.randrange(WORKERS))
        victim.kill()
        self._start_worker()

    def freeze_worker(self) -> None:
        victim = self._chance.choice(self.workers)
        victim.signal(signal.SIGSTOP)
        time.sleep(self._chance.uniform(0.5, 5))  # beyond the take-over time, or not
        victim.signal(signal.SIGCONT)

    def stop_worker(self) -> None:
        victim = self.workers.pop(self._chance.randrange(WORKERS))
        victim.signal(signal.SIGTERM)
        assert victim.wait(20) == 0, victim.said
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

    def kill_server(self) -> None:
        self._scene.kill_server()
        time.sleep(self._chance.uniform(0, 2))
        self._scene.restart_server()

    def freeze_server(self) -> None:
        pid = self._scene.server.pid or 0
        os.kill(pid, signal.SIGSTOP)
        time.sleep(self._chance.uniform(0.5, 7))  # beyond the time a reply may take, or not
        os.kill(pid, signal.SIGCONT)

    def keep_busy(self) -> None:
        script = "local s = redis.call('TIME')[1] + 2 while tonumber(redis.call('TIME')[1]) < s do end return 1"
        self._scene.client.eval(script, 0)

    def fill_memory(self) -> None:
        self._scene.client.config_set("maxmemory", self._scene.client.info("memory")["used_memory"] + 100_000)
        time.sleep(self._chance.uniform(1, 3))
        self._scene.client.config_set("maxmemory", 0)

    def flush_functions(self) -> None:
        for _ in range(self._chance.randrange(1, 20)):
            self._scene.client.function_flush("SYNC")
            time.sleep(0.05)

    def spoil_key(self) -> None:
        keys = self._scene.keys
        key = self._chance.choice([keys.incoming, keys.meta, keys.changes, keys.index_expiry])
        self._scene.client.rename(key, key + b":aside")
        self._scene.client.set(key, "not yours")
        time.sleep(self._chance.uniform(0.1, 2))
        self._scene.client.rename(key + b":aside", key)

    def _bad_line(self, mode: Mode) -> Callable[[], None]:
        def spoil_line() -> None:
            self._line.mode = mode
            if mode is Mode.REFUSE:
                self._line.hang_up()
            time.sleep(self._chance.uniform(1, 6))
            self._line.mode = Mode.PASS

        return spoil_line


def recorded(scene: Scene) -> int:
    return scene.meta("events")


def soak(scene: Scene, minutes: float, seed: int) -> list[Row]:
    """Rows of the faults, and one of the whole."""
    chance = random.Random(seed)
    rows: list[Row] = []
    with Proxy(scene.url, seed=seed, cut_every=10) as line:
        nemesis = Nemesis(scene, line, chance)
        nemesis.start()
        until(lambda: recorded(scene) > 1_000, 60)
        begun = time.monotonic()
        while time.monotonic() - begun < minutes * 60:
            name = chance.choice(sorted(nemesis.faults))
            nemesis.faults[name]()
            over = time.monotonic()
            before = recorded(scene)
            assert reached(lambda before=before: recorded(scene) > before + 50, RECOVERY_S), f"no recovery from {name}"  # type: ignore[misc]
            recovery_s = time.monotonic() - over
            rows.append(Row(name, 1, recovery_s=recovery_s))
            print(f"{over - begun:7.1f} s  {name:28} recovered in {recovery_s:.1f} s", flush=True)
            time.sleep(chance.uniform(*PAUSE_S))
        for producer in nemesis.running:
            producer.signal(signal.SIGTERM)
        for producer in nemesis.running:
            assert producer.wait(60) == 0
        over = time.monotonic()
        verdict = scene.verdict(since=over, within_s=120)
        # What a full memory had no room for is not lost: it was counted as that.
        verdict.tell(min(verdict.missing, scene.meta("not_created")))
    print(verdict)
    whole = Row(
        "27 soak, all together",
        len(rows),
        verdict.accepted,
        verdict.lost + verdict.missing + verdict.phantom + verdict.disorder,
        verdict.duplicate + verdict.double,
        verdict.recovery_s,
        told=verdict.told,
    )
    return [*rows, whole]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    seed = given.seed or random.SystemRandom().randrange(1, 1 << 31)
    print(f"{given.minutes:g} minutes, --seed {seed}", flush=True)
    config = {"appendfsync": "always", "busy-reply-threshold": "500"}
    with (
        tempfile.TemporaryDirectory(prefix="eb") as folder,
        Scene(Path(folder), config=config, incoming_bytes=4096 * MIB) as scene,
    ):
        rows = soak(scene, given.minutes, seed)
    print(format_rows(rows))
    sys.exit(1 if rows[-1].lost or rows[-1].duplicate else 0)


if __name__ == "__main__":
    main()
