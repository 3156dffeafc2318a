"""Switches protections off, each by its name: control runs use them, and must fail with them.

In Python: applied in a producer or worker process before it begins (`python -m tests.faults.breakages NAME… -- worker
sink`). In Lua: one line of the library replaced.
"""

from __future__ import annotations

import math
import os
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from eventbus.broker.build import library


def _retry_renumbers() -> None:
    """After a lost reply the batch goes out again under a fresh id, as a plain XADD would."""
    from eventbus.errors import EventBusError
    from eventbus.record.outbox import Outbox

    whole = Outbox._wait_after

    def wait_after(self: Outbox, error: EventBusError) -> None:
        for producer in self._sender.producers:
            producer._renumber()
        whole(self, error)

    Outbox._wait_after = wait_after  # type: ignore[method-assign]


def _no_retry() -> None:
    """Give up what is in doubt when a call fails."""
    from eventbus.errors import EventBusError
    from eventbus.record.outbox import Outbox

    whole = Outbox._wait_after

    def wait_after(self: Outbox, error: EventBusError) -> None:
        for producer in self._sender.producers:
            producer.waiting.clear()
            producer._waiting_events = 0
            producer._start_again()
        whole(self, error)

    Outbox._wait_after = wait_after  # type: ignore[method-assign]


def _impatient() -> None:
    """A reply that is late counts as lost."""
    from eventbus.broker.connection import plain_client

    plain_client.REPLY_S = 0.03


def _same_producer_id() -> None:
    """Every process start is the same producer, and begins at 1."""
    from eventbus.record.resend import Producer

    anew: Any = Producer._start_again

    def start_anew(self: Any) -> None:
        anew(self)
        self.id, self.secret = "00000000000000aa", "0000000000000000"

    Producer._start_again = start_anew  # type: ignore[method-assign]


def _adopts_under_a_fresh_id() -> None:
    """What a dead process has left in the spool is sent as if it were new."""
    from eventbus.record.resend import Producer

    take_over: Any = Producer.take_over

    def as_new(self: Any, *, id: str, **given: Any) -> None:
        take_over(self, id=os.urandom(8).hex(), **given)
        self._renumber()

    Producer.take_over = as_new  # type: ignore[method-assign]


def _child_keeps_the_parents_outbox() -> None:
    """After fork the child goes on with its parent's buffer and numbers."""
    from eventbus.record.outbox import Outbox

    reset: Any = Outbox.reset

    def keep(self: Any) -> None:
        former = dict(vars(self))
        reset(self)  # locks, connection and flusher are made anew: of a parent's a child can use none
        if "_sender" in former:
            self._items.extend(former["_items"])
            for name in ("producers", "unplaced", "_bus"):
                setattr(self._sender, name, getattr(former["_sender"], name))

    Outbox.reset = keep  # type: ignore[method-assign]


def _no_flush_at_the_end() -> None:
    """Give what waits no time when the outbox is closed."""
    from eventbus.record.outbox import Outbox

    begin_close: Any = Outbox.begin_close
    Outbox.begin_close = lambda self, timeout_s: begin_close(self, 0.0)  # type: ignore[method-assign]


def _losses_are_not_counted() -> None:
    from eventbus.record.losses import Losses

    Losses.count = lambda self, cause, n=1, detail="", mistake="": None  # type: ignore[method-assign]


def _own_pending_is_not_read() -> None:
    """After a reconnect the worker goes on with what is new."""
    from eventbus.broker.stream_reader import GroupReader

    GroupReader.own_pending = lambda self: []  # type: ignore[method-assign]


def _nobody_takes_over() -> None:
    from eventbus.consume.consumer import Consumer

    Consumer._work_pending_of_others = lambda self: None  # type: ignore[method-assign]


def _no_isolation() -> None:
    from eventbus.consume import consumer

    consumer.ISOLATE_AFTER_DEATHS = 1_000_000


def _the_idle_do_not_ask() -> None:
    from eventbus.record.resend import Producer

    Producer.check_in_s = lambda self, wanted_at=0: math.inf  # type: ignore[method-assign]


def _no_notes() -> None:
    """Ignore the notes about a batch that is worked one event at a time."""
    from eventbus.broker import stream_reader

    whole: Any = stream_reader._with_notes
    vars(stream_reader)["_with_notes"] = lambda delivery, died, _next, _trying: whole(delivery, died, None, None)


def _isolation_is_slow() -> None:
    """No protection: an event that is worked alone takes its time."""
    from eventbus.consume import consumer

    isolate: Any = consumer.isolate

    def slowly(reader: Any, delivery: Any, handle: Any) -> Any:
        def slow(*given: Any) -> Any:
            time.sleep(0.08)
            return handle(*given)

        return isolate(reader, delivery, slow)

    vars(consumer)["isolate"] = slowly


def _no_beats_at_work() -> None:
    from eventbus.consume.heartbeat import Heartbeat

    Heartbeat._run = lambda self: None  # type: ignore[method-assign]


def _burials_are_forgotten() -> None:
    """Skip what cannot be read, instead of burying it."""
    from eventbus.correlate.keys import CallBuilder

    add: Any = CallBuilder.add

    def without(self: Any, entry: Any, clock_ms: Any, opened: Any, **more: Any) -> None:
        add(self, entry, clock_ms, msgspec.structs.replace(opened, burials=[]), **more)

    CallBuilder.add = without  # type: ignore[method-assign]


def _library_is_not_loaded_again() -> None:
    from eventbus.broker import bus, redis_transport
    from eventbus.store import calls

    modules: list[Any] = [bus, redis_transport, calls]
    for module in modules:
        assert module.load
        module.load = lambda _client: False


def _groups_are_not_reopened() -> None:
    from eventbus.broker.stream_reader import GroupReader

    opened: set[int] = set()
    make: Any = GroupReader.open

    def once(self: Any) -> bool:
        if id(self) in opened:
            return False
        opened.add(id(self))
        return bool(make(self))

    GroupReader.open = once  # type: ignore[method-assign]


def _any_policy_will_do() -> None:
    from eventbus.broker.connection import connect as connection

    connection._refuse_unfit = lambda info: None


def _claims_by_idle_time() -> None:
    """Dead is whose entries have been pending for long, by the clock of the server."""
    from eventbus.consume.consumer import Consumer

    def look_around(self: Any) -> None:
        reader = self._reader
        reader._client.xautoclaim(
            reader.keys.incoming, reader.group, reader.consumer, int(self._take_over._after_s * 1000), "0", justid=True
        )
        if pending := reader.own_pending():
            self._work(pending)

    Consumer._work_pending_of_others = look_around  # type: ignore[method-assign]


def _idle_keeps_its_id() -> None:
    """Let a producer go on under its id, however long it was silent."""
    from eventbus.record.resend import Producer

    Producer.maybe_forgotten = False  # type: ignore[assignment,method-assign]


def _claims_by_wall_clock() -> None:
    """Dead is whoever has not been seen for 15 s of a clock that people may set."""
    from eventbus.util.clock import SystemClock

    SystemClock.monotonic = staticmethod(lambda: time.time())


def _only_the_url_is_asked() -> None:
    """Ask for the slots only the nodes that the url names."""
    from eventbus.broker.connection.cluster import ClusterMap

    load: Any = ClusterMap.load

    def load_of_the_url(self: Any, first: Any = None) -> None:
        self._slots = type(self._slots)()
        load(self, first)

    ClusterMap.load = load_of_the_url  # type: ignore[method-assign]


def _a_pipeline_fails_whole() -> None:
    """One node that is away takes the answers of all others with it."""
    from redis.exceptions import ClusterError, ConnectionError

    from eventbus.broker.connection.cluster import ClusterPipeline

    execute: Any = ClusterPipeline.execute

    def execute_whole(self: Any, raise_on_error: bool = True) -> list[Any]:
        replies: list[Any] = execute(self, raise_on_error)
        for reply in replies:
            if isinstance(reply, ClusterError | ConnectionError):
                raise reply
        return replies

    ClusterPipeline.execute = execute_whole  # type: ignore[method-assign]


def _moved_is_not_followed() -> None:
    """A slot is called for where it was when the cluster was found."""
    from eventbus.broker.connection.cluster import ClusterClient

    ClusterClient._elsewhere = lambda self, reply: None  # type: ignore[method-assign]


def _shares_stay() -> None:
    """A worker that dies is a member for ever."""
    from eventbus.consume.rebalancer import MemberView

    look: Any = MemberView.look
    seen: set[str] = set()

    def without_end(self: Any, counters: Any) -> Any:
        alive = look(self, counters)
        if alive is not None:
            seen.update(alive)
        return alive and frozenset(seen)

    MemberView.look = without_end  # type: ignore[method-assign]


def _pending_messages_are_forgotten() -> None:
    """A notifier that takes over sends no message that was stored and not confirmed."""
    from eventbus.notify.engine import Engine

    load: Any = Engine.load

    def without_pending(self: Any, alerts: Any, groups: Any, *more: Any) -> list[Any]:
        groups = list(groups)
        for group in groups:
            for sent in group.sent.values():
                if sent.pending:
                    sent.firing, sent.pending = sent.pending.firing, None
        load(self, alerts, groups, *more)
        return []

    Engine.load = without_pending  # type: ignore[assignment,method-assign]


def _known_events_are_written_again() -> None:
    """An importer writes whatever it reads."""
    from eventbus.imports import event_writer

    vars(event_writer)["is_newer"] = lambda _event, _former: True


def _the_position_goes_first() -> None:
    """An importer stores the position of changes before it stores the changes."""
    from eventbus.imports.cluster import Watch
    from eventbus.imports.importer import Importer

    whole: Any = Watch.take
    keep: Any = Importer._keep_or_raise
    last: list[str] = []

    def noting(self: Any, *given: Any) -> Any:
        changes = whole(self, *given)
        last[:] = [change.version for change in changes or ()]
        return changes

    def move_and_keep(self: Any) -> None:
        if last:
            self._move(last[-1])
            self._campaign_at = 0.0
        keep(self)

    Watch.take = noting  # type: ignore[assignment,method-assign]
    Importer._keep_or_raise = move_and_keep  # type: ignore[method-assign]


def _a_gone_position_is_skipped() -> None:
    """An importer whose position is gone goes on with what is new."""
    from eventbus.imports.importer import POSITION, Importer

    list_all: Any = Importer._list

    def skip(self: Any) -> None:
        if POSITION not in self._election.annotations:  # it has never had one
            list_all(self)
            return
        for page in self._cluster.pages():
            self._move(page.version)

    Importer._list = skip  # type: ignore[method-assign]


def _lost_writes_are_not_noticed() -> None:
    """An importer goes on at its position, whatever Redis has lost."""
    from eventbus.imports.importer import Importer

    Importer._note_store = lambda self: None  # type: ignore[method-assign]


BREAKAGES: dict[str, Callable[[], None]] = {
    breakage.__name__.strip("_").replace("_", "-"): breakage
    for breakage in (
        _a_gone_position_is_skipped,
        _a_pipeline_fails_whole,
        _adopts_under_a_fresh_id,
        _any_policy_will_do,
        _burials_are_forgotten,
        _child_keeps_the_parents_outbox,
        _claims_by_idle_time,
        _claims_by_wall_clock,
        _groups_are_not_reopened,
        _idle_keeps_its_id,
        _impatient,
        _isolation_is_slow,
        _known_events_are_written_again,
        _library_is_not_loaded_again,
        _losses_are_not_counted,
        _lost_writes_are_not_noticed,
        _moved_is_not_followed,
        _no_beats_at_work,
        _no_flush_at_the_end,
        _no_isolation,
        _no_notes,
        _no_retry,
        _nobody_takes_over,
        _only_the_url_is_asked,
        _own_pending_is_not_read,
        _pending_messages_are_forgotten,
        _retry_renumbers,
        _same_producer_id,
        _shares_stay,
        _the_idle_do_not_ask,
        _the_position_goes_first,
    )
}


#: name → (what stands in the library, once; what stands there instead)
LUA: dict[str, tuple[str, str]] = {
    "no-token": (
        "batch.owned = owned(incoming, group, consumer, batch[1])",
        "batch.owned = true",
    ),
    "no-acknowledgement": (
        "  step_each(steps, ids, 'XACK', incoming, group)\n  if noted then",
        "  if noted then",
    ),
    "a-batch-begins-anew": (
        "batch.is_outdated = next_noted and batch[5] < next_noted",
        "batch.is_outdated = false",
    ),
    "burial-keeps-the-entry": (
        "    step(steps, 'XACK', incoming, group, id)\n",
        "",
    ),
    "a-destroyed-stream-is-not-told": (
        "counter(state[1]) or 0, 0, state[1] and state[2] or known.generation",
        "counter(state[1]) or 0, 0, known.generation",
    ),
    "keys-of-any-type": (
        "if found ~= wanted and found ~= 'none' then",
        "if false then",
    ),
    "hold-never-ends": (
        "elseif policy == 'WAIT' and now_ms - alive_ms > hold_ms then",
        "elseif false then",
    ),
    "trim-looks-at-delivered-only": (
        "return pending[1] > 0 and pending[2] or id_after(delivered)",
        "return id_after(delivered)",
    ),
    "trim-does-not-count": (
        "  step_raised(steps, meta, { ['lost:' .. group] = lost })\n",
        "",
    ),
    "a-destroyed-group-holds-nothing": (
        "if group and not existing[group] then kept",
        "if false then kept",
    ),
    "what-was-destroyed-is-not-counted": (
        "  if lost <= 0 then return end\n  raised['lost:' .. group]",
        "  if true then return end\n  raised['lost:' .. group]",
    ),
    "floors-stand-still": (
        "if number then redis.call('HSET', meta, 'floor_to:'",
        "if false then redis.call('HSET', meta, 'floor_to:'",
    ),
    "counts-end-with-the-event": (
        "return cmsgpack.pack({ held[COUNT], held[FIRST],",
        "return cmsgpack.pack({ 0, held[FIRST],",
    ),
    "record-is-refused-when-full": (
        "naming_corrupt(correlate_and_store, 14), { 'allow-oom' })",
        "naming_corrupt(correlate_and_store, 14))",
    ),
    "record-creates-when-full": (
        "memory.full = most ~= nil and most > 0 and used ~= nil and used > most",
        "memory.full = false",
    ),
    "no-floors": (
        "redis.call('XGROUP', 'CREATE', incoming, group, floor)",
        "redis.call('XGROUP', 'CREATE', incoming, group, '0')",
    ),
    "an-expired-state-is-a-gap": (
        "elseif first > 1 and (seen_generation ~= known.generation or silent_ms < life_ms) then",
        "elseif first > 1 then",
    ),
    "no-bound": (
        "while fits < #sizes and bytes + #args[start + 2 * fits + 1] <= bound do",
        "while fits < #sizes do",
    ),
    "acknowledges-first": (
        "  step_each(steps, ids, 'XACK', incoming, group)\n  if noted then",
        "  if #ids > 0 then redis.call('XACK', incoming, group, unpack(ids)) end\n  if noted then",
    ),
    "notes-are-not-finished": (
        "  if not text then return false end\n",
        "  if true then return false end\n",
    ),
    "strings-of-others-are-not-told": (
        "        if redis.call('EXISTS', missing[n]) == 1 then note_corrupt(missing[n]) end",
        "",
    ),
    "garbage-is-taken-for-ours": (
        "  if not ok or not is_source(t) then return nil, true end",
        "  if not ok then return nil, true end",
    ),
}


def broken_library(names: str) -> str:
    """The function library without the protections in *names*, which have blanks between them."""
    source = library()
    for name in names.split():
        right, wrong = LUA[name]
        assert source.count(right) == 1, f"{name}: the line it breaks is no longer there, or not once"
        source = source.replace(right, wrong)
    return source


def apply(names: Sequence[str]) -> None:
    for name in names:
        BREAKAGES[name]()


if __name__ == "__main__":
    end = sys.argv.index("--")
    apply(sys.argv[1:end])
    sys.argv[1:] = sys.argv[end + 1 :]
    from eventbus.workers.cli import main

    main(prog_name="eventbus")
