"""A case for each way in which a function of the library writes: what was before, the call, and who repeats it how."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any
from unittest.mock import patch

import msgspec

from eventbus.broker import functions
from eventbus.broker.exports import Burial, ExportCheckpoint, ExportStore, UpdateState
from eventbus.broker.functions import GroupPolicy, Item
from eventbus.broker.keys import item_key
from eventbus.broker.notifications import NotifyStore
from eventbus.broker.redis_errors import redis_errors
from eventbus.broker.transport import PublishRequest, PublishStatus
from eventbus.model.encoding.event_json import encode_core
from eventbus.model.encoding.wire import pack_batch, pack_event
from eventbus.model.event import Event
from tests.builders import make_event, make_packed_in_series, make_reference, make_similar_events
from tests.functions.partition import GENEROUS, MINUTE, T0, Partition

HOUR = 3_600_000
DAY = 24 * HOUR
MIB = 1024 * 1024


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """One call of the function *verb*. *act* is what its caller does, and does again when it has failed.

    *prepare* makes what was before; what it returns is given to *act*.
    """

    name: str
    verb: str
    act: Callable[[Partition, Any], object]
    prepare: Callable[[Partition], Any] = lambda _partition: None
    options: dict[str, Any] = {}
    alone: bool = False  #: what it comes to hangs on what others have done before
    balanced: bool = True  #: False: events are given back, or the counter of those published is destroyed

    def __str__(self) -> str:
        return f"{self.verb}: {self.name}"


# -- what is in the stories ------------------------------------------------------------------------------------------


def about(name: str, message: str = "", **fields: Any) -> Event:
    """An event about the pod *name*."""
    return make_event(involved_object=make_reference(name=name), message=message or f"about {name}", **fields)


def in_series(name: str) -> bytes:
    """An event of a series about the pod *name*, packed."""
    return make_packed_in_series(T0, name=name)


def send(
    partition: Partition, producer: str, *events: Event | bytes, first: int = 1, unreadable: int = 0, **given: Any
) -> None:
    """Publish a producer's batch that begins at *first*; sent again it is the same batch.

    *unreadable*: so many more are said to be in it.
    """
    body = pack_batch(producer, first, [event if isinstance(event, bytes) else pack_event(event) for event in events])
    partition.publish_raw(first, len(events) + unreadable, body, producer=producer, **given)


def send_once(partition: Partition, *names: str) -> None:
    """Publish an event about each pod, each once: those that are new, if some are stored."""
    body = pack_batch("once", 1, [pack_event(about(name)) for name in names])
    reply = partition.publish_once(*names, body=body)
    new = [name for position, name in enumerate(names) if position not in reply.stored]
    if reply.status is PublishStatus.DUP and new:
        send_once(partition, *new)


def drain(partition: Partition, consumer: str = "one", at_ms: int = T0) -> None:
    """Work as a worker that (re)starts does: record what is pending for it and what is new."""
    reader = partition.reader(consumer)
    deliveries = [*reader.own_pending(), *reader.read(0)]
    if whole := [delivery for delivery in deliveries if delivery.next_position is None]:
        partition.record_deliveries(whole, at_ms=at_ms, consumer=consumer)
    for delivery in deliveries:
        if delivery.next_position is not None:
            for position in range(delivery.next_position, delivery.events):
                partition.record_deliveries([delivery], at_ms=at_ms, consumer=consumer, only=position)


def drain_at(at_ms: int) -> Callable[[Partition, Any], None]:
    return lambda partition, _given: drain(partition, at_ms=at_ms)


def sent(*batches: Sequence[Event | bytes]) -> Callable[[Partition], None]:
    """Each batch by a producer of its own; nothing has been read."""

    def prepare(partition: Partition) -> None:
        for n, batch in enumerate(batches):
            send(partition, f"p{n}", *batch)

    return prepare


def after(
    *before: Sequence[Event | bytes], then: Sequence[Event | bytes], in_ms: int | None = None
) -> Callable[[Partition], None]:
    """The batches *before* were recorded, and with *in_ms* all that was due by then expired; *then* was sent."""

    def prepare(partition: Partition) -> None:
        for n, batch in enumerate(before):
            send(partition, f"b{n}", *batch)
            drain(partition)
        if in_ms is not None:
            partition.expire(in_ms=in_ms)
        send(partition, "then", *then)

    return prepare


# -- publish ---------------------------------------------------------------------------------------------------------


def _publish(partition: Partition, _given: Any) -> None:
    send(partition, "p1", about("a"), about("b"))


def _publish_next(partition: Partition, _given: Any) -> None:
    send(partition, "p1", about("c"), first=2)


def _publish_three(partition: Partition, _given: Any) -> None:
    bodies = [pack_batch("p1", 2 + n, [pack_event(about(name))]) for n, name in enumerate("cde")]
    batches = [PublishRequest(0, "p1", 2 + n, 1, body, "", 0, ()) for n, body in enumerate(bodies)]
    partition.publish_batches(*batches)


def _publish_into_a_full_stream(partition: Partition, _given: Any) -> None:
    send(partition, "p1", about("c"), first=2, bound=10)


def _publish_once(partition: Partition, _given: Any) -> None:
    send_once(partition, "a", "b")


PUBLISH = [
    Case(name="the first batch of a producer", verb="publish", act=_publish),
    Case(
        name="the next batch of a producer",
        verb="publish",
        prepare=lambda partition: send(partition, "p1", about("a")),
        act=_publish_next,
    ),
    Case(
        name="three batches of a producer in one call",
        verb="publish",
        prepare=lambda partition: send(partition, "p1", about("a")),
        act=_publish_three,
    ),
    Case(
        name="a batch that finds the stream full",
        verb="publish",
        prepare=lambda partition: send(partition, "p1", about("a")),
        act=_publish_into_a_full_stream,
    ),
    Case(name="a batch of two", verb="publish_once", act=_publish_once),
    Case(
        name="a batch of two, of which one is stored",
        verb="publish_once",
        prepare=lambda partition: send_once(partition, "a"),
        act=_publish_once,
    ),
]


# -- record ----------------------------------------------------------------------------------------------------------


def _record_part(position: int) -> Callable[[Partition, Any], None]:
    def act(partition: Partition, _given: Any) -> None:
        for delivery in partition.reader().own_pending():
            # What was noted of the batch says where it goes on.
            if (delivery.next_position or 0) <= position:
                partition.record_deliveries([delivery], only=position)

    return act


def _in_parts(done: int) -> Callable[[Partition], None]:
    def prepare(partition: Partition) -> None:
        send(partition, "p1", about("a"), about("b"), about("a"))
        (delivery,) = partition.reader().read(0)
        for position in range(done):
            partition.reader().isolate(delivery.id, position)
            partition.record_deliveries([delivery], only=position)
        partition.reader().isolate(delivery.id, done)

    return prepare


def _not_readable(partition: Partition) -> None:
    send(partition, "p1", about("a"), about("b"), unreadable=2)
    partition.reader().read(0)


def _record_and_bury(partition: Partition, _given: Any) -> None:
    reader = partition.reader()
    if deliveries := [*reader.own_pending(), *reader.read(0)]:
        partition.record_deliveries(deliveries, burials=[("unreadable", 0, b"what was not readable")] * 2)


RECORD = [
    Case(
        name="batches of new events",
        verb="correlate_and_store",
        prepare=sent([about("a"), about("b")], [about("c")]),
        act=drain_at(T0),
    ),
    Case(
        name="repeats of what is stored, and something new",
        verb="correlate_and_store",
        prepare=after([about("a"), about("b")], then=[about("a"), about("a"), about("b"), about("c")]),
        act=drain_at(T0),
    ),
    Case(
        name="many similar events become one",
        verb="correlate_and_store",
        prepare=sent(make_similar_events(12)),
        act=drain_at(T0),
    ),
    Case(
        name="an aggregate goes on",
        verb="correlate_and_store",
        prepare=after(make_similar_events(12), then=make_similar_events(3, message="more")),
        act=drain_at(T0),
    ),
    Case(
        name="what is suppressed as spam is reported",
        verb="correlate_and_store",
        options={"burst": 2},
        prepare=sent([about("a")] * 2, [about("a")] * 3 + [about("b")]),
        act=drain_at(T0),
    ),
    Case(
        name="what is suppressed as spam is reported again, and closed when one gets through",
        verb="correlate_and_store",
        options={"burst": 1},
        prepare=after([about("a")] * 3, then=[about("a")] * 3),
        act=drain_at(T0 + 6 * MINUTE),
    ),
    Case(
        name="what is held back and not reported is counted",
        verb="correlate_and_store",
        options={"burst": 1, "report_suppressed": False},
        prepare=after([about("a")], then=[about("a")] * 2 + [about("a", "another message")]),
        act=drain_at(T0),
    ),
    Case(
        name="an event takes the place of one that counts as never seen",
        verb="correlate_and_store",
        options={"burst": 2},
        prepare=after([about("a", count=0)], then=[about("a", count=3)]),
        act=drain_at(T0),
    ),
    Case(
        name="what takes the place of another is held back",
        verb="correlate_and_store",
        options={"burst": 1, "report_suppressed": False},
        prepare=after([about("a", count=0)], then=[about("a", count=3)]),
        act=drain_at(T0),
    ),
    Case(
        name="a count goes on that has outlived its event",
        verb="correlate_and_store",
        prepare=after([about("a"), about("a"), about("b")], then=[about("a")], in_ms=HOUR),
        act=drain_at(T0),
    ),
    Case(
        name="a name that somebody else has",
        verb="correlate_and_store",
        prepare=after([about("a")], then=[about("a", "of the same name")]),
        act=drain_at(T0),
    ),
    Case(
        name="series begin",
        verb="correlate_and_store",
        prepare=sent([in_series("a"), in_series("a"), in_series("b"), about("c")], [in_series("a")]),
        act=drain_at(T0),
    ),
    Case(
        name="series go on",
        verb="correlate_and_store",
        prepare=after([in_series("a")] * 3 + [in_series("b")], then=[in_series("a"), in_series("b"), about("c")]),
        act=drain_at(T0 + 10 * MINUTE),
    ),
    Case(
        name="another series begins",
        verb="correlate_and_store",
        prepare=after([in_series("a")] * 3, then=[in_series("a")] * 2),
        act=drain_at(T0 + HOUR),
    ),
    Case(
        name="the first event of a batch, alone", verb="correlate_and_store", prepare=_in_parts(0), act=_record_part(0)
    ),
    Case(
        name="the second event of a batch, alone", verb="correlate_and_store", prepare=_in_parts(1), act=_record_part(1)
    ),
    Case(
        name="the last event of a batch, alone", verb="correlate_and_store", prepare=_in_parts(2), act=_record_part(2)
    ),
    Case(
        name="what cannot be read is buried, the rest is recorded",
        verb="correlate_and_store",
        prepare=_not_readable,
        act=_record_and_bury,
    ),
]


# -- the dead letter -------------------------------------------------------------------------------------------------


def _claimed(*events: Event) -> Callable[[Partition], Any]:
    def prepare(partition: Partition) -> Any:
        send(partition, "p1", *events)
        (delivery,) = partition.reader("dead").read(0)
        partition.reader().claim("dead", "")
        return delivery

    return prepare


def _buried(partition: Partition) -> bytes:
    delivery = _claimed(about("a"))(partition)
    partition.call.bury("sink", "one", delivery.id, "unreadable", 3, delivery.body)
    ((entry, _),) = partition.admin.xrange(partition.keys.dead)
    return bytes(entry)


def _bury(partition: Partition, delivery: Any) -> None:
    partition.call.bury("sink", "one", delivery.id, "unreadable", 3, delivery.body)


def _bury_one(partition: Partition, delivery: Any) -> None:
    # An event that was buried is behind its batch's next position: who comes back does not bury it again.
    if any((pending.next_position or 0) == 0 for pending in partition.reader().own_pending()):
        partition.call.bury("sink", "one", delivery.id, "killed-worker", 3, delivery.body, whole=False, next_position=1)


DEAD = [
    Case(name="a whole batch", verb="bury", prepare=_claimed(about("a")), act=_bury),
    Case(name="one event of a batch", verb="bury", prepare=_claimed(about("a"), about("b")), act=_bury_one),
    Case(
        name="a dead entry goes back to its group",
        verb="replay",
        balanced=False,
        prepare=_buried,
        act=lambda partition, dead: partition.call.replay(partition.options, dead),
    ),
    Case(
        name="a dead entry is let go",
        verb="discard",
        prepare=_buried,
        act=lambda partition, dead: partition.call.discard(dead),
    ),
    Case(
        name="a dead entry is to be exported again",
        verb="export_retry",
        prepare=_buried,
        act=lambda partition, dead: partition.call.export_retry("file", dead),
    ),
]


# -- workers ---------------------------------------------------------------------------------------------------------


def _beat(partition: Partition, _given: Any) -> None:
    with redis_errors():
        partition.client.execute_command(*functions.beat_command(partition.keys, "sink", "one"))


def _left_by_the_dead(partition: Partition) -> None:
    send(partition, "p1", about("a"))
    send(partition, "p2", about("b"))
    partition.reader("dead").read(0, beat=True)


def _nothing_left(partition: Partition) -> None:
    _left_by_the_dead(partition)
    partition.call.claim("sink", "one", "dead", "1")


def _take_over(partition: Partition, _given: Any) -> None:
    """Until nothing is left, and the dead is forgotten."""
    while partition.call.claim("sink", "one", "dead", "1"):
        pass


WORKERS = [
    Case(name="a sign of life", verb="beat", act=_beat),
    Case(
        name="which event is tried alone",
        verb="isolate",
        prepare=_claimed(about("a"), about("b")),
        act=lambda partition, delivery: partition.call.isolate("sink", "one", delivery.id, 0),
    ),
    Case(
        name="what a dead worker left",
        verb="claim",
        prepare=_left_by_the_dead,
        act=_take_over,
    ),
    Case(
        name="a dead worker that has left nothing is forgotten",
        verb="claim",
        prepare=_nothing_left,
        act=lambda partition, _given: partition.call.claim("sink", "one", "dead", "1"),
    ),
]


# -- housekeeping ----------------------------------------------------------------------------------------------------


def _stored(*events: Event | bytes) -> Callable[[Partition], None]:
    def prepare(partition: Partition) -> None:
        send(partition, "p1", *events)
        drain(partition)

    return prepare


def _held_back_and_untold(partition: Partition) -> None:
    for producer in ("p1", "p2"):
        send(partition, producer, *[about("a")] * 3)
        drain(partition)


def _counted_and_not_written(partition: Partition) -> None:
    for producer in ("p1", "p2"):
        send(partition, producer, *[about("a")] * 2, *[about("b")] * 2)
        drain(partition)


def _refresh(partition: Partition, candidates: Sequence[bytes]) -> None:
    partition.call.refresh(partition.options, candidates, time.time_ns() // 1_000_000 + HOUR)


def _expire(in_ms: int) -> Callable[[Partition, Sequence[bytes]], object]:
    return lambda partition, candidates: partition.expire(in_ms=in_ms, keys=candidates)


def _expire_alone(in_ms: int) -> Callable[[Partition, Sequence[bytes]], None]:
    """Leave the states of the sources: after a call that failed, they live to their end."""

    def act(partition: Partition, candidates: Sequence[bytes]) -> None:
        with patch.object(partition.call, "forget"):
            partition.expire(in_ms=in_ms, keys=candidates)

    return act


def chosen(prepare: Callable[[Partition], object], index: str, most: int = 100) -> Callable[[Partition], list[bytes]]:
    """Choose candidates as the housekeeper has: the first of *index*, and not those that come later."""

    def choose(partition: Partition) -> list[bytes]:
        prepare(partition)
        found: list[bytes] = partition.admin.zrange(getattr(partition.keys, index), 0, most - 1)
        return found

    return choose


def _beyond_the_bound(partition: Partition) -> None:
    for start in (0, 52):
        send(partition, "p1", *(about(f"w{n}") for n in range(start, start + 52)), first=start + 1)
    drain(partition)
    # The order in which they would go must not hang on the millisecond that recorded them.
    for rank, key in enumerate(sorted(partition.admin.zrange(partition.keys.index_expiry, 0, -1))[:5]):
        partition.admin.zincrby(partition.keys.index_expiry, rank - 1_000_000, key)


def _used_states(partition: Partition) -> dict[bytes, int]:
    _stored(*(about(f"w{n}") for n in range(8)))(partition)
    return {key[-14:]: 2**52 for key in sorted(partition.admin.keys(partition.keys.correlation + b"*"))}


def _counts_only(partition: Partition) -> None:
    _stored(about("a"), about("b"))(partition)
    partition.expire(in_ms=HOUR)


def long_events(n: int) -> list[Event]:
    """A hundred thousand bytes."""
    return [about(f"w{n}", "x" * 14_000, reason=f"R{m}") for m in range(7)]


def _published(partition: Partition, group: str, policy: GroupPolicy) -> None:
    partition.call.open("", group, policy, "0")
    for n in range(10):
        send(partition, "p1", *long_events(n), first=1 + 7 * n)


def _drops(partition: Partition) -> None:
    _published(partition, "log", GroupPolicy.DROP)
    partition.reader("slow", group="log").read(0)


def _held_too_long(partition: Partition) -> None:
    partition.call.open("", "log", GroupPolicy.WAIT, "0")
    send(partition, "p1", about("a"))
    send(partition, "p2", about("b"))
    partition.reader("gone", group="log").read(0)
    partition.admin.hset(partition.keys.meta, mapping={"beats:log": 0, "alive:log": 1})


def _destroyed(partition: Partition) -> None:
    send(partition, "p1", about("a"), about("b"))
    partition.admin.delete(partition.keys.incoming)


def _untold(partition: Partition) -> None:
    _destroyed(partition)
    partition.call.open("0" * 16, "sink")


def _long_changes(partition: Partition) -> None:
    for n in range(12):
        send(partition, "p1", *long_events(n), first=1 + 7 * n)
        drain(partition)


def _trim(partition: Partition, _given: Any) -> None:
    partition.call.trim(partition.options)


HOUSEKEEPING = [
    Case(
        name="events whose time has come",
        verb="expire",
        prepare=chosen(_stored(about("a"), about("b"), about("b")), "index_expiry"),
        act=_expire(HOUR),
    ),
    Case(
        name="counts whose time has come",
        verb="expire",
        prepare=chosen(_counts_only, "index_forget"),
        act=_expire_alone(9 * DAY),
    ),
    Case(
        name="what was held back last is told",
        verb="refresh",
        options={"burst": 1},
        prepare=chosen(_held_back_and_untold, "index_refresh"),
        act=_refresh,
    ),
    Case(
        name="repeats that were suppressed are shown",
        verb="refresh",
        options={"burst": 1, "report_suppressed": False},
        prepare=chosen(_counted_and_not_written, "index_refresh"),
        act=_refresh,
    ),
    Case(
        name="the last counts of series are written",
        verb="refresh",
        prepare=chosen(_stored(*[in_series("a")] * 3, *[in_series("b")] * 2), "index_refresh"),
        act=_refresh,
    ),
    Case(
        name="series whose time has come",
        verb="expire",
        prepare=chosen(_stored(*[in_series("a")] * 3, in_series("b")), "index_expiry"),
        act=_expire_alone(HOUR),
    ),
    Case(
        name="events beyond the bound",
        verb="expire",
        options={"max_stored": 100},
        prepare=chosen(_beyond_the_bound, "index_expiry", 10),
        act=_expire(0),
    ),
    Case(
        name="states of sources without a record",
        verb="forget",
        alone=True,
        prepare=_used_states,
        act=lambda partition, used_ms: partition.call.forget(partition.options, used_ms),
    ),
    Case(
        name="what every group has finished with",
        verb="trim",
        prepare=_stored(about("a"), about("b")),
        act=_trim,
    ),
    Case(name="a group that drops", verb="trim", options={"incoming_bytes": MIB}, prepare=_drops, act=_trim),
    Case(name="a group held too long", verb="trim", options={"hold_s": 10}, prepare=_held_too_long, act=_trim),
    Case(name="a loss is told", verb="trim", prepare=_untold, act=_trim, balanced=False),
    Case(
        name="changes beyond their bytes", verb="trim", options={"changes_bytes": MIB}, prepare=_long_changes, act=_trim
    ),
]


# -- opening ---------------------------------------------------------------------------------------------------------


def _bare(partition: Partition) -> None:
    keys = partition.keys
    partition.admin.delete(keys.incoming, keys.incoming_meta, keys.meta)


def _open(group: str) -> Callable[[Partition, Any], object]:
    return lambda partition, _given: partition.call.open("0" * 16, group, GroupPolicy.WAIT, "0")


def _group_destroyed(partition: Partition) -> None:
    send(partition, "p1", about("a"))
    drain(partition)
    partition.call.trim(partition.options)
    partition.admin.xgroup_destroy(partition.keys.incoming, "sink")


def _ids_used_up(partition: Partition) -> None:
    """Somebody has added an entry with an id of the far future, and every group has finished with all there is."""
    send(partition, "p1", about("a"))
    drain(partition)
    last = f"{2**42}-7"
    partition.admin.xadd(partition.keys.incoming, {"b": "x"}, id=last)
    partition.admin.xreadgroup("sink", "w", {partition.keys.incoming: ">"})
    partition.admin.xack(partition.keys.incoming, "sink", last)


OPEN = [
    Case(name="a new partition", verb="open", prepare=_bare, act=_open("sink")),
    Case(name="another group", verb="open", prepare=sent([about("a")]), act=_open("log"), alone=True),
    Case(name="a stream that was destroyed", verb="open", prepare=_destroyed, act=_open("sink"), balanced=False),
    Case(name="a group that was destroyed", verb="open", prepare=_group_destroyed, act=_open("sink")),
    Case(name="a stream whose ids are used up", verb="open", prepare=_ids_used_up, act=_open("sink")),
]


# -- objects ---------------------------------------------------------------------------------------------------------


def node(body: bytes) -> Item:
    return Item(plural="nodes", namespace="", name="n1", key=item_key("", "n1"), body=body)


def _put(partition: Partition) -> str:
    return partition.call.put(partition.options, node(b'{"a":1}'), "").version


def written(name: str, message: str) -> bytes:
    """An event as it is stored when somebody writes it whole."""
    event = about(name, message)
    metadata = msgspec.structs.replace(event.metadata, name=name, namespace="default", uid="uid")
    body = encode_core(msgspec.structs.replace(event, metadata=metadata))
    said = [1, 1_704_110_400_000_000, name, "default", "", 1, 1_704_110_400_000_000, 0, 1_704_110_400_000, "uid"]
    fields = [*said, False, "w", f"default/pod/{name}", body, *[False] * 7]
    return functions.pack_argument(fields)


def _write_event(partition: Partition, message: str, version: str = "", copy: bytes = b"") -> str:
    key, event = item_key("default", "w1"), written("w1", message)
    happened = functions.Happened(2, 28_000_000, "default\0Pod\0Normal\0Said\0c")
    command = partition.call.put_client_event_command(partition.options, key, version, event, copy, happened=happened)
    with redis_errors():
        return functions.decode_written(partition.client.execute_command(*command)).version


def _a_version(partition: Partition) -> tuple[bytes, str]:
    """The key and the version of the event about `a`."""
    (event,) = [event for event in partition.stored() if event.involved_object.name == "a"]
    (member,) = [one for one in partition.admin.zrange(partition.keys.index_name, 0, -1) if b"/a." in one]
    return bytes(member[-14:]), event.metadata.resource_version


def _stored_a(partition: Partition) -> tuple[bytes, str]:
    _stored(about("a"), about("b"))(partition)
    return _a_version(partition)


def _overlay(partition: Partition, given: tuple[bytes, str], copy: bytes = b"") -> None:
    partition.call.overlay_event(partition.options, *given, b'{"action":"a"}', b'{"message":"m"}', copy)


def _remove_event(partition: Partition, given: tuple[bytes, str]) -> None:
    partition.call.remove_event(partition.options, *given)


OBJECTS = [
    Case(name="a new object", verb="put", act=lambda partition, _given: _put(partition)),
    Case(
        name="an object in the place of another",
        verb="put",
        prepare=_put,
        act=lambda partition, version: partition.call.put(partition.options, node(b'{"a":2}'), version, b"was"),
    ),
    Case(
        name="an object",
        verb="remove",
        prepare=_put,
        act=lambda partition, version: partition.call.remove(partition.options, "nodes", item_key("", "n1"), version),
    ),
    Case(name="a recorded event", verb="remove_event", prepare=_stored_a, act=_remove_event),
    Case(
        name="an event that was written",
        verb="remove_event",
        prepare=lambda partition: (item_key("default", "w1"), _write_event(partition, "first")),
        act=_remove_event,
    ),
    Case(
        name="a new event",
        verb="put_client_event",
        act=lambda partition, _given: _write_event(partition, "first"),
    ),
    Case(
        name="an event in the place of another",
        verb="put_client_event",
        prepare=lambda partition: _write_event(partition, "first"),
        act=lambda partition, version: _write_event(partition, "second", version),
    ),
    Case(name="a recorded event is patched", verb="overlay_event", prepare=_stored_a, act=_overlay),
]


#: A copy that was made stays when a later write is refused, and the repeated call makes another.
COPYING = [
    Case(
        name="a new event that is copied to the stream",
        verb="put_client_event",
        act=lambda partition, _given: _write_event(partition, "first", copy=b"copy"),
        balanced=False,
    ),
    Case(
        name="a patch that is copied to the stream",
        verb="overlay_event",
        prepare=_stored_a,
        act=lambda partition, given: _overlay(partition, given, copy=b"copy"),
        balanced=False,
    ),
]


# -- exports ---------------------------------------------------------------------------------------------------------


def _export(partition: Partition, consumer: str = "one") -> ExportStore:
    return ExportStore(bus=partition.bus, client=partition.client, partition=0, sink="file", consumer=consumer)


def _leased(partition: Partition) -> tuple[ExportStore, str]:
    dead = _buried(partition).decode()
    store = _export(partition)
    store.acquire()
    store.settle(
        ExportCheckpoint(
            position=1, returned={"0" * 14: UpdateState("old", "1", 1, 1, 0)}, later={dead: 5, "1" * 14: 5}
        )
    )
    return store, dead


def _returned(partition: Partition) -> tuple[ExportStore, ExportCheckpoint]:
    store, dead = _leased(partition)
    returned = {"0" * 14: None, "1" * 14: UpdateState("name", "2", 7, 1, 0)}
    later, done = {"2" * 14: 9}, ["1" * 14, dead]
    return store, ExportCheckpoint(position=7, returned=returned, later=later, done=done, raised={"written": 2})


def _rejected(partition: Partition) -> tuple[ExportStore, ExportCheckpoint]:
    burial = Burial("rejected", "p1:1", "export:file", "0" * 14, "it will not", b"body")
    return _leased(partition)[0], ExportCheckpoint(position=7, burials=[burial])


def _settle(_partition: Partition, given: tuple[ExportStore, ExportCheckpoint]) -> None:
    store, settled = given
    store.settle(settled)


def _held_by_another(partition: Partition) -> None:
    _export(partition, "two").acquire()


def _take_lease_over(partition: Partition, _given: Any) -> None:
    # Who is told that it is held looks again at the counter that he is told, and comes back with that.
    found = _export(partition).acquire("two", "1")
    while not found.ours:
        found = _export(partition).acquire(found.holder, found.beats)


EXPORTS = [
    Case(name="a new sink", verb="export_acquire", act=lambda partition, _given: _export(partition).acquire()),
    Case(
        name="from a worker that stands still",
        verb="export_acquire",
        prepare=_held_by_another,
        act=_take_lease_over,
    ),
    Case(name="what a sink returned", verb="export_settle", prepare=_returned, act=_settle),
    Case(name="what a sink will not take", verb="export_settle", prepare=_rejected, act=_settle, balanced=False),
    Case(
        name="a lease given back",
        verb="export_release",
        prepare=lambda partition: _export(partition).acquire(),
        act=lambda partition, _given: _export(partition).release(),
    ),
]


ANNOUNCEMENTS = [
    Case(
        name="a build is in use",
        verb="announce",
        act=lambda partition, _given: partition.call.announce("worker", "one"),
    ),
    Case(
        name="one that nobody has used for a month is forgotten",
        verb="announce",
        prepare=lambda partition: partition.admin.hset(partition.keys.builds, "0ld/worker", "1 2 0,1 old"),
        act=lambda partition, _given: partition.call.announce("worker", "one"),
    ),
]


def _notifier(partition: Partition, consumer: str = "one") -> NotifyStore:
    return NotifyStore(bus=partition.bus, client=partition.client, consumer=consumer)


def _notifying(partition: Partition) -> NotifyStore:
    store = _notifier(partition)
    store.acquire("rules")
    store.settle({"a1": b"\x91\xa11", "g1": b"\x91\xa11"}, {"position:0": "1", "expected:2": "{}"}, life_ms=HOUR)
    return store


def _take_notifier_over(partition: Partition, _given: object) -> None:
    hold = _notifier(partition, "two").acquire("rules")
    while not hold.ours:
        hold = _notifier(partition, "two").acquire("rules", hold.holder, hold.beats)


NOTIFICATIONS = [
    Case(
        name="the first",
        verb="notify_acquire",
        act=lambda partition, _given: _notifier(partition).acquire("rules"),
        alone=True,
    ),
    Case(
        name="from a worker that stands still",
        verb="notify_acquire",
        prepare=_notifying,
        act=_take_notifier_over,
        alone=True,
    ),
    Case(
        name="alerts, groups and positions",
        verb="notify_settle",
        prepare=_notifying,
        act=lambda _partition, store: store.settle(
            {"a1": b"", "a2": b"\x91\xa12", "g1": b"\x92\xa11\x04"},
            {"position:0": "7", "expected:1": "{}", "expected:2": ""},
            life_ms=HOUR,
        ),
        alone=True,
    ),
    Case(
        name="a lease given back",
        verb="notify_release",
        prepare=_notifying,
        act=lambda _partition, store: store.release(),
        alone=True,
    ),
]


def _checkpoint(version: int) -> Callable[[Partition, Any], object]:
    return lambda partition, _given: partition.call.checkpoint([version], whole=True)


CHECKPOINTS = [
    Case(name="the first", verb="checkpoint", act=_checkpoint(7), alone=True),
    Case(
        name="a step",
        verb="checkpoint",
        prepare=lambda partition: partition.call.checkpoint([7], whole=True),
        act=_checkpoint(9),
        alone=True,
    ),
]

CASES = [
    *PUBLISH,
    *RECORD,
    *DEAD,
    *WORKERS,
    *HOUSEKEEPING,
    *OPEN,
    *OBJECTS,
    *EXPORTS,
    *CHECKPOINTS,
    *NOTIFICATIONS,
    *ANNOUNCEMENTS,
]


def candidates(partition: Partition) -> list[bytes]:
    """All that expire can be given, each once."""
    indexes = (partition.keys.index_expiry, partition.keys.index_forget)
    return list(dict.fromkeys(key for index in indexes for key in partition.admin.zrange(index, 0, -1)))


def go_on(partition: Partition) -> None:
    """Go on whatever has been: a producer records something, a worker works, the house is kept."""
    partition.call.open("0" * 16, "sink")
    send(partition, "later", about("later"), bound=GENEROUS)
    drain(partition)
    partition.expire(keys=candidates(partition))
    _refresh(partition, partition.admin.zrange(partition.keys.index_refresh, 0, -1))
    states = sorted(partition.admin.scan_iter(match=partition.keys.correlation + b"*", count=1000))
    partition.call.forget(partition.options, {key[-14:]: 0 for key in states[:1]})
    partition.call.trim(partition.options)
