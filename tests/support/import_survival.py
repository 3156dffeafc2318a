"""One scenario for every source of an import: kills, cut replies, outages of both ends, a forgotten position."""

from __future__ import annotations

import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import msgspec

from eventbus import EventBroadcaster, FullBuffer, ObjectReference, Settings
from eventbus.broker.bus import Bus, open_bus
from eventbus.broker.keys import ID_CHARS
from eventbus.imports.importer import POSITION
from eventbus.model.kinds import EVENT, LEASE
from eventbus.model.list_watch import ListOptions
from eventbus.settings import Options
from eventbus.store.event_storage import EventStorage
from eventbus.store.object_store import ObjectStore
from tests.acceptance.programs import Program, environment
from tests.faults.checker import Verdict
from tests.faults.proxy import Mode, Proxy
from tests.faults.scene import Process, Scene, until
from tests.support.ports import free_port
from tests.waiting import reached_while_falling

NAMESPACE = "default"
LEASE_S = "2"
#: Of the pieces of replies, one in so many is cut: first often, so that a list and a watch are cut for sure.
CUT_OFTEN, CUT_SELDOM = 8, 60
#: Cuts of the list, and then of the watch, before the scenario goes on.
CUTS = 2
#: A step has ended if nothing more is imported for so long.
STILL_S = 60
#: Name of an event → its uid and count.
Found = dict[str, tuple[str, int]]


class Source(msgspec.Struct, kw_only=True):
    """A cluster. *record* makes an event of each number, or repeats it; *forget* drops the history of changes."""

    port: int
    record: Callable[[Sequence[int]], None]
    held: Callable[[], Found]
    stop: Callable[[], object]
    start: Callable[[], object]
    forget: Callable[[], object]


class Survived(msgspec.Struct, kw_only=True):
    """The result. *written*: how often each name and count was written on the bus."""

    wanted: Found
    held: Found
    written: Counter[tuple[str, int]]
    recovery_s: float
    forgotten: bool  #: a worker has compared all events because its position was too old
    cuts: int

    @property
    def wrong(self) -> int:
        """Events that are not there, or have another uid or count."""
        return sum(1 for name, found in self.wanted.items() if self.held.get(name) != found)

    @property
    def doubles(self) -> int:
        return doubles(self.written)

    @property
    def verdict(self) -> Verdict:
        events = sum(count for _, count in self.wanted.values())
        return Verdict(accepted=events, missing=self.wrong, double=self.doubles, recovery_s=self.recovery_s)

    def assert_good(self) -> None:
        assert self.held == self.wanted, f"{self.wrong} of {len(self.wanted)} have no or another uid or count"
        assert not self.doubles, self.written.most_common(3)
        assert self.forgotten
        assert self.cuts


def survive(
    source: Source,
    scene: Scene,
    write_config: Callable[[Path, int], Path],
    *,
    events: int,
    down_s: float,
) -> Survived:
    """*events* at the source, and repeats of them; both ends are away for *down_s*.

    Args: write_config: makes the kubeconfig in a file, for a port.
    """
    workers: list[Process] = []

    with Proxy(f"tcp://127.0.0.1:{source.port}", seed=7, cut_every=CUT_OFTEN) as line:
        config = write_config(scene.folder / "kubeconfig", line.port)

        def start(crash: str = "") -> Process:
            workers.append(start_import(scene, config, crash=crash))
            return workers[-1]

        def settle() -> float:
            """Wait until the bus has what the source has. Returns: seconds."""
            begun, wanted = time.monotonic(), source.held()

            reached_while_falling(
                lambda: not missing(scene.bus, wanted), lambda: missing(scene.bus, wanted), STILL_S, (Exception,)
            )
            return time.monotonic() - begun

        def stir_until(condition: Callable[[], bool]) -> None:
            """Repeat an event at the source, again and again: the workers need changes to be cut or to die at."""
            step = 0
            while not condition():
                source.record([step % (events // 2)])
                step += 1

        source.record(range(events // 2))
        line.mode = Mode.CUT_REPLY
        first = start()  # dies in the middle of its list, or soon after it
        until(lambda: len(imported(scene.bus)) >= events // 20)
        stir_until(lambda: line.cuts >= CUTS)
        first.kill()
        line.cut_every = CUT_SELDOM  # a list has to come to its end
        # Two replicas: each dies in the middle of a watch, before and after it has written a batch.
        victims = [start("kill:import:taken:2"), start("kill:import:written:2")]
        source.record(range(events // 2, events))
        stir_until(lambda: all(victim.ended for victim in victims))
        assert {victim.wait() for victim in victims} == {-signal.SIGKILL}
        pair = [start(), start()]
        settle()
        line.cut_every, wanted_cuts = CUT_OFTEN, line.cuts + CUTS
        stir_until(lambda: line.cuts >= wanted_cuts)
        line.cut_every = CUT_SELDOM
        settle()

        # The source is away, and meanwhile the worker that acts is killed.
        source.record(range(0, events, 2))
        source.stop()
        acting = next(worker for worker in pair if "is active now" in worker.said)
        acting.kill()
        time.sleep(down_s)  # a length of the outage, not a wait for something
        source.start()
        source.record(range(1, events, 2))
        settle()

        # Redis is away.
        source.record(range(0, events, 3))
        scene.kill_server()
        time.sleep(down_s)
        scene.restart_server()
        back = time.monotonic()
        source.record(range(1, events, 3))
        settle()
        recovery_s = time.monotonic() - back

        # The source forgets the changes that the workers have missed.
        before = position_of(scene.bus)
        source.record([0])
        until(lambda: position_of(scene.bus) not in ("", before))  # the comparison after the restart of Redis has ended
        line.mode = Mode.REFUSE
        line.hang_up()
        source.record(range(0, events + events // 20, 4))
        source.forget()
        line.mode = Mode.CUT_REPLY
        settle()

        source.stop()
        source.start()
        source.record(range(0, events, 10))
        settle()
        wanted = source.held()
        return Survived(
            wanted=wanted,
            held=imported(scene.bus),
            written=written(scene.bus),
            recovery_s=recovery_s,
            forgotten=any("has forgotten the position" in worker.said for worker in workers),
            cuts=line.cuts,
        )


def start_import(
    scene: Scene, config: Path, *, crash: str = "", breakage: tuple[str, ...] = (), url: str = ""
) -> Process:
    """Start a worker that imports into the bus of *scene*."""
    program = ["tests.faults.breakages", *breakage, "--"] if breakage else ["eventbus"]
    words = ["worker", "import", "--kubeconfig", str(config), "--leader-lease-s", LEASE_S]
    env = ({"EVENTBUS_CRASH": crash} if crash else {}) | ({"EVENTBUS_REDIS_URL": url} if url else {})
    return scene.run([sys.executable, "-m", *program, *words], env)


def imported(bus: Bus) -> Found:
    with ObjectStore.of(bus) as store:
        found = store.objects(EVENT).list(ListOptions(namespace=NAMESPACE)).items
        return {event.metadata.name: (event.metadata.uid, event.times_seen) for event in found}


def position_of(bus: Bus) -> str:
    """Return the stored position of the workers; "": there is none, or they compare all events."""
    with ObjectStore.of(bus) as store:
        leases = store.objects(LEASE).list().items
    return next(filter(None, (lease.metadata.annotations.get(POSITION, "") for lease in leases)), "")


def missing(bus: Bus, wanted: Found) -> int:
    """Return how many of *wanted* are not there, or have another uid or count."""
    held = imported(bus)
    return sum(1 for name, found in wanted.items() if held.get(name) != found)


def written(bus: Bus) -> Counter[tuple[str, int]]:
    """Return how often each name and count of an imported event was written: each write is a change."""
    with bus.client() as client:
        decode = EventStorage(kind=EVENT, bus=bus, client=client).decode
        entries: Any = client.xrange(bus.keys[0].changes_of(EVENT.plural))
    changed = [(name, packed) for _, fields in entries for name, packed in fields.items()]
    events = [decode(packed) for name, packed in changed if len(name) == 1 + ID_CHARS and name[:1] in (b"A", b"M")]
    ours = [event for event in events if event is not None and event.metadata.namespace == NAMESPACE]
    return Counter((event.metadata.name, event.times_seen) for event in ours)


def doubles(writes: Counter[tuple[str, int]]) -> int:
    return sum(times - 1 for times in writes.values())


@contextmanager
def bus_as_source(url: str, prefix: str, folder: Path) -> Iterator[Source]:
    """Another bus, whose API worker is killed by `stop`. Its events are recorded, and counted by its sink worker."""
    settings = Settings(redis_url=url, prefix=prefix, buffer_full=FullBuffer.WAIT, buffer_wait_s=60)
    bus = open_bus(url, settings, options=Options(burst=1_000_000, qps=1000.0))
    env, port = environment(url, prefix, worker_block_ms="100"), free_port()
    workers: list[Program] = []
    recorded: Counter[str] = Counter()

    with ExitStack() as stack:
        broadcaster = stack.enter_context(EventBroadcaster(settings=settings))
        recorder = broadcaster.new_recorder("test")
        stack.enter_context(Program("worker", "sink", env=env, folder=folder))

        def record(numbers: Sequence[int]) -> None:
            for number in numbers:
                recorder.event(ObjectReference("Pod", NAMESPACE, f"pod-{number}"), "Normal", "Tested", "hello")
            recorded.update(f"pod-{number}" for number in numbers)
            assert broadcaster.flush(60)

        def counted() -> Mapping[str, int]:
            with ObjectStore.of(bus) as store:
                found = store.objects(EVENT).list(ListOptions(namespace=NAMESPACE)).items
            return {event.involved_object.name: event.count for event in found}

        def held() -> Found:
            until(lambda: counted() == recorded)
            return imported(bus)

        def start() -> None:
            command = ("worker", "api", "--listen", f"127.0.0.1:{port}")
            workers.append(stack.enter_context(Program(*command, env=env, folder=folder)))

        def forget() -> None:
            with bus.client() as client:
                until(lambda: counted() == recorded)
                client.xtrim(bus.keys[0].changes_of("events"), maxlen=0, approximate=False)
            record([0])  # a change after those that are gone

        start()
        yield Source(port=port, record=record, held=held, stop=lambda: workers[-1].kill(), start=start, forget=forget)


__all__ = [
    "Found",
    "Source",
    "Survived",
    "bus_as_source",
    "doubles",
    "imported",
    "missing",
    "position_of",
    "start_import",
    "survive",
    "written",
]
