"""Housekeeping: small jobs that every worker process runs on each partition about once a second, that of exports once
an hour.

Running them in several workers at once is harmless: every function looks again before it writes.
"""

from __future__ import annotations

import math
import random
import threading
from collections.abc import Callable, Collection
from typing import Any

from eventbus.broker.bus import Bus
from eventbus.broker.connection.connect import Client
from eventbus.broker.functions import REFRESHED_A_SECOND
from eventbus.broker.health.export_status import forget_silent_sinks
from eventbus.broker.keys import EVENTS, OPERATED
from eventbus.broker.redis_errors import redis_errors
from eventbus.errors import BusUnavailable, EventBusError
from eventbus.model.kinds import KINDS
from eventbus.util.clock import Clock
from eventbus.util.failpoints import failpoint
from eventbus.util.log import log

EVERY_S = 1.0
#: Candidates of one call of `expire`, which then takes less than 2 ms.
SWEEP_CANDIDATES = 100
#: Calls of `expire` a round and partition; if more is due, the next round follows at once.
SWEEP_CALLS = 50


#: Seconds between two checks for exports without a worker.
EXPORTS_EVERY_S = 3600.0
#: A role that did so much in one round has more to do at once. Of a group that is released a call may do a part only.
_MORE_TO_DO = {"trim": 1, "expire": SWEEP_CALLS * SWEEP_CANDIDATES // 2}
#: How far the store may grow beyond its bounds before the sink worker waits.
SLACK = 1.1


class Housekeeper:
    """Trims streams and sweeps the store, about once a second, in one thread with its own connection.

    *on_loss* is called with (reason, message) when a group has lost events it had not read. *partitions*, where there
    is one, gives those of this worker: the other workers of the group look after the rest.
    """

    def __init__(
        self,
        *,
        bus: Bus,
        clock: Clock,
        on_loss: Callable[[str, str], None] | None = None,
        partitions: Callable[[], Collection[int]] | None = None,
    ) -> None:
        self._bus = bus
        self._on_loss = on_loss
        self._partitions = partitions or (lambda: range(bus.partitions))
        self._clock = clock
        self._stop = threading.Event()
        self._roles: dict[str, Callable[[Client, int], int | None]] = {
            **{"trim": self.trim, "expire": self.sweep, "refresh": self.refresh},
            **{"finish": self.finish, "exports": self.forget_exports},
        }
        self._exports_due: dict[int, float] = {}  #: partition → when its exports are looked at again, monotonic s
        self._waiting: dict[tuple[int, str], str] = {}  #: the problem for which a role of a partition waits
        self._thread = threading.Thread(target=self._run, name="eventbus-housekeeper", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self, timeout_s: float = 5.0) -> None:
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(timeout_s)

    def _run(self) -> None:
        client: Client | None = None
        more_to_do = False
        while not self._stop.wait(0 if more_to_do else EVERY_S * random.uniform(0.8, 1.2)):
            try:
                client = client or self._bus.client(name="eventbus-housekeeper")
            except EventBusError as error:
                log.debug("housekeeping waits: %s", error)
                continue
            more_to_do = any([self._keep(client, partition) for partition in sorted(self._partitions())])
        if client is not None:
            client.close()

    def _keep(self, client: Client, partition: int) -> bool:
        """Do every role on one partition; one that cannot be done holds up no other. Returns whether more is to do."""
        more_to_do = False
        for name, role in self._roles.items():
            try:
                more_to_do |= (role(client, partition) or 0) >= _MORE_TO_DO.get(name, math.inf)
                if self._waiting.pop((partition, name), None):
                    log.warning("housekeeping of partition %d goes on: %s", partition, name)
            except BusUnavailable as error:  # the consumers say so, and load functions that are missing
                log.debug("housekeeping of partition %d waits, %s: %s", partition, name, error)
            except EventBusError as error:
                if self._waiting.get((partition, name)) != str(error):  # once, and not every second
                    self._waiting[partition, name] = str(error)
                    log.warning("housekeeping of partition %d waits, %s: %s", partition, name, error)
            except Exception:
                log.exception("housekeeping goes on after an unexpected error")
        return more_to_do

    def trim(self, client: Client, partition: int) -> int:
        """Delete entries that every group has finished; report if a group lost events. Returns how many it lost."""
        failpoint("trim")
        trimmed = self._bus.functions(client, partition).trim(self._bus.options)
        failpoint("trimmed")
        if trimmed.released_group:
            cause = "was destroyed, or its stream," if trimmed.destroyed else "held the stream too long"
            line = f"group {trimmed.released_group} {cause} on partition {partition}: {trimmed.lost} events lost to it"
            log.error("%s", line)
            if self._on_loss is not None:
                self._on_loss("GroupReleased", line)
        return trimmed.lost

    def sweep(self, client: Client, partition: int, now_ms: int | None = None) -> int:
        """Expire events that are due and evict those beyond a bound. Returns how many keys were removed."""
        functions, total = self._bus.functions(client, partition), 0
        for _ in range(SWEEP_CALLS):
            candidates, unfinished = self._candidates(client, partition, now_ms)
            if candidates:
                failpoint("expire")
            elif unfinished:  # finish an interrupted call: perhaps no other call comes
                functions.expire(self._bus.options, (), now_ms)
            swept = functions.expire(self._bus.options, candidates, now_ms).total if candidates else 0
            if swept:
                failpoint("expired")
            total += swept
            if len(candidates) < SWEEP_CANDIDATES or not swept or self._stop.is_set():
                break
        return total

    def refresh(self, client: Client, partition: int) -> int:
        """Publish the counts of events with repeats that were counted and not written. Returns how many."""
        now_ms = self._clock.time_ns() // 1_000_000
        with redis_errors():
            due: Any = client.execute_command(
                *("ZRANGE", self._bus.keys[partition].index_refresh, 0, now_ms),
                *("BYSCORE", "LIMIT", 0, REFRESHED_A_SECOND),
            )
        return self._bus.functions(client, partition).refresh(self._bus.options, due) if due else 0

    def finish(self, client: Client, partition: int) -> int:
        """Finish interrupted writes of all kinds but events. Their objects are in partition 0 only. Returns how many.

        A worker has no right to the kinds that operators own: the next write of these finishes them.
        """
        others = [kind.plural for kind in KINDS if kind.plural not in (EVENTS, *OPERATED)]
        plurals = others if partition == 0 else []
        if not plurals:
            return 0
        keys = self._bus.keys[partition]
        with redis_errors():
            noted = client.exists(*(keys.note_of(plural) for plural in plurals))
        return sum(self._bus.functions(client, partition).finish(plural) for plural in plurals) if noted else 0

    def forget_exports(self, client: Client, partition: int) -> int:
        """Forget exports without a worker, once the counts and all that they have written have expired.

        Looks once an hour. Returns how many."""
        now = self._clock.monotonic()
        if now < self._exports_due.setdefault(partition, now + random.uniform(0, EXPORTS_EVERY_S)):
            return 0
        self._exports_due[partition] = now + EXPORTS_EVERY_S
        options = self._bus.options
        silent_ms = max(options.record_ttl_s, 2 * options.event_ttl_s) * 1000
        names = forget_silent_sinks(client, self._bus.keys[partition], silent_ms=silent_ms)
        for name in names:
            log.warning(
                "export %s had no worker for %d hours, and is forgotten on partition %d: one that comes back is new",
                name,
                silent_ms // 3_600_000,
                partition,
            )
        return len(names)

    def enforce_bounds(self, client: Client, partition: int) -> None:
        """Delete keys beyond the bounds by more than a tenth, before the store grows further.

        The sink worker calls it in its own thread, so a flood of events is slowed to the rate of the sweep.
        """
        keys, options = self._bus.keys[partition], self._bus.options
        while not self._stop.is_set():
            pipe: Any = client.pipeline(transaction=False)
            for index in (keys.index_expiry, keys.index_forget):
                pipe.zcard(index)
            with redis_errors():
                stored, counts = pipe.execute()
            most = max(stored / options.max_stored, (stored + counts) / options.max_records)
            if most <= SLACK or not self.sweep(client, partition):
                return

    def _candidates(self, client: Client, partition: int, now_ms: int | None) -> tuple[list[bytes], bool]:
        """Return the keys to check, and whether a call that was cut off has left something to do."""
        keys, options = self._bus.keys[partition], self._bus.options
        now = now_ms if now_ms is not None else self._clock.time_ns() // 1_000_000
        due: list[bytes]
        forget: list[bytes]
        pipe: Any = client.pipeline(transaction=False)
        pipe.exists(keys.note_of(EVENTS))
        pipe.zcard(keys.index_expiry)
        pipe.zcard(keys.index_forget)
        for index in (keys.index_expiry, keys.index_forget):
            pipe.execute_command("ZRANGE", index, 0, now, "BYSCORE", "LIMIT", 0, SWEEP_CANDIDATES)
        with redis_errors():
            unfinished, stored, counts, due, forget = pipe.execute()
            over = stored - options.max_stored - len(due)
            if over > 0:
                due += client.zrange(keys.index_expiry, len(due), len(due) + min(over, SWEEP_CANDIDATES) - 1)
            over = stored + counts - options.max_records - len(forget)
            if over > 0:
                forget += client.zrange(keys.index_forget, len(forget), len(forget) + min(over, SWEEP_CANDIDATES) - 1)
        # At least half for each: a flood of events must not prevent the deletion of counts.
        stored_part = due[: max(SWEEP_CANDIDATES // 2, SWEEP_CANDIDATES - len(forget))]
        # A call that was cut off may have left a key in both.
        return list(dict.fromkeys(stored_part + forget))[:SWEEP_CANDIDATES], bool(unfinished)
