"""correlate/keys.py: which field is in which key, and that no two texts make one key by sharing a border."""

from __future__ import annotations

import itertools
import struct
import tracemalloc
from typing import Any

import msgpack
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventbus.broker.functions import CorrelateCall
from eventbus.broker.keys import Keys
from eventbus.correlate.keys import KEY_WEIGHT, MAX_CALL_WEIGHT, CallBuilder, Correlator, KeyedEvent, OpenedBatch
from eventbus.model.encoding.wire import Batch, from_microseconds, pack_event, stored_body, unpack_wire
from eventbus.model.event import Event, EventSeries, EventSource, ObjectMeta, ObjectReference
from eventbus.settings import AggregateKey, Options, SpamKey
from tests.builders import NOW, make_event, make_packed_in_series, make_reference, make_similar_events, texts

EVENT, AGGREGATE, SPAM = "event key", "aggregate key", "spam key"


def keyed(event: Event, options: Options | None = None) -> KeyedEvent:
    packed = pack_event(event)
    return Correlator(options or Options()).keyed("uid", unpack_wire(packed), packed)


def keys_of(event: Event, options: Options | None = None) -> dict[str, bytes]:
    found = keyed(event, options)
    return {EVENT: found.key, AGGREGATE: found.subject.aggregate_object, SPAM: found.subject.spam}


def base(**overrides: Any) -> Event:
    """Every field of it is set, to something else than in `changed`."""
    fields: dict[str, Any] = {
        "involved_object": make_reference(resource_version="7", field_path="spec.containers{a}"),
        "source": EventSource("kubelet", "node-1"),
        "reporting_component": "example.com/kubelet",
        "reporting_instance": "kubelet-1",
        "action": "Starting",
        "event_time": NOW,
        "related": make_reference(name="other"),
        "metadata": ObjectMeta(name="a", namespace="default", labels={"a": "b"}, annotations={"a": "b"}),
    }
    return make_event(**(fields | overrides))


def about(**overrides: Any) -> dict[str, Any]:
    return {"involved_object": msgspec.structs.replace(base().involved_object, **overrides)}


#: client-go's table (tools/record/events_cache.go): what is changed, and the keys that change with it.
TABLE: dict[str, tuple[dict[str, Any], set[str]]] = {
    "source.component": ({"source": EventSource("other", "node-1")}, {EVENT, AGGREGATE, SPAM}),
    "source.host": ({"source": EventSource("kubelet", "node-2")}, {EVENT, AGGREGATE, SPAM}),
    "involvedObject.kind": (about(kind="Node"), {EVENT, AGGREGATE, SPAM}),
    "involvedObject.namespace": (about(namespace="other"), {EVENT, AGGREGATE, SPAM}),
    "involvedObject.name": (about(name="web-1"), {EVENT, AGGREGATE, SPAM}),
    "involvedObject.fieldPath": (about(field_path="spec.containers{b}"), {EVENT}),
    "involvedObject.uid": (about(uid="uid-2"), {EVENT, AGGREGATE, SPAM}),
    "involvedObject.apiVersion": (about(api_version="v2"), {EVENT, AGGREGATE, SPAM}),
    "type": ({"type": "Warning"}, {EVENT, AGGREGATE, SPAM}),
    "reason": ({"reason": "Other"}, {EVENT, AGGREGATE}),
    "message": ({"message": "other"}, {EVENT}),
    "reportingComponent": ({"reporting_component": "other"}, {AGGREGATE}),
    "reportingInstance": ({"reporting_instance": "other"}, {AGGREGATE}),
    "involvedObject.resourceVersion": (about(resource_version="8"), set()),
    "metadata.name": ({"metadata": ObjectMeta(name="b", namespace="default")}, set()),
    "metadata.namespace": ({"metadata": ObjectMeta(name="a", namespace="other")}, set()),
    "metadata.labels": ({"metadata": ObjectMeta(name="a", namespace="default", labels={"x": "y"})}, set()),
    "metadata.annotations": ({"metadata": ObjectMeta(name="a", namespace="default", annotations={"x": "y"})}, set()),
    "action": ({"action": "other"}, set()),
    "related": ({"related": None}, set()),
    "eventTime": ({"event_time": None}, set()),
    "series": ({"series": EventSeries(2, NOW)}, set()),
    "count": ({"count": 7}, set()),
    "firstTimestamp": ({"first_timestamp": None}, set()),
    "lastTimestamp": ({"last_timestamp": None}, set()),
}


@pytest.mark.parametrize("field", TABLE)
def test_each_field_is_in_the_keys_of_the_table(field: str) -> None:
    overrides, expected = TABLE[field]
    before, after = keys_of(base()), keys_of(base(**overrides))
    assert {name for name in before if before[name] != after[name]} == expected


@pytest.mark.parametrize(
    ("spam_key", "in_it"),
    [
        (SpamKey.OBJECT, set()),
        (SpamKey.OBJECT_TYPE, {"type"}),
        (SpamKey.OBJECT_TYPE_REASON, {"type", "reason"}),
    ],
)
def test_the_spam_key_is_an_option(spam_key: SpamKey, in_it: set[str]) -> None:
    options = Options(spam_key=spam_key)
    before = keys_of(base(), options)[SPAM]
    for field in ("type", "reason", "message", "reportingInstance"):
        differs = keys_of(base(**TABLE[field][0]), options)[SPAM] != before
        assert differs is (field in in_it), field


def test_the_aggregate_key_may_keep_containers_apart() -> None:
    options = Options(aggregate_key=AggregateKey.REASON_FIELD_PATH)
    other = base(**TABLE["involvedObject.fieldPath"][0])
    assert keys_of(base(), options)[AGGREGATE] != keys_of(other, options)[AGGREGATE]
    assert keys_of(base(), options)[SPAM] == keys_of(other, options)[SPAM]


def test_keys_are_the_same_in_every_process_and_for_ever() -> None:
    """They name what lies in Redis: a change would forget every count."""
    assert {name: key.decode() for name, key in keys_of(make_event()).items()} == {
        EVENT: "amw2SEfo0xDAKh",
        AGGREGATE: "jTDluZZTDOYya9",
        SPAM: "9Wbpg0z1e87FO.",
    }


def test_similar_events_differ_in_their_local_key_alone() -> None:
    one, two = (keyed(event) for event in make_similar_events(2))
    assert one.subject.similar == two.subject.similar
    assert one.local != two.local
    assert len(one.local) == 8
    assert len(one.key) == len(one.subject.spam) == len(one.subject.aggregate_object) == 14


def test_the_kinds_of_keys_never_meet() -> None:
    """The same fields, as event, set of similar ones, bucket, folded event and report, are five keys."""
    empty = Event(involved_object=ObjectReference(), source=EventSource())
    found = keyed(empty)
    subject = found.subject
    keys = {found.key, subject.similar, subject.spam, subject.aggregate_object, subject.suppressed_object}
    assert len(keys) == 5


# -- no collisions --------------------------------------------------------------------------------------------------

#: The text fields of the event key, in client-go's order, which joins them with nothing between.
FIELDS = (
    "component",
    "host",
    "kind",
    "namespace",
    "name",
    "field_path",
    "uid",
    "api_version",
    "type",
    "reason",
    "message",
)


def of_fields(values: tuple[str, ...]) -> Event:
    given = dict(zip(FIELDS, values, strict=True))
    return Event(
        source=EventSource(given["component"], given["host"]),
        involved_object=ObjectReference(
            kind=given["kind"],
            namespace=given["namespace"],
            name=given["name"],
            uid=given["uid"],
            api_version=given["api_version"],
            field_path=given["field_path"],
        ),
        type=given["type"],
        reason=given["reason"],
        message=given["message"],
    )


@pytest.mark.parametrize("border", range(len(FIELDS) - 1), ids=[f"{a}|{b}" for a, b in itertools.pairwise(FIELDS)])
def test_a_character_moved_over_a_border_makes_another_key(border: int) -> None:
    values = ["ab"] * len(FIELDS)
    before = keyed(of_fields(tuple(values)))
    values[border], values[border + 1] = "a", "bab"
    after = keyed(of_fields(tuple(values)))
    assert before.key != after.key


@pytest.mark.parametrize(
    ("one", "two"),
    [
        (("1:a", ""), ("", "1:a")),
        (("a", "1:b"), ("a1:b", "")),
        (("3:abc", "0:"), ("3:abc0:", "")),
        (("", "0:0:"), ("0:", "0:")),
        (("é", ""), ("e\u0301", "")),
        (("a\0", "b"), ("a", "\0b")),
    ],
)
def test_text_that_looks_like_a_length_makes_another_key(one: tuple[str, str], two: tuple[str, str]) -> None:
    rest = ("",) * (len(FIELDS) - 2)
    assert keyed(of_fields((*one, *rest))).key != keyed(of_fields((*two, *rest))).key


some = st.tuples(*[st.sampled_from(["", "a", "b", "ab", "0:", "1:", "1:a", "2:ab"]) | texts(4)] * len(FIELDS))


@given(some, some)
def test_different_fields_make_different_keys_and_the_same_the_same(one: tuple[str, ...], two: tuple[str, ...]) -> None:
    first, second = keyed(of_fields(one)), keyed(of_fields(two))
    assert (first.key == second.key) is (one == two)
    without_message_and_path = [i for i, field in enumerate(FIELDS) if field not in ("message", "field_path")]
    same_subject = all(one[i] == two[i] for i in without_message_and_path)
    # the reporter is in the aggregate's key as well, and here it is nobody
    assert (first.subject.similar == second.subject.similar) is same_subject


def usual(name: str = "web-0.1", at_us: int = 10**15, **fields: Any) -> bytes:
    """An event as a recorder of core/v1 packs it."""
    event = make_event(
        metadata=ObjectMeta(name=name, namespace=fields.pop("namespace", "default")),
        first_timestamp=from_microseconds(at_us),
        last_timestamp=from_microseconds(at_us + fields.pop("lasted_us", 0)),
        **fields,
    )
    return pack_event(event)


@pytest.mark.parametrize("name", ["", "web-0.2", "w" * 31, "w" * 32, "w" * 255])
def test_a_repeat_of_the_latest_event_joins_its_run(name: str) -> None:
    first, again = usual(), usual(name, 10**15 + 7, lasted_us=5)
    (run,) = opened(first, again, usual(at_us=10**15 + 12)).events
    assert run.lasts == [10**15, 10**15 + 12, 10**15 + 12]
    assert (run.uid, run.key, run.body) == ("p:0", keyed_of(again).key, keyed_of(again).body)


def test_a_batch_can_be_opened_without_runs() -> None:
    batch = opened(usual("web-0.1"), usual("web-0.2"), b"\xc1", usual("web-0.3"))
    assert [run.lasts for run in batch.events] == [[10**15] * 3]
    alone = batch.unfolded()
    assert [(each.uid, each.event.name, each.lasts) for each in alone.events] == [
        ("p:0", "web-0.1", None),
        ("p:1", "web-0.2", None),
        ("p:3", "web-0.3", None),
    ]
    assert len(batch.burials) == 1
    assert alone.burials == batch.burials


@pytest.mark.parametrize(
    "other",
    [
        usual(message="other"),
        usual(namespace="elsewhere"),
        usual(count=2),
        usual("w" * 256),
        usual("wöb"),
        usual(at_us=1_000),
        usual(at_us=10**15 - 1),
        usual(reason="Other"),
        usual(source=EventSource("kubelet", "node-2")),
        usual().replace(b"web-0.1", b"web\xff0.1"),
        b"",
        usual()[-40:],
    ],
)
def test_another_event_than_the_latest_joins_no_run(other: bytes) -> None:
    batch = opened(usual(), other)
    assert [run.lasts for run in batch.events] in ([None], [None, None])
    assert len(batch.events) + len(batch.burials) == 2


def test_no_event_joins_a_run_over_another_event() -> None:
    runs = opened(usual(), make_packed_in_series(10**12), usual(), usual(message="other"), usual()).events
    assert [run.lasts for run in runs] == [None] * 5


def opened(*packed: bytes) -> OpenedBatch:
    return Correlator(Options()).open_events(Batch("p", 0, list(packed)), range(len(packed)))


def keyed_of(packed: bytes) -> KeyedEvent:
    return Correlator(Options()).keyed("uid", unpack_wire(packed), packed)


# -- calls ----------------------------------------------------------------------------------------------------------


def builder_with(batches: list[list[Event]], options: Options | None = None) -> CallBuilder:
    builder, correlator = CallBuilder(Keys("t", 0), options or Options()), Correlator(options or Options())
    for number, batch in enumerate(batches):
        packed = [pack_event(event) for event in batch]
        builder.add(b"%d-0" % (number + 1), 0, correlator.open_events(Batch("p", 0, packed), range(len(packed))))
    return builder


def call_of(*batches: list[Event]) -> CorrelateCall:
    return builder_with(list(batches)).call()


def test_every_key_is_passed_once_however_many_events_need_it() -> None:
    call = call_of([make_event()] * 5, [make_event(), make_event(message="other")])
    assert len(call.keys) == len(set(call.keys))
    kinds = sorted(key.removeprefix(b"t:{0}:").partition(b":")[0] for key in call.keys)
    # the state of the source; two events, the folded one, the report; the minute of both batches
    assert kinds == [b"corr", b"object", b"object", b"object", b"object", b"occurrences"]
    assert len(call.batches) == 2


def rows_of(batch: bytes) -> int:
    values = msgpack.unpackb(batch, raw=True)[6]
    return len(values) // 8


def test_equal_events_of_a_batch_are_one_row_unless_their_times_decrease() -> None:
    def at(us: int, **fields: Any) -> Event:
        return make_event(first_timestamp=from_microseconds(10**15 + us), **fields)

    batch = [at(0), at(5), at(5), at(9), at(8), at(9), at(9, message="other"), at(9), at(9, count=2), at(9)]
    call = call_of(batch, [at(10)])
    assert [rows_of(each) for each in call.batches] == [6, 1]
    assert [rows_of(each) for each in call.unfolded()] == [10, 1]


def test_a_first_batch_always_fits_and_a_second_while_the_call_is_light() -> None:
    def distinct(n: int) -> list[KeyedEvent]:
        return opened(*map(pack_event, make_similar_events(n))).events

    builder = CallBuilder(Keys("t", 0), Options())
    assert builder.fits(distinct(1_000))
    builder = builder_with([make_similar_events(64)])
    assert 64 * KEY_WEIGHT + 64 <= MAX_CALL_WEIGHT
    assert builder.fits(distinct(MAX_CALL_WEIGHT - 64 * (KEY_WEIGHT + 1)))  # the same 64 keys
    assert not builder.fits(distinct(64) + distinct(80))


def test_a_run_of_equal_events_weighs_as_one() -> None:
    builder = builder_with([[make_event()] * 64] * 64)
    assert builder.events == 64 * 64
    assert builder.fits(opened(*[pack_event(make_event())] * 64).events)


# -- bodies ---------------------------------------------------------------------------------------------------------


def test_repeats_of_a_recorders_event_share_one_body() -> None:
    names = [ObjectMeta(name=f"web.{n:x}", namespace="default") for n in range(20)]
    call = call_of([make_event(metadata=name) for name in names])
    assert len(call.bodies) == 1


@given(texts(40), texts(40), texts(40), st.sampled_from([1, 2]), st.booleans())
def test_a_stored_body_says_all_but_what_is_stored_beside_it(
    name: str, message: str, other: str, count: int, times: bool
) -> None:
    correlator = Correlator(Options())
    for said in (message, message, other, message):
        event = make_event(metadata=ObjectMeta(name=name, namespace="default"), message=said, count=count)
        if not times:
            event = msgspec.structs.replace(event, first_timestamp=None)
        packed = pack_event(event)
        wire = unpack_wire(packed)
        kept = unpack_wire(correlator.keyed("uid", wire, packed).body)
        for field in ("involved_object", "reason", "message", "type", "source", "reporter", "labels", "event_us"):
            assert getattr(kept, field) == getattr(wire, field)


def test_an_event_of_an_unusual_shape_is_stored_as_it_came() -> None:
    for event in (make_event(count=7), make_event(action="Restarting"), make_event(first_timestamp=None)):
        packed = pack_event(event)
        assert stored_body(packed, unpack_wire(packed)) == packed


@pytest.mark.parametrize("last_byte", [0xCF, 0x00])
def test_an_event_whose_numbers_are_packed_in_another_way_can_be_read_when_it_is_stored(last_byte: int) -> None:
    us = 0x6_60E4_41B0_D000 + last_byte
    packed = pack_event(make_event(first_timestamp=from_microseconds(us), last_timestamp=from_microseconds(us)))
    foreign = packed[:-1] + struct.pack(">BQ", 0xCF, 1)  # a count of one, in nine bytes
    wire = unpack_wire(foreign)
    assert wire == unpack_wire(packed)
    assert unpack_wire(stored_body(foreign, wire)).involved_object == wire.involved_object
    assert stored_body(packed, wire) != packed


def test_a_long_message_is_not_kept_with_its_subject() -> None:
    correlator = Correlator(Options())
    for n in range(50):
        about = ObjectReference("Pod", "default", f"web-{n}")
        packed = pack_event(make_event(involved_object=about, message="x" * 12_000))
        correlator.keyed("uid", unpack_wire(packed), packed)
    tracemalloc.start()
    for n in range(50, 550):
        about = ObjectReference("Pod", "default", f"web-{n}")
        packed = pack_event(make_event(involved_object=about, message="x" * 12_000))
        correlator.keyed("uid", unpack_wire(packed), packed)
    kept, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert kept < 500 * 6_000


# -- series ----------------------------------------------------------------------------------------------------------


def keyed_in_series(correlator: Correlator, at_ms: int = 0, **fields: str) -> KeyedEvent:
    packed = make_packed_in_series(1_700_000_000_000 + at_ms, **fields)
    return correlator.keyed("uid", unpack_wire(packed), packed)


def test_events_of_a_series_share_key_and_body_unless_the_note_differs() -> None:
    correlator = Correlator(Options())
    first, repeat, other = (
        keyed_in_series(correlator, at_ms, note=note) for at_ms, note in ((0, "a"), (1, "a"), (2, "b"))
    )
    assert first.subject is repeat.subject is other.subject
    assert first.body is repeat.body
    assert unpack_wire(other.body).message == "b"
    bare = unpack_wire(first.body)
    assert (bare.name, bare.namespace, bare.event_us, bare.in_series) == ("", "", None, 0)
    assert (bare.reason, bare.action, bare.reporter) == ("Failed", "Binding", ("example.com/c", "one"))


def test_long_bodies_of_series_are_not_kept() -> None:
    correlator = Correlator(Options())
    long, repeat = (keyed_in_series(correlator, related=f"Pod/{'n' * 200}", uid="u" * 3_000) for _ in range(2))
    assert long.body == repeat.body
    assert long.body is not repeat.body


def test_a_series_is_counted_by_its_controller() -> None:
    subject = keyed_in_series(Correlator(Options())).subject
    assert subject.dimensions == "example.com/c\0Pod\0Normal\0Failed"


def test_an_event_of_a_series_without_a_time_is_counted_as_any_other() -> None:
    event = msgspec.structs.replace(unpack_wire(pack_event(base())), event_us=None, in_series=1)
    packed = msgspec.msgpack.encode(event)
    assert Correlator(Options()).keyed("uid", unpack_wire(packed), packed).local
