"""Two kinds in a real store, informers of both, and whatever can happen to them."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, Generic, TypeVar

import msgspec
from redis import WatchError

from eventbus.broker.bus import Bus
from eventbus.broker.embedded.server import EmbeddedServer
from eventbus.broker.keys import version_in
from eventbus.broker.redis_errors import redis_errors
from eventbus.cache.factory import TweakedListerWatcher
from eventbus.cache.informer import SharedInformer
from eventbus.cache.processor import HandlerRegistration
from eventbus.errors import AlreadyExists, BusUnavailable, Conflict, Expired, NotFound
from eventbus.model.event import ObjectMeta, ObjectReference
from eventbus.model.kinds import EVENT, NODE, Kind
from eventbus.model.list_watch import HasMetadata, ListerWatcher, ListOptions, ObjectList, Watch
from eventbus.model.objects.cluster import Node, NodeCondition, NodeStatus
from eventbus.record.broadcaster import EventBroadcaster
from eventbus.settings import Settings
from eventbus.store.object_store import ObjectStore
from tests.support.witness import Witness
from tests.waiting import eventually

T = TypeVar("T", bound=HasMetadata)

NAMES = [f"n{i}" for i in range(12)]
FAR_FUTURE_MS = 2**42


class FastClock:
    """Runs a hundred times as fast as the machine's, so that the pauses of a reflector are milliseconds."""

    time_ns = staticmethod(time.time_ns)
    sleep = staticmethod(time.sleep)

    def monotonic(self) -> float:
        return time.monotonic() * 100


class Droppable(Generic[T]):
    """A source whose watches can be dropped, and end by themselves after a while."""

    def __init__(self, source: ListerWatcher[T], chance: random.Random) -> None:
        self.lists = 0
        self.watches = 0
        self._source = source
        self._chance = chance
        self._open: list[Watch[T]] = []

    def list(self, options: ListOptions) -> ObjectList[T]:
        self.lists += not options.continue_
        if options.limit:
            options = msgspec.structs.replace(options, limit=5)  # several pages, though there is little
        return self._source.list(options)

    def watch(self, options: ListOptions) -> Watch[T]:
        self.watches += 1
        watch = self._source.watch(msgspec.structs.replace(options, timeout_s=self._chance.uniform(0.2, 3)))
        self._open = [*self._open[-10:], watch]
        return watch

    def drop(self) -> None:
        for watch in self._open:
            watch.stop()


class World:
    """A store, an informer of each selection, through an API at *url* if it is given, and witnesses of all."""

    def __init__(
        self, server: EmbeddedServer, bus: Bus, settings: Settings, chance: random.Random, *, url: str = ""
    ) -> None:
        self.server = server
        self.bus = bus
        self.chance = chance
        self.kills = 0
        self.flushes = 0
        self._client = bus.client(name="eventbus-test")
        self.store = ObjectStore(bus, self._client)
        self._informed = ObjectStore.open(url, settings=settings) if url else self.store
        self._nodes = self.store.objects(NODE)
        self._broadcaster = EventBroadcaster(bus.url, settings=settings)
        self._broadcaster.start_recording_to_sink()
        self._recorders = [self._broadcaster.new_recorder(name) for name in ("one", "two")]
        self.sources: list[Droppable[Any]] = []
        self.selections: list[tuple[Kind[Any], ListOptions, SharedInformer[Any]]] = []
        self.witnesses: list[tuple[Witness, HandlerRegistration[Any], SharedInformer[Any]]] = []
        self._gone: list[HandlerRegistration[Any]] = []
        for kind, options in (
            (NODE, ListOptions()),
            (NODE, ListOptions(label_selector="app=web")),
            (NODE, ListOptions(field_selector="spec.unschedulable=false,metadata.name!=n3")),
            (EVENT, ListOptions()),
            (EVENT, ListOptions(namespace="shop", field_selector="type=Warning")),
        ):
            self._inform(kind, options)

    def step(self) -> None:
        """Something happens, or Redis is away and it does not."""
        steps = [self._write_node, self._record, self._delete_node, self._expire, self._disturb, self._rest]
        with suppress(BusUnavailable):
            self.chance.choices(steps, weights=[50, 25, 12, 5, 3, 5])[0]()

    def kill_and_restart(self) -> None:
        self.kills += 1
        os.kill(self.server.pid or 0, signal.SIGKILL)
        eventually(lambda: not self.server.running())
        self.server.start()

    def flush(self) -> None:
        """Flush the server, once the clock is past all versions.

        A restart has versions jump ahead of the clock. Flushed, they are in the memory of the server only, and a kill a
        moment before or after takes that as well: then they begin at the clock.
        """
        with redis_errors():
            eventually(self._flushed)
        self.flushes += 1

    def _flushed(self) -> bool:
        with self._client.pipeline() as pipeline, suppress(WatchError):
            versions = [keys.version_of(plural) for keys in self.bus.keys for plural in ("events", "nodes")]
            pipeline.watch(*versions)
            if max(map(version_in, pipeline.mget(versions))) < time.time() * 1e6:
                pipeline.multi()
                pipeline.flushall()
                pipeline.execute()
                return True
        return False

    def end(self) -> None:
        """Every cache equals the store, and every witness holds what it may see of the cache."""
        self._broadcaster.flush(60)
        for kind, options, informer in self.selections:
            eventually(lambda k=kind, o=options, i=informer: self._stored(k, o) == by_key(i.lister().list()))  # type: ignore[misc]
        for witness, registration, informer in self.witnesses:
            eventually(lambda w=witness, i=informer: w.held == by_key(i.lister().list()))  # type: ignore[misc]
            assert registration.failed == 0, "see the log for what it did not believe"
        assert [registration.failed for registration in self._gone if registration.failed] == []

    def stop(self) -> None:
        for _, _, informer in self.selections:
            assert informer.stop(30)
        self._broadcaster.shutdown()
        self._informed.close()
        self.store.close()
        self._client.close()

    def _inform(self, kind: Kind[Any], options: ListOptions) -> None:
        source = Droppable(self._informed.lister_watcher(kind), random.Random(self.chance.random()))

        def tweak(asked: ListOptions) -> ListOptions:
            chosen = {name: getattr(options, name) for name in ("namespace", "label_selector", "field_selector")}
            return msgspec.structs.replace(asked, **chosen)

        informer: SharedInformer[Any] = SharedInformer(
            TweakedListerWatcher(source, tweak), resource=kind.plural, clock=FastClock(), on_error=lambda error: None
        )
        for pause_s in (0, 0.0005):
            witness = Witness(pause_s)
            registration = informer.add_event_handler(witness.on_add, witness.on_update, witness.on_delete)
            self.witnesses.append((witness, registration, informer))
        informer.start()
        self.sources.append(source)
        self.selections.append((kind, options, informer))

    def _stored(self, kind: Kind[Any], options: ListOptions) -> dict[str, Any]:
        try:
            return by_key(self._informed.objects(kind).list(options).items)
        except (BusUnavailable, Expired):
            return {"": None}

    def _write_node(self) -> None:
        name = self.chance.choice(NAMES)
        labels = {"app": self.chance.choice(["web", "db"])}
        change = self.chance.choice([self._create, self._relabel, self._cordon, self._report])
        with suppress(AlreadyExists, NotFound, Conflict):
            change(name, labels)

    def _create(self, name: str, labels: dict[str, str]) -> None:
        self._nodes.create(Node(metadata=ObjectMeta(name=name, labels=labels)))

    def _relabel(self, name: str, labels: dict[str, str]) -> None:
        self._nodes.patch(name, {"metadata": {"labels": labels}})

    def _cordon(self, name: str, labels: dict[str, str]) -> None:
        self._nodes.patch(name, {"spec": {"unschedulable": labels["app"] == "web"}})

    def _report(self, name: str, labels: dict[str, str]) -> None:
        ready = NodeCondition("Ready", self.chance.choice(["True", "False", "Unknown"]), message=str(time.time_ns()))
        self._nodes.update_status(Node(metadata=ObjectMeta(name=name), status=NodeStatus(conditions=(ready,))))

    def _delete_node(self) -> None:
        with suppress(NotFound):
            self._nodes.delete(self.chance.choice(NAMES))

    def _record(self) -> None:
        namespace, name = self.chance.choice(["shop", "bank"]), f"web-{self.chance.randrange(8)}"
        kind = self.chance.choice(["Normal", "Warning"])
        text = f"message {self.chance.randrange(4)}"
        self.chance.choice(self._recorders).event(ObjectReference("Pod", namespace, name), kind, "Said", text)

    def _expire(self) -> None:
        partition = self.chance.randrange(self.bus.partitions)
        with redis_errors():
            keys: Any = self._client.zrange(self.bus.keys[partition].index_expiry, 0, 3)
        if keys:
            self.bus.functions(self._client, partition).expire(self.bus.options, keys, FAR_FUTURE_MS)

    def _disturb(self) -> None:
        disturb: Callable[[], object] = self.chance.choice([self._drop, self._cut, self._forget, self._come_or_go])
        disturb()

    def _drop(self) -> None:
        for source in self.chance.sample(self.sources, 2):
            source.drop()

    def _cut(self) -> None:
        """Cut the lines of all who read."""
        with redis_errors():
            for one in self._client.client_list():
                if one["name"] in ("eventbus-hub", "eventbus-reader"):
                    self._client.client_kill_filter(_id=one["id"])

    def _forget(self) -> None:
        """Trim the changes, so that who is behind has lost some."""
        with redis_errors():
            for keys in self.bus.keys:
                for plural in ("events", "nodes", "leases"):
                    self._client.xtrim(keys.changes_of(plural), maxlen=self.chance.randrange(3), approximate=False)

    def _come_or_go(self) -> None:
        _, _, informer = self.chance.choice(self.selections)
        if len(self.witnesses) < 14:
            witness = Witness()
            registration = informer.add_event_handler(witness.on_add, witness.on_update, witness.on_delete)
            self.witnesses.append((witness, registration, informer))
        else:
            _, registration, informer = self.witnesses.pop()
            informer.remove_event_handler(registration)
            self._gone.append(registration)

    def _rest(self) -> None:
        time.sleep(self.chance.choice([0.001, 0.01]))


def by_key(found: Any) -> dict[str, Any]:
    return {f"{one.metadata.namespace}/{one.metadata.name}": one for one in found}


def moments(steps: int, chance: random.Random, n: int) -> Iterator[int]:
    """*n* different steps of *steps*."""
    yield from sorted(chance.sample(range(1, steps), n))
