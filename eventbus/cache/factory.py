"""One informer for each kind, shared by all its users."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Generic, Protocol, TypeAlias, TypeVar, cast

import msgspec

from eventbus.cache.informer import SharedInformer
from eventbus.model.event import Event
from eventbus.model.kinds import EVENT, LEASE, NODE, Kind
from eventbus.model.list_watch import HasMetadata, ListerWatcher, ListOptions, ObjectList, Watch
from eventbus.model.objects.cluster import Lease, Node
from eventbus.util.clock import Clock

T = TypeVar("T", bound=HasMetadata)

#: Changes the options of every list and every watch, for example to add a selector.
TweakListOptions: TypeAlias = Callable[[ListOptions], ListOptions]


class ObjectSource(Protocol):
    """The store from which a factory reads all its kinds."""

    def lister_watcher(self, kind: Kind[T]) -> ListerWatcher[T]:
        """Return the lister-watcher of one kind; used from the informer's threads only."""
        ...


class SharedInformerFactory:
    """Makes, starts and stops informers. Thread-safe.

        with SharedInformerFactory(source) as factory:
            nodes = factory.nodes()
            nodes.add_event_handler(on_add=greet)
            factory.start()
            factory.wait_for_cache_sync()
            nodes.lister().get("node-1")

    Args:   resync_s: of every informer; 0 = never.  namespace: "" is all.
            tweak_list_options: applied to the options of every list and watch.
            transform: applied to every object of every kind before it is kept; returns the same type.
    Source: client-go `informers/factory.go`.
    """

    def __init__(
        self,
        source: ObjectSource,
        *,
        resync_s: float = 0,
        namespace: str = "",
        tweak_list_options: TweakListOptions | None = None,
        transform: Callable[[Any], Any] | None = None,
        on_error: Callable[[Exception], None] | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._source = source
        self._resync_s = resync_s
        self._namespace = namespace
        self._tweak = tweak_list_options
        self._transform = transform
        self._on_error = on_error
        self._clock = clock
        self._lock = threading.Lock()
        self._informers: dict[str, SharedInformer[Any]] = {}
        self._stopped = False

    def informer_for(self, kind: Kind[T], *, resync_s: float | None = None) -> SharedInformer[T]:
        """Return the informer of *kind*: the first call makes it, and sets how often it resyncs. Started by `start`."""
        with self._lock:
            if kind.plural not in self._informers:
                self._informers[kind.plural] = self._make(kind, self._resync_s if resync_s is None else resync_s)
            return cast("SharedInformer[T]", self._informers[kind.plural])

    def events(self) -> SharedInformer[Event]:
        """Return the informer of events."""
        return self.informer_for(EVENT)

    def nodes(self) -> SharedInformer[Node]:
        """Return the informer of nodes."""
        return self.informer_for(NODE)

    def leases(self) -> SharedInformer[Lease]:
        """Return the informer of leases."""
        return self.informer_for(LEASE)

    def start(self) -> None:
        """Start the informers asked for since the last call; after `stop` none."""
        with self._lock:
            if not self._stopped:
                for informer in self._informers.values():
                    if not informer.has_started:
                        informer.start()

    def wait_for_cache_sync(self, timeout_s: float | None = None) -> dict[str, bool]:
        """Wait for each started informer, at most *timeout_s* real seconds each. Returns: by plural, whether it has."""
        with self._lock:
            started = {plural: informer for plural, informer in self._informers.items() if informer.has_started}
        return {plural: informer.wait_for_cache_sync(timeout_s) for plural, informer in started.items()}

    def stop(self, timeout_s: float | None = None) -> bool:
        """Stop all, for good, and join their threads. Returns: as `SharedInformer.stop`, of all."""
        with self._lock:
            self._stopped = True
            informers = list(self._informers.values())
        return all([informer.stop(timeout_s) for informer in informers])

    def __enter__(self) -> SharedInformerFactory:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _make(self, kind: Kind[T], resync_s: float) -> SharedInformer[T]:
        source = self._source.lister_watcher(kind)
        if self._namespace or self._tweak is not None:
            source = TweakedListerWatcher(source, self._tweak_options)
        return SharedInformer(
            source,
            resource=kind.resource,
            resync_s=resync_s,
            transform=self._transform,
            expected_type=kind.type,
            on_error=self._on_error,
            clock=self._clock,
        )

    def _tweak_options(self, options: ListOptions) -> ListOptions:
        options = msgspec.structs.replace(options, namespace=self._namespace)
        return options if self._tweak is None else self._tweak(options)


class TweakedListerWatcher(Generic[T]):
    """A lister-watcher that changes the options before it passes them to another."""

    def __init__(self, source: ListerWatcher[T], tweak: TweakListOptions) -> None:
        self._source = source
        self._tweak = tweak

    def list(self, options: ListOptions) -> ObjectList[T]:
        """List from the source, with tweaked options."""
        return self._source.list(self._tweak(options))

    def watch(self, options: ListOptions) -> Watch[T]:
        """Watch the source, with tweaked options."""
        return self._source.watch(self._tweak(options))
