"""In the end every cache equals its source, and no handler got an impossible history, through any faults."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable

import msgspec
import pytest

from eventbus.cache.delta_fifo import DeletedFinalStateUnknown, last_state
from eventbus.cache.factory import TweakedListerWatcher
from eventbus.cache.indexer import object_key
from eventbus.cache.informer import SharedInformer
from eventbus.cache.processor import HandlerRegistration
from eventbus.errors import BusUnavailable, EventBusError
from eventbus.model.event import Event
from eventbus.model.list_watch import ListerWatcher
from eventbus.testing.watch_source import FakeWatchSource
from tests.unit.cache.things import make_thing
from tests.waiting import eventually

STEPS = 1_500
NAMES = [f"n{i}" for i in range(12)]


class FastClock:
    """Runs a thousand times as fast as the machine's, so that the pauses of a reflector are milliseconds."""

    time_ns = staticmethod(time.time_ns)
    sleep = staticmethod(time.sleep)

    def monotonic(self) -> float:
        return time.monotonic() * 1_000


class Witness:
    """A handler that believes only what can be; each disbelief is a notification at which it raises."""

    def __init__(self, sees: Callable[[Event], bool] = lambda found: True, pause_s: float = 0) -> None:
        self.held: dict[str, Event] = {}
        self.sees = sees
        self._pause_s = pause_s

    def on_add(self, found: Event, initial: bool) -> None:
        self._look_at(found)
        assert object_key(found) not in self.held, f"added twice: {found}"
        self.held[object_key(found)] = found

    def on_update(self, old: Event, new: Event) -> None:
        self._look_at(new)
        assert self.held[object_key(new)] == old, "the step does not begin where the last one ended"
        assert version(new) > version(old) or new == old, "back in time"
        self.held[object_key(new)] = new

    def on_delete(self, found: Event | DeletedFinalStateUnknown[Event]) -> None:
        held = self.held.pop(object_key(last_state(found)))
        assert version(last_state(found)) >= version(held)
        if isinstance(found, DeletedFinalStateUnknown):
            assert found.object == held, "the last state that was seen"

    def _look_at(self, found: Event) -> None:
        assert self.sees(found), "does not pass the filter"
        if self._pause_s:
            time.sleep(self._pause_s)


def version(found: Event) -> int:
    return int(found.metadata.resource_version)


def is_web(found: Event) -> bool:
    return found.metadata.labels.get("app") == "web"


class World:
    """A source, an informer of all and one of what is labelled app=web, and witnesses of both."""

    def __init__(self, chance: random.Random) -> None:
        self.source: FakeWatchSource[Event] = FakeWatchSource()
        self.chance = chance
        web = TweakedListerWatcher(self.source, lambda asked: msgspec.structs.replace(asked, label_selector="app=web"))
        self.informers = [self._informer(self.source, 50), self._informer(web, 0)]
        self.witnesses: list[tuple[Witness, HandlerRegistration[Event], SharedInformer[Event]]] = []
        for informer in self.informers:
            self.watch(informer, Witness())
            self.watch(informer, Witness(pause_s=0.0005))
            self.watch(informer, Witness(sees=lambda found: found.message < "5"))
            informer.start()

    def watch(self, informer: SharedInformer[Event], witness: Witness) -> None:
        registration = informer.add_event_handler(
            witness.on_add, witness.on_update, witness.on_delete, filter=witness.sees
        )
        self.witnesses.append((witness, registration, informer))

    def step(self) -> None:
        """Something happens."""
        steps = [self._write, self._delete, self._misbehave, self._come_or_go, self._rest]
        self.chance.choices(steps, weights=[60, 15, 8, 1, 10])[0]()

    def end(self) -> None:
        self.source.release_watches()
        everything = self.source.objects
        web = {key: found for key, found in everything.items() if is_web(found)}
        for informer, expected in zip(self.informers, (everything, web), strict=True):
            wanted = set(expected.values())
            eventually(lambda informer=informer, wanted=wanted: set(informer.lister().list()) == wanted)  # type: ignore[misc]
            by_namespace = informer.indexer.by_index("namespace", "")
            assert set(by_namespace) == wanted
        for witness, registration, informer in self.witnesses:
            eventually(lambda registration=registration: not registration.pending)  # type: ignore[misc]
            seen = {found for found in informer.lister().list() if witness.sees(found)}
            eventually(lambda witness=witness, seen=seen: set(witness.held.values()) == seen)  # type: ignore[misc]
            assert registration.failed == 0, "see the log for what it did not believe"

    def stop(self) -> None:
        for informer in self.informers:
            assert informer.stop(30)

    def _informer(self, source: ListerWatcher[Event], resync_s: float) -> SharedInformer[Event]:
        return SharedInformer(source, clock=FastClock(), resync_s=resync_s, on_error=lambda error: None)

    def _write(self) -> None:
        labels = {"app": self.chance.choice(["web", "db"])}
        self.source.add(make_thing(self.chance.choice(NAMES), str(self.chance.randrange(10)), **labels))

    def _delete(self) -> None:
        if self.source.objects:
            self.source.delete(self.chance.choice(list(self.source.objects.values())))

    def _rest(self) -> None:
        time.sleep(0.001)

    def _misbehave(self) -> None:
        source = self.source
        misbehaviour: Callable[[], None] = self.chance.choice(
            [
                source.drop_watches,
                source.expire,
                source.hold_watches,
                source.release_watches,
                source.bookmark,
                lambda: source.break_watches(EventBusError("broken")),
                lambda: source.fail_next_list(BusUnavailable("away")),
                lambda: source.fail_next_watch(BusUnavailable("away"), EventBusError("odd")),
            ]
        )
        misbehaviour()

    def _come_or_go(self) -> None:
        informer = self.chance.choice(self.informers)
        if self.chance.random() < 0.7:
            self.watch(informer, Witness(pause_s=self.chance.choice([0, 0.001])))
        elif len(self.witnesses) > 6:
            _, registration, informer = self.witnesses.pop()
            informer.remove_event_handler(registration)


@pytest.mark.parametrize("seed", range(3))
def test_every_cache_ends_equal_to_its_source_and_every_history_is_legal(seed: int) -> None:
    worlds = [World(random.Random(10 * seed + i)) for i in range(2)]  # two kinds at once
    try:
        steppers = [threading.Thread(target=_run, args=(world,)) for world in worlds]
        for stepper in steppers:
            stepper.start()
        for stepper in steppers:
            stepper.join()
        for world in worlds:
            world.end()
            assert len(world.source.lists) > 10, "watches were lost"
    finally:
        for world in worlds:
            world.stop()


def _run(world: World) -> None:
    for _ in range(STEPS):
        world.step()


def test_a_witness_disbelieves_what_cannot_be() -> None:
    """The control: these histories must fail."""
    witness = Witness(sees=lambda found: found.message != "hidden")
    first, second = make_thing("a", "1", version="1"), make_thing("a", "2", version="2")
    witness.on_add(first, False)
    with pytest.raises(AssertionError, match="added twice"):
        witness.on_add(first, False)
    with pytest.raises(AssertionError, match="begin where"):
        witness.on_update(second, second)
    with pytest.raises(AssertionError, match="pass the filter"):
        witness.on_update(first, make_thing("a", "hidden", version="3"))
    witness.on_update(first, second)
    with pytest.raises(AssertionError, match="back in time"):
        witness.on_update(second, first)
    with pytest.raises(AssertionError, match="the last state"):
        witness.on_delete(DeletedFinalStateUnknown("a", make_thing("a", "x", version="2")))
