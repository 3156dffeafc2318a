"""Imports the events of a cluster: one of several workers acts, and goes on where the last one has stopped.

The position, a version of the cluster, is an annotation of the lease of the acting worker. It is stored with each
renewal, after the events up to it. The next worker reads the events after it again, which changes nothing.

A restarted Redis, or a replica that takes over, may lack the last events although a worker goes on at a later position.
So each write and each renewal notes the newest versions of the store, too. If the store falls behind them, all events
are compared.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from hashlib import blake2b
from typing import Final

from eventbus.broker.bus import Bus
from eventbus.broker.connection.connect import Client
from eventbus.consume.consumer import RedisAbsence
from eventbus.consume.heartbeat import LoopHealth
from eventbus.errors import EventBusError, Expired, InvalidEvent, SinkError, Throttled, UnexpectedReply
from eventbus.imports.cluster import Cluster, Watch
from eventbus.imports.event_writer import EventWriter
from eventbus.lifecycle.election import Election
from eventbus.model.event import Event
from eventbus.model.kinds import EVENT
from eventbus.model.objects.cluster import LIFECYCLE_LEASE
from eventbus.store.changes import StoreMark, read_marks
from eventbus.util.backoff import Backoff
from eventbus.util.clock import Clock
from eventbus.util.failpoints import failpoint
from eventbus.util.log import log

#: The annotation of the lease with the position.
POSITION: Final = "eventbus.dev/resource-version"
#: The annotation with the newest version of the store and its server, for each partition.
STORE: Final = "eventbus.dev/store-marks"
#: Events that are written at once.
BATCH: Final = 250
#: Seconds that a turn waits for changes.
TURN_S: Final = 0.5
RETRY_S: Final = 1.0
#: Seconds between two watches, if a server ends them at once.
AFTER_WATCH_S: Final = 0.2
_BACKOFF: Final = Backoff(first_s=1, last_s=30, at_least=0.5)


def lease_of(server: str, namespace: str, match: str) -> tuple[str, str]:
    """Return namespace and name of the lease: importers of the same events share it."""
    digest = blake2b("\0".join((server, namespace, match)).encode("utf-8", "replace"), digest_size=6).hexdigest()
    return LIFECYCLE_LEASE[0], f"eventbus-import-{digest}"


class LeaseLost(Exception):
    """Another worker imports now."""


class Importer:
    """Implements `Part`. One thread, and that of a watch.

    Args: client: of this thread.
          end: ends the worker with an exit code: the cluster is this bus.
          close: called at the end, from its thread.
    """

    def __init__(
        self,
        *,
        bus: Bus,
        client: Client,
        cluster: Cluster,
        writer: EventWriter,
        election: Election,
        clock: Clock,
        on_change: Callable[[str, str], None],
        end: Callable[[int], None],
        close: Callable[[], None],
    ) -> None:
        self._bus = bus
        self._client = client
        self._cluster = cluster
        self._writer = writer
        self._election = election
        self._clock = clock
        self._on_change = on_change
        self._end = end
        self._close = close
        self._absence = RedisAbsence("import", on_change)
        self._stop = threading.Event()
        self._lists = 0
        self._writes_lost = False  #: since the last list began
        self._cluster_failures = 0  #: in a row
        self._failing_since: float | None = None
        self._campaign_at = 0.0
        self._last_progress = clock.monotonic()
        self._thread = threading.Thread(target=self._run, name="eventbus-import", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self, timeout_s: float) -> None:
        """Store the position, and release the lease."""
        self._stop.set()
        self._thread.join(timeout_s)

    def loop_health(self) -> list[LoopHealth]:
        found, since = self._writer.counts, self._failing_since
        counts: Mapping[str, float] = {
            "written": found["written"] + found["repeated"],
            "known": found["known"],
            "unmatched": found["unmatched"],
            "own": found["own"] + found["too-many-buses"],
            "refused": found["invalid"] + found["taken"],
            "lists": self._lists,
            "failures": self._absence.failures_ever,
        }
        gauges = {
            "leader": float(self._election.leads),
            "paused_seconds": 0.0 if since is None else max(0.0, self._clock.monotonic() - since),
        }
        return [
            LoopHealth(
                group="import",
                partition=0,
                last_progress=self._last_progress,
                ready=self._absence.ready,
                counts=counts,
                gauges=gauges,
            )
        ]

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                try:
                    if self._keep():
                        self._import()
                    self._stop.wait(self._election.renew_every_s)
                except LeaseLost:
                    log.warning("import: another worker has taken over")
                except SinkError as error:
                    self._cluster_failed(error)
                except EventBusError as error:
                    self._absence.failed(error)
                    self._stop.wait(RETRY_S)
                except Exception as error:  # a bug: the stored position is as before the batch
                    log.exception("import: unexpected error; it begins again from the stored position")
                    self._absence.failed(EventBusError(str(error)))
                    self._stop.wait(RETRY_S)
        finally:
            self._leave()

    def _import(self) -> None:
        """Import until the worker stops. Raises: LeaseLost; errors of the cluster and of Redis."""
        self._writer.source = self._cluster.bus_id()
        if self._writer.source == self._bus.id:
            log.error("%s is an API worker of this bus: import another cluster", self._cluster.server)
            self._end(2)
            self._stop.wait()
            return
        while not self._stop.is_set():
            try:
                if self._election.annotations.get(POSITION):
                    self._watch()
                else:
                    self._list()
            except Expired:
                log.warning("import: the cluster has forgotten the position; comparing all of its events")
                self._move("")

    def _list(self) -> None:
        """Write all events that are newer than the stored ones, and take the version of the list as position."""
        while not self._stop.is_set():
            self._lists += 1
            self._writes_lost = False
            version = ""
            try:
                for page in self._cluster.pages():
                    if self._stop.is_set():
                        return
                    version = page.version or version
                    for start in range(0, len(page.events), BATCH):
                        self._write(page.events[start : start + BATCH])
                        self._keep_or_raise()
            except Expired:
                continue
            if self._writes_lost:
                continue
            if not version:
                raise UnexpectedReply("the list of events has no resourceVersion")
            self._move(version)
            self._cluster_answered()
            return

    def _watch(self) -> None:
        """Write the changes of one watch, until the server ends it or the position is lost. Raises: Expired."""
        watch: Watch = self._cluster.watch(self._election.annotations[POSITION])
        try:
            while not self._stop.is_set():
                changes = watch.take(BATCH, TURN_S)
                if changes is None:
                    self._stop.wait(AFTER_WATCH_S)
                    return
                self._keep_or_raise()
                if not self._election.annotations.get(POSITION):
                    return
                if watch.is_open:
                    self._cluster_answered()
                if changes:
                    failpoint("import:taken")
                    self._write([change.event for change in changes if change.event is not None])
                    failpoint("import:written")
                    if not self._election.annotations.get(POSITION):
                        return
                    if version := changes[-1].version:
                        self._move(version)
                self._absence.succeeded()
        finally:
            watch.close()

    def _write(self, events: Sequence[Event | InvalidEvent]) -> None:
        self._writer.write(events)
        self._note_store()

    def _move(self, version: str) -> None:
        """Note that all changes up to *version* are stored; "": a list is needed."""
        self._election.annotations = {**self._election.annotations, POSITION: version}

    def _cluster_answered(self) -> None:
        if self._failing_since is not None:
            self._failing_since, self._cluster_failures = None, 0
            log.warning("import goes on")
            self._on_change("ClusterReachable", f"{self._cluster.server} answers again")

    def _keep_or_raise(self) -> None:
        if not self._keep():
            raise LeaseLost

    def _keep(self) -> bool:
        """Renew the lease if it is time. Returns: it is ours. Raises: Redis errors."""
        self._last_progress = now = self._clock.monotonic()
        if now >= self._campaign_at:
            self._campaign_at = now + self._election.renew_every_s
            if self._election.leads:
                self._note_store()
            self._election.campaign()
            self._absence.answered()
        return self._election.leads

    def _note_store(self) -> None:
        """Note the versions of the store with the position. If it has lost writes, forget the position."""
        noted = self._election.annotations.get(STORE, "").split()
        marks = read_marks(self._bus, self._client, EVENT.plural)
        if any(StoreMark.parse(text).has_lost(mark) for text, mark in zip(noted, marks, strict=False)):
            log.warning("import: Redis was restarted or replaced, and may have lost writes; comparing all events")
            self._writes_lost = True
            self._move("")
        self._election.annotations = {**self._election.annotations, STORE: " ".join(map(str, marks))}

    def _cluster_failed(self, error: SinkError) -> None:
        """Wait with back-off, and keep the lease."""
        self._cluster_failures += 1
        if self._failing_since is None:
            self._failing_since = self._clock.monotonic()
            log.warning("import waits: %s: %s", self._cluster.server, error)
            self._on_change("ClusterUnreachable", f"{self._cluster.server}: {error}")
        pause_s = _BACKOFF.pause_s(self._cluster_failures)
        if isinstance(error, Throttled) and error.retry_after_s is not None:
            pause_s = max(pause_s, error.retry_after_s)
        until = self._clock.monotonic() + pause_s
        try:
            while not self._stop.wait(min(TURN_S, max(0.0, until - self._clock.monotonic()))):
                if not self._keep() or self._clock.monotonic() >= until:
                    return
        except EventBusError as lost:
            self._absence.failed(lost)

    def _leave(self) -> None:
        try:
            if self._election.leads:
                self._election.campaign()  # stores the position
            self._election.resign()
        except EventBusError as error:
            log.warning("import: the position is not stored: %s", error)
        self._cluster.close()
        self._close()
