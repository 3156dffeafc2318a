"""A random nemesis for as long as you like: `make soak MINUTES=30 ARGS="--seed 7"`.

Rounds of a few minutes, each on a server of its own. In a round one fault follows the other every few seconds, chosen
by the seed, under steady load and before the same processes; in the end what was acknowledged is compared with what is
there, and nothing may be left behind. Between them what destroys everything has a scene of its own. Exit code 1 if
something was lost or counted twice, did not recover, or leaked. With `--cluster` every round is on a cluster of three
primaries and three replicas, whose nodes die, freeze and give over.
"""

from __future__ import annotations

import argparse
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from eventbus.consume.dead_letter import DeadLetter
from eventbus.settings import MIB
from tests.faults.checker import Verdict
from tests.faults.cluster_nemesis import PARTITIONS, ClusterNemesis
from tests.faults.nemesis import CONFIG, Nemesis, on_a_port
from tests.faults.proxy import Proxy
from tests.faults.scene import Process, Scene, reached, until
from tests.faults.table import Row, format_rows
from tests.faults.test_destroyed import Destroyed, destroy_while_nobody_reads
from tests.faults.test_server import meanwhile
from tests.functions.cluster import Cluster

PAUSE_S = (2.0, 5.0)
ROUND_S = 240.0
#: after a fault is over, the longest until events are recorded again
RECOVERY_S = 60.0
#: that what is left at the end of a round has stood still, before it is called lost: to wait is not to be lost
STILL_S = 120.0
#: that a worker may grow after its first fault: its buffers, and what an allocator keeps
GROWTH_BYTES = 64 * MIB
#: keys of a partition that are not one an object, a subject, a producer or a minute
FIXED_KEYS = 24


def recorded(scene: Scene) -> int:
    return scene.meta("events")


def rss(process: Process) -> int:
    """Bytes of memory that it has."""
    return int(Path(f"/proc/{process.pid}/statm").read_text().split()[1]) * 4096


class Round:
    """One scene under the nemesis until *end*. Rows of its faults, and what went wrong beside the verdict."""

    def __init__(self, scene: Scene, port: str, seed: int, end: float) -> None:
        self._scene = scene
        self._chance = random.Random(seed)
        self._end = end
        self._first_rss: dict[int, int] = {}
        self._line = Proxy(scene.url, seed=seed, cut_every=10)
        self._nemesis = Nemesis(scene, self._line, self._chance, port)
        self.left_out = self._nemesis.left_out
        self.rows: list[Row] = []
        self.verdict: Verdict | None = None  #: None: it came to none

    def run(self) -> None:
        """Until the end and the verdict. Raises: AssertionError and the like: something did not recover, or leaked."""
        with self._line:
            self._run()

    def _run(self) -> None:
        self._nemesis.start()
        until(lambda: recorded(self._scene) > 1_000, 60)
        deck: list[str] = []
        while time.monotonic() < self._end or not self.rows:
            if not deck:  # each once before any comes again
                deck = sorted(self._nemesis.faults)
                self._chance.shuffle(deck)
            self._one_fault(deck.pop())
            time.sleep(self._chance.uniform(*PAUSE_S))
        for producer in self._nemesis.running:
            producer.signal(signal.SIGTERM)
        for producer in self._nemesis.running:
            assert producer.wait(60) == 0, producer.said[-500:]
        over = time.monotonic()
        self.verdict = self._scene.verdict(since=over, still_s=STILL_S)
        # What a full memory had no room for is not lost if exactly that was counted.
        not_created = self._scene.not_created
        if self.verdict.missing == not_created:
            self.verdict.tell(not_created)
        self._nothing_is_left()

    def _one_fault(self, name: str) -> None:
        scene, before = self._scene, self._events()
        started = time.monotonic()
        self._nemesis.faults[name]()
        over, mark = time.monotonic(), recorded(scene)
        assert reached(lambda: recorded(scene) > mark + 50, RECOVERY_S), f"no recovery from {name}"
        recovery_s = time.monotonic() - over
        self.rows.append(Row(name, 1, self._events() - before, recovery_s=recovery_s))
        print(f"{name:28} {over - started:4.1f} s, recovered in {recovery_s:.1f} s", flush=True)
        for worker in self._nemesis.workers:
            self._first_rss.setdefault(worker.pid, rss(worker))

    def _events(self) -> int:
        return sum(producer.events for producer in self._scene.producers)

    def _nothing_is_left(self) -> None:
        """No leak: memory of workers, pending entries, names of the dead, keys, and the dead letter has the poison."""
        scene, workers = self._scene, self._nemesis.workers
        for worker in workers:
            growth = rss(worker) - self._first_rss.get(worker.pid, rss(worker))
            assert growth <= GROWTH_BYTES, f"a worker has grown by {growth / MIB:.0f} MiB"
        keys = scene.keys
        assert scene.client.xpending(keys.incoming, "sink")["pending"] == 0
        assert reached(lambda: len(scene.client.xinfo_consumers(keys.incoming, "sink")) <= len(workers), 30), (
            f"consumers of the dead: {scene.client.xinfo_consumers(keys.incoming, 'sink')}"
        )
        assert scene.client.hlen(keys.workers) <= len(workers), scene.client.hgetall(keys.workers)
        assert scene.client.hgetall(keys.attempts + b"sink") == {}
        each = (keys.object, keys.correlation, keys.producer, keys.occurrences)
        others = [key for key in scene.client.scan_iter(count=1_000) if not key.startswith(each)]
        assert len(others) <= FIXED_KEYS, others
        assert not [key for key in others if key.startswith(keys.note_of(""))], others
        causes = Counter(entry.cause for entry in DeadLetter(scene.bus, scene.client).list())
        assert causes == Counter({"unreadable": self._nemesis.poisoned} if self._nemesis.poisoned else {}), causes


def flush_all(scene: Scene) -> Verdict:
    over = meanwhile(scene, scene.client.flushall)
    return scene.verdict(since=over)


def destroy_stream(scene: Scene) -> Verdict:
    return Destroyed(scene).verdict


def destroy_group(scene: Scene) -> Verdict:
    verdict, _ = destroy_while_nobody_reads(scene)
    return verdict


#: What takes the judge's own stream away, or more: in a scene of its own.
DESTROYING: dict[str, Callable[[Scene], Verdict]] = {
    "FLUSHALL": flush_all,
    "stream destroyed": destroy_stream,
    "group destroyed": destroy_group,
}


def row_of(fault: str, verdict: Verdict) -> Row:
    lost = verdict.lost + verdict.missing + verdict.phantom + verdict.disorder
    double = verdict.duplicate + verdict.double
    return Row(fault, 1, verdict.accepted, lost, double, verdict.recovery_s, told=verdict.told)


class ClusterRound:
    """One scene on a cluster under its nemesis until *end*."""

    def __init__(self, scene: Scene, cluster: Cluster, seed: int, end: float) -> None:
        self._scene = scene
        self._chance = random.Random(seed)
        self._end = end
        self._nemesis = ClusterNemesis(scene, cluster, self._chance)
        self.rows: list[Row] = []
        self.verdict: Verdict | None = None  #: None: it came to none

    def run(self) -> None:
        """Until the end and the verdict. Raises: AssertionError: something did not recover."""
        self._nemesis.start()
        until(lambda: all(self._recorded().values()), 60)
        deck: list[str] = []
        while time.monotonic() < self._end or not self.rows:
            if not deck:
                deck = sorted(self._nemesis.faults)
                self._chance.shuffle(deck)
            self._one_fault(deck.pop())
            time.sleep(self._chance.uniform(*PAUSE_S))
        for producer in self._nemesis.running:
            producer.signal(signal.SIGTERM)
        for producer in self._nemesis.running:
            assert producer.wait(60) == 0, producer.said[-500:]
        self.verdict = self._scene.verdict(since=time.monotonic(), still_s=STILL_S)
        for keys in self._scene.bus.keys:
            assert self._scene.client.xpending(keys.incoming, "sink")["pending"] == 0
            assert not self._scene.client.hget(keys.meta, "mended"), "the stream's numbers were wrong"

    def _one_fault(self, name: str) -> None:
        before, started = sum(each.events for each in self._scene.producers), time.monotonic()
        self._nemesis.faults[name]()
        over, marks = time.monotonic(), self._recorded()
        went_on = reached(lambda: all(now > marks[p] + 10 for p, now in self._recorded().items()), RECOVERY_S)
        assert went_on, f"no recovery from {name}"
        recovery_s = time.monotonic() - over
        after = sum(each.events for each in self._scene.producers)
        self.rows.append(Row(name, 1, after - before, recovery_s=recovery_s))
        print(f"{name:28} {over - started:4.1f} s, recovered in {recovery_s:.1f} s", flush=True)

    def _recorded(self) -> dict[int, int]:
        """By partition, as soon as all can be read."""
        found: dict[int, int] = {}

        def read() -> bool:
            client = self._scene.client
            found.update({keys.partition: int(client.hget(keys.meta, "events") or 0) for keys in self._scene.bus.keys})
            return True

        until(read, RECOVERY_S)
        return found


class Soak:
    """Rounds until the time is over; one that fails is noted, and the next begins."""

    def __init__(self, minutes: float, seed: int, *, cluster: bool = False) -> None:
        self._cluster = cluster
        self._end = time.monotonic() + minutes * 60
        self._chance = random.Random(seed)
        self.rows: list[Row] = []
        self.failures: list[str] = []
        self.left_out: set[str] = set()

    def run(self) -> None:
        while time.monotonic() < self._end:
            if self._cluster:
                self._guarded(self._cluster_nemesis)
                continue
            self._guarded(self._nemesis)
            for name in sorted(DESTROYING):
                self._guarded(self._destroying, name)

    def _guarded(self, step: Callable[..., None], *words: str) -> None:
        with tempfile.TemporaryDirectory(prefix="eb", ignore_cleanup_errors=True) as folder:
            try:
                step(Path(folder), *words)
            except Exception as error:  # the table and the exit code tell; the other rounds go on
                self.failures.append(f"{' '.join(words) or 'round'}: {type(error).__name__}: {error}")
                print(f"FAILED {self.failures[-1]}", flush=True)

    def _nemesis(self, folder: Path) -> None:
        end, seed, config = min(self._end, time.monotonic() + ROUND_S), self._chance.randrange(1 << 31), on_a_port()
        with Scene(folder, config=config, incoming_bytes=4096 * MIB) as scene:
            round = Round(scene, config["port"], seed, end)
            self.left_out |= set(round.left_out)
            try:
                round.run()
            finally:
                self.rows += round.rows
                if round.verdict:
                    self._note_round(round.rows, "27 rounds, all together", round.verdict)

    def _cluster_nemesis(self, folder: Path) -> None:
        end, seed = min(self._end, time.monotonic() + ROUND_S), self._chance.randrange(1 << 31)
        cluster = Cluster(folder, appendfsync="everysec")
        with Scene(folder, server=cluster, partitions=PARTITIONS, incoming_bytes=1024 * MIB) as scene:
            round = ClusterRound(scene, cluster, seed, end)
            try:
                round.run()
            finally:
                self.rows += round.rows
                if round.verdict:
                    self._note_round(round.rows, "33 cluster, all together", round.verdict)

    def _note_round(self, rows: list[Row], fault: str, verdict: Verdict) -> None:
        whole = row_of(fault, verdict)
        self._note(whole)
        if not verdict.settled:
            self.failures.append(f"{fault}: the store's group stood still for {STILL_S:.0f} s before it had finished")
        for row in rows:  # which of its faults did the harm of a round, nobody can say
            row.lost, row.duplicate = whole.lost, whole.duplicate

    def _destroying(self, folder: Path, name: str) -> None:
        with Scene(folder, config=CONFIG, hold=False) as scene:
            verdict = DESTROYING[name](scene)
        self._note(row_of(name, verdict))

    def _note(self, row: Row) -> None:
        self.rows.append(row)
        print(f"{row.fault:28} {row.events} events, {row.lost} lost, {row.duplicate} duplicate", flush=True)
        if row.lost or row.duplicate:
            self.failures.append(f"{row.fault}: {row.lost} lost, {row.duplicate} duplicate")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--cluster", action="store_true", help="on a cluster of three primaries and three replicas")
    given = parser.parse_args()
    seed = given.seed or random.SystemRandom().randrange(1, 1 << 31)
    print(f"{given.minutes:g} minutes, --seed {seed}", flush=True)
    soak = Soak(given.minutes, seed, cluster=given.cluster)
    try:
        soak.run()
    except KeyboardInterrupt:
        soak.failures.append("interrupted")
    print(format_rows(soak.rows))
    for reason in sorted(soak.left_out):
        print(f"left out: {reason}")
    for failure in soak.failures:
        print(f"FAILED {failure}")
    print(f"--seed {seed}")
    sys.exit(bool(soak.failures))


if __name__ == "__main__":
    main()
