from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta, timezone
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from eventbus.errors import InvalidEvent
from eventbus.model.encoding import event_json as codec
from eventbus.model.encoding.json_read import load
from eventbus.model.event import Event, EventSeries, EventSource, EventType, ObjectMeta, ObjectReference, OwnerReference
from tests.builders import NOW, events, make_event, make_reference

# What client-go wrote, recorded from the running program (kind and apiVersion are added by the API server).
GO_PLAIN = (
    '{"metadata":{"name":"web-0.d234ccf52430000","namespace":"default"},"involvedObject":{"kind":"Pod",'
    '"namespace":"default","name":"web-0","uid":"u1","apiVersion":"v1"},"reason":"Started","message":"hello",'
    '"source":{"component":"ctl","host":"h1"},"firstTimestamp":"2000-01-01T00:00:00Z",'
    '"lastTimestamp":"2000-01-01T00:00:00Z","count":1,"type":"Normal","eventTime":null,'
    '"reportingComponent":"ctl","reportingInstance":"h1"}'
)
GO_FULL = (
    '{"metadata":{"name":"web-0.17a6101701650000","namespace":"default","labels":{"l":"v"},"annotations":{"a":"b"}},'
    '"involvedObject":{"kind":"Pod","namespace":"default","name":"web-0","uid":"uid-1","apiVersion":"v1"},'
    '"reason":"Started","message":"m0","source":{"component":"kubelet","host":"node-1"},'
    '"firstTimestamp":"2024-01-01T00:00:00Z","lastTimestamp":"2024-01-01T00:00:00Z","count":1,"type":"Normal",'
    '"eventTime":"2024-01-01T00:00:00.123456Z","series":{"count":3,"lastObservedTime":"2024-01-01T00:00:00.000001Z"},'
    '"action":"act","related":{"kind":"Node","name":"n"},"reportingComponent":"rc","reportingInstance":"ri-1"}'
)
GO_PATCHED = (
    '{"metadata":{"name":"web-0.17a6101701650000","namespace":"default","resourceVersion":"1","annotations":{"a":"1"}},'
    '"involvedObject":{"kind":"Pod","namespace":"default","name":"web-0","uid":"uid-1","apiVersion":"v1"},'
    '"reason":"Started","message":"same","source":{"component":"kubelet","host":"node-1"},'
    '"firstTimestamp":"2024-01-01T00:00:00Z","lastTimestamp":"2024-01-01T00:00:01Z","count":2,"type":"Normal",'
    '"eventTime":null,"action":"act1","reportingComponent":"rc1","reportingInstance":""}'
)
GO_EVENTS_V1 = (
    '{"metadata":{"name":"web-0.d234ccf52430000","namespace":"default"},"eventTime":"2000-01-01T00:00:00.000000Z",'
    '"reportingController":"ctl.example.com","reportingInstance":"ctl.example.com-HOSTNAME","action":"act",'
    '"reason":"Started","regarding":{"kind":"Pod","namespace":"default","name":"web-0","uid":"u1","apiVersion":"v1"},'
    '"note":"hello","type":"Normal","deprecatedSource":{},"deprecatedFirstTimestamp":null,'
    '"deprecatedLastTimestamp":null}'
)


def _handed_out(written_by_go: str, version: str) -> str:
    return f'{{"kind":"Event","apiVersion":"{version}",{written_by_go[1:]}'


def _encode_events_v1(event: Event) -> bytes:
    return json.dumps(codec.to_events_v1(event), ensure_ascii=False, separators=(",", ":")).encode()


def _decode_events_v1(data: bytes | str) -> Event:
    return codec.from_events_v1(load(data))


# ---- as Go writes it


@pytest.mark.parametrize("written_by_go", [GO_PLAIN, GO_FULL, GO_PATCHED], ids=["plain", "full", "patched"])
def test_core_json_is_byte_for_byte_what_go_writes(written_by_go: str) -> None:
    event = codec.decode_core(written_by_go)
    assert codec.encode_core(event).decode() == _handed_out(written_by_go, "v1")
    assert codec.decode_core(codec.encode_core(event)) == event


def test_events_v1_json_is_byte_for_byte_what_go_writes() -> None:
    event = _decode_events_v1(GO_EVENTS_V1)
    assert _encode_events_v1(event).decode() == _handed_out(GO_EVENTS_V1, "events.k8s.io/v1")


def test_every_core_field_is_read_into_its_place() -> None:
    assert codec.decode_core(GO_FULL) == Event(
        metadata=ObjectMeta(
            name="web-0.17a6101701650000", namespace="default", labels={"l": "v"}, annotations={"a": "b"}
        ),
        involved_object=make_reference(),
        reason="Started",
        message="m0",
        source=EventSource(component="kubelet", host="node-1"),
        first_timestamp=datetime(2024, 1, 1, tzinfo=UTC),
        last_timestamp=datetime(2024, 1, 1, tzinfo=UTC),
        count=1,
        type="Normal",
        event_time=datetime(2024, 1, 1, 0, 0, 0, 123456, tzinfo=UTC),
        series=EventSeries(count=3, last_observed_time=datetime(2024, 1, 1, 0, 0, 0, 1, tzinfo=UTC)),
        action="act",
        related=ObjectReference(kind="Node", name="n"),
        reporting_component="rc",
        reporting_instance="ri-1",
    )


def test_an_empty_core_event_has_just_the_keys_go_never_leaves_out() -> None:
    assert codec.encode_core(Event(series=EventSeries(), related=ObjectReference())).decode() == (
        '{"kind":"Event","apiVersion":"v1","metadata":{},"involvedObject":{},"source":{},"firstTimestamp":null,'
        '"lastTimestamp":null,"eventTime":null,"series":{"lastObservedTime":null},"related":{},'
        '"reportingComponent":"","reportingInstance":""}'
    )


def test_an_empty_events_v1_event_has_just_the_keys_go_never_leaves_out() -> None:
    assert _encode_events_v1(Event(series=EventSeries(), related=ObjectReference())).decode() == (
        '{"kind":"Event","apiVersion":"events.k8s.io/v1","metadata":{},"eventTime":null,'
        '"series":{"count":0,"lastObservedTime":null},"regarding":{},"related":{},"deprecatedSource":{},'
        '"deprecatedFirstTimestamp":null,"deprecatedLastTimestamp":null}'
    )


def test_a_core_event_has_its_other_names_in_events_v1() -> None:
    assert codec.to_events_v1(make_event(related=ObjectReference(kind="Node", name="n"), action="act")) == {
        "kind": "Event",
        "apiVersion": "events.k8s.io/v1",
        "metadata": {"name": "web-0.17a6101701650000", "namespace": "default"},
        "eventTime": None,
        "reportingController": "kubelet",
        "reportingInstance": "node-1",
        "action": "act",
        "reason": "Started",
        "regarding": {"kind": "Pod", "namespace": "default", "name": "web-0", "uid": "uid-1", "apiVersion": "v1"},
        "related": {"kind": "Node", "name": "n"},
        "note": "Started container web",
        "type": "Normal",
        "deprecatedSource": {"component": "kubelet", "host": "node-1"},
        "deprecatedFirstTimestamp": "2024-01-01T12:00:00Z",
        "deprecatedLastTimestamp": "2024-01-01T12:00:00Z",
        "deprecatedCount": 1,
    }


def test_metadata_is_in_the_order_of_go_and_its_maps_are_sorted() -> None:
    metadata = ObjectMeta(
        labels={"b": "1", "a": "2"},
        annotations={"ä": "1", "z": "2"},
        creation_timestamp=NOW,
        resource_version="7",
        uid="u",
        namespace="n",
        generate_name="g-",
        name="m",
        generation=3,
        deletion_timestamp=NOW,
        deletion_grace_period_seconds=0,
        owner_references=(
            OwnerReference("v1", "Pod", "p", "u1", controller=False),
            OwnerReference("", "", "", "", block_owner_deletion=True),
        ),
        finalizers=("example.com/z", "example.com/a"),
        managed_fields=({"manager": "kubectl", "time": None, "fieldsV1": {"f:b": {}, "f:a": [1, "", None]}},),
    )
    assert codec.decode_core(codec.encode_core(Event(metadata=metadata))).metadata == metadata
    assert json.dumps(codec.to_core(Event(metadata=metadata))["metadata"], ensure_ascii=False) == (
        '{"name": "m", "generateName": "g-", "namespace": "n", "uid": "u", "resourceVersion": "7", '
        '"generation": 3, "creationTimestamp": "2024-01-01T12:00:00Z", "deletionTimestamp": "2024-01-01T12:00:00Z", '
        '"deletionGracePeriodSeconds": 0, "labels": {"a": "2", "b": "1"}, "annotations": {"z": "2", "ä": "1"}, '
        '"ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u1", "controller": false}, '
        '{"apiVersion": "", "kind": "", "name": "", "uid": "", "blockOwnerDeletion": true}], '
        '"finalizers": ["example.com/z", "example.com/a"], "managedFields": [{"manager": "kubectl", "time": null, '
        '"fieldsV1": {"f:b": {}, "f:a": [1, "", null]}}]}'
    )


def test_the_type_is_handed_out_as_a_plain_string() -> None:
    event = make_event(type=EventType.WARNING)
    assert type(codec.to_core(event)["type"]) is str
    assert type(codec.to_events_v1(event)["type"]) is str


# ---- round trips


@given(events())
def test_core_json_gives_the_event_back(event: Event) -> None:
    assert codec.decode_core(codec.encode_core(event)) == event
    assert codec.from_core(codec.to_core(event)) == event


@given(events())
@example(Event(first_timestamp=NOW, event_time=NOW))
@example(Event(metadata=ObjectMeta(creation_timestamp=NOW)))
def test_events_v1_json_gives_the_event_back(event: Event) -> None:
    assert _decode_events_v1(_encode_events_v1(event)) == event
    assert codec.from_events_v1(codec.to_events_v1(event)) == event


@given(events())
@example(make_event(first_timestamp=NOW.replace(microsecond=5, tzinfo=timezone(timedelta(hours=2)))))
@example(make_event(series=EventSeries(count=2, last_observed_time=NOW.replace(tzinfo=timezone(timedelta(hours=2))))))
@example(make_event(first_timestamp=datetime(1, 1, 1, microsecond=5, tzinfo=UTC)))
def test_what_will_be_read_back_is_known_without_writing_it(event: Event) -> None:
    known, read = codec.as_read_back(event), codec.decode_core(codec.encode_core(event))
    assert known == read
    for one, other in ((known, read), (known.series, read.series)):
        for field in ("first_timestamp", "event_time", "last_observed_time"):
            assert str(getattr(one, field, None)) == str(getattr(other, field, None))  # in UTC, too


# ---- times


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("2024-01-01T12:00:00Z", NOW),
        ("2024-01-01T12:00:00+00:00", NOW),
        ("2024-01-01T12:00:00-00:00", NOW),
        ("2024-01-01t12:00:00z", NOW),
        ("2024-01-01T14:30:00+02:30", NOW),
        ("2023-12-31T23:00:00-13:00", NOW),
        ("2024-01-01T12:00:00.5Z", NOW + timedelta(milliseconds=500)),
        ("2024-01-01T12:00:00.000001Z", NOW + timedelta(microseconds=1)),
        ("2024-01-01T12:00:00.123456789Z", NOW + timedelta(microseconds=123456)),
        ("2024-01-01T13:59:59.999999999+02:00", NOW - timedelta(microseconds=1)),
        ("9999-12-31T23:59:59.9999999Z", datetime.max.replace(tzinfo=UTC)),
        ("0001-01-01T00:00:00Z", None),
        ("0001-01-01T02:00:00+02:00", None),
        (None, None),
    ],
)
def test_any_rfc_3339_time_is_read_as_utc_and_cut_to_microseconds(written: str | None, read: datetime | None) -> None:
    core = codec.decode_core(json.dumps({"eventTime": written, "metadata": {"creationTimestamp": written}}))
    new = _decode_events_v1(json.dumps({"eventTime": written, "series": {"count": 2, "lastObservedTime": written}}))
    assert new.series is not None
    times = [core.event_time, core.metadata.creation_timestamp, new.event_time, new.series.last_observed_time]
    assert times == [read] * 4
    assert all(time is None or time.tzinfo is UTC for time in times)


@pytest.mark.parametrize(
    "written", ["", "2024-01-01", "2024-01-01T12:00:00", "12:00:00Z", "2024-13-01T00:00:00Z", 1704110400, "now", []]
)
@pytest.mark.parametrize("decode", [codec.decode_core, _decode_events_v1])
def test_anything_else_is_no_time(decode: Callable[[str], Event], written: Any) -> None:
    with pytest.raises(InvalidEvent) as caught:
        decode(json.dumps({"eventTime": written}))
    assert caught.value.field == "eventTime"


def test_time_is_written_in_whole_seconds_and_micro_time_with_six_digits() -> None:
    moment = NOW + timedelta(microseconds=999999)
    event = make_event(
        metadata=ObjectMeta(creation_timestamp=moment),
        first_timestamp=moment,
        last_timestamp=moment,
        event_time=moment,
        series=EventSeries(count=2, last_observed_time=NOW),
    )
    core, new = codec.to_core(event), codec.to_events_v1(event)
    seconds, micros = "2024-01-01T12:00:00Z", "2024-01-01T12:00:00.999999Z"
    assert (core["firstTimestamp"], core["lastTimestamp"], core["eventTime"]) == (seconds, seconds, micros)
    assert core["metadata"]["creationTimestamp"] == seconds
    assert core["series"]["lastObservedTime"] == "2024-01-01T12:00:00.000000Z"
    assert (new["deprecatedFirstTimestamp"], new["deprecatedLastTimestamp"], new["eventTime"]) == (
        seconds,
        seconds,
        micros,
    )


def test_times_of_other_zones_are_written_in_utc_and_gos_zero_time_as_unset() -> None:
    zone = timezone(timedelta(hours=5, minutes=30))
    event = make_event(first_timestamp=NOW.astimezone(zone), last_timestamp=datetime(1, 1, 1, tzinfo=UTC))
    core = codec.to_core(event)
    assert (core["firstTimestamp"], core["lastTimestamp"]) == ("2024-01-01T12:00:00Z", None)


def test_an_early_year_is_written_with_four_digits() -> None:
    assert (
        codec.to_core(Event(first_timestamp=datetime(33, 4, 3, tzinfo=UTC)))["firstTimestamp"] == "0033-04-03T00:00:00Z"
    )


def test_a_time_that_utc_cannot_hold_is_refused() -> None:
    with pytest.raises(InvalidEvent, match="outside the years"):
        codec.decode_core('{"eventTime":"0001-01-01T00:00:00+05:00"}')
    with pytest.raises(InvalidEvent, match="outside the years"):
        codec.encode_core(Event(event_time=datetime(9999, 12, 31, 23, tzinfo=timezone(timedelta(hours=-5)))))


# ---- what other clients write


def test_null_means_unset_everywhere() -> None:
    assert codec.decode_core(
        '{"metadata":{"name":null,"labels":null,"annotations":{"a":null},"creationTimestamp":null},"reason":null,'
        '"involvedObject":{"uid":null},"source":null,"count":null,"series":null,"related":null,"action":null}'
    ) == Event(metadata=ObjectMeta(annotations={"a": ""}))
    assert _decode_events_v1('{"metadata":null,"eventTime":null,"note":null,"regarding":null}') == Event()


def test_unknown_fields_are_ignored() -> None:
    metadata = {"selfLink": "/x", "ownerReferences": []}
    assert codec.from_core({"metadata": metadata, "spec": {"eventTime": 1}}) == Event()


@pytest.mark.parametrize("data", [{"kind": "Event"}, {"kind": "", "apiVersion": ""}, {"kind": None}, {}])
def test_kind_and_version_may_be_missing(data: dict[str, Any]) -> None:
    assert codec.from_core(data) == codec.from_events_v1(data) == codec.decode_core(json.dumps(data)) == Event()


@pytest.mark.parametrize(
    ("data", "field"),
    [
        ({"kind": "Pod"}, "kind"),
        ({"kind": "event"}, "kind"),
        ({"kind": 7}, "kind"),
        ({"kind": "Event", "apiVersion": "v2"}, "apiVersion"),
    ],
)
def test_another_kind_or_version_is_refused(data: dict[str, Any], field: str) -> None:
    for read in (codec.from_core, codec.from_events_v1):
        with pytest.raises(InvalidEvent, match="must be") as caught:
            read(data)
        assert caught.value.field == field
    for decode in (codec.decode_core, _decode_events_v1):
        with pytest.raises(InvalidEvent, match="must be"):
            decode(json.dumps(data))


def test_one_version_does_not_read_the_other() -> None:
    with pytest.raises(InvalidEvent, match=r"must be v1, is 'events\.k8s\.io/v1'"):
        codec.decode_core(_encode_events_v1(make_event()))
    with pytest.raises(InvalidEvent, match=r"must be events\.k8s\.io/v1, is 'v1'"):
        _decode_events_v1(codec.encode_core(make_event()))


def test_any_mapping_is_read_and_may_hold_datetimes_as_yaml_makes_them() -> None:
    mapping = MappingProxyType({"metadata": MappingProxyType({"name": "a"}), "firstTimestamp": NOW})
    assert codec.from_core(mapping) == Event(metadata=ObjectMeta(name="a"), first_timestamp=NOW)


def test_annotations_named_like_times_are_left_alone() -> None:
    written = "2024-01-01T12:00:00.123456789Z"
    event = codec.decode_core(json.dumps({"metadata": {"annotations": {"eventTime": written}}}))
    assert event.metadata.annotations == {"eventTime": written}


# ---- bad input


@pytest.mark.parametrize(
    ("data", "field", "problem"),
    [
        (b"", "event", "is not JSON"),
        (b"{", "event", "is not JSON"),
        (b"{} x", "event", "is not JSON"),
        (b'{"count":NaN}', "event", "is not JSON: NaN"),
        (b'{"message":"a\0b"}', "event", "is not JSON"),
        (b"[]", "event", "is list"),
        (b"null", "event", "is NoneType"),
        (b'"x"', "event", "is str"),
        (b'{"message":"\xff"}', "event", "is not UTF-8 (byte 12)"),
        (b'{"message":"\xed\xa0\x80"}', "event", "is not UTF-8"),
        (b'{"message":7}', "message", "Expected `str`, got `int`"),
        (b'{"count":1.5}', "count", "Expected `int`, got `float`"),
        (b'{"count":true}', "count", "Expected `int`, got `bool`"),
        (b'{"count":2147483648}', "count", "Expected `int` <= 2147483647"),
        (b'{"involvedObject":{"name":[]}}', "involvedObject.name", "Expected `str`, got `array`"),
        (b'{"involvedObject":"pod/web-0"}', "involvedObject", "Expected `object`, got `str`"),
        (b'{"metadata":{"labels":{"a":1}}}', "metadata.labels[...]", "Expected `str`, got `int`"),
        (b'{"series":{"count":"2"}}', "series.count", "Expected `int`, got `str`"),
        (rb'{"message":"\ud800"}', "message", "lone surrogate or NUL"),
        (rb'{"message":"\ud800x"}', "message", "lone surrogate or NUL"),
        (rb'{"message":"\udc00"}', "message", "lone surrogate or NUL"),
        (rb'{"message":"a\u0000"}', "message", "lone surrogate or NUL"),
        (rb'{"metadata":{"annotations":{"a":"\u0000"}}}', "metadata.annotations.a", "lone surrogate or NUL"),
        (rb'{"metadata":{"annotations":{"\udfff":""}}}', r"metadata.annotations.\udfff", "lone surrogate or NUL"),
        (rb'{"\ud800":1}', "event", "lone surrogate"),
        (b'{"a":' + b"[" * 100_000, "event", "nested too deeply"),
        (b'{"a":' * 100_000, "event", "nested too deeply"),
    ],
)
def test_bad_json_is_refused_with_the_path_of_what_is_wrong(data: bytes, field: str, problem: str) -> None:
    with pytest.raises(InvalidEvent) as caught:
        codec.decode_core(data)
    assert (caught.value.field, caught.value.exit_code) == (field, 2)
    assert problem in caught.value.problem
    str(caught.value).encode()


def test_bad_json_of_the_other_version_has_its_own_paths() -> None:
    with pytest.raises(InvalidEvent) as caught:
        _decode_events_v1('{"regarding":{"name":7}}')
    assert caught.value.field == "regarding.name"


def test_surrogates_in_a_python_string_are_refused() -> None:
    with pytest.raises(InvalidEvent, match="lone surrogate") as caught:
        codec.decode_core('{"reason":"\udcff"}')
    assert caught.value.field == "reason"


def test_a_surrogate_pair_in_json_is_one_character_and_an_escaped_backslash_is_none() -> None:
    assert codec.decode_core(rb'{"message":"\ud83d\ude00 \\u0000 \\ud800"}').message == r"😀 \u0000 \ud800"


@pytest.mark.parametrize("mapping", [None, [], "x", 7, make_event()])
def test_what_is_no_mapping_is_refused(mapping: Any) -> None:
    for read in (codec.from_core, codec.from_events_v1):
        with pytest.raises(InvalidEvent, match="must be an object"):
            read(mapping)


def test_a_date_or_a_time_without_zone_in_a_mapping_is_refused() -> None:
    for bad in (date(2024, 1, 1), datetime(2024, 1, 1)):
        with pytest.raises(InvalidEvent) as caught:
            codec.from_core({"firstTimestamp": bad})
        assert caught.value.field == "firstTimestamp"


@pytest.mark.parametrize(
    ("overrides", "field"),
    [
        ({"message": "a\0"}, "message"),
        ({"reason": "\ud800"}, "reason"),
        ({"reason": 7}, "reason"),
        ({"event_time": datetime(2024, 1, 1)}, "eventTime"),
        ({"related": make_reference(name="\0")}, "related.name"),
    ],
)
def test_what_cannot_be_written_is_refused(overrides: dict[str, Any], field: str) -> None:
    for encode in (codec.encode_core, _encode_events_v1):
        with pytest.raises(InvalidEvent) as caught:
            encode(make_event(**overrides))
        assert caught.value.field == field


@given(st.binary(max_size=60) | st.text(st.characters(), max_size=60))
def test_no_input_raises_anything_but_invalid_event(data: bytes | str) -> None:
    for decode in (codec.decode_core, _decode_events_v1):
        try:
            decode(data)
        except InvalidEvent as error:
            str(error).encode()


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(), max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(st.characters(), max_size=5), inner, max_size=3)
    ),
    max_leaves=8,
)
keys = st.sampled_from(
    ["metadata", "involvedObject", "source", "series", "eventTime", "count", "labels", "kind", "uid"]
)


@given(st.dictionaries(keys, json_values | st.dictionaries(keys, json_values, max_size=4), max_size=6))
def test_no_mapping_raises_anything_but_invalid_event(mapping: dict[str, Any]) -> None:
    for read in (codec.from_core, codec.from_events_v1):
        try:
            event = read(mapping)
        except InvalidEvent as error:
            str(error).encode()
        else:
            codec.encode_core(event)
