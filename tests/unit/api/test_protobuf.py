"""Bodies in protobuf, as client-go's typed clients send them, built by hand."""

from __future__ import annotations

import pytest

from eventbus.api.kube.protobuf import decode_object
from eventbus.api.status import ApiError


def number(field: int, value: int) -> bytes:
    return varint(field << 3) + varint(value)


def text(field: int, value: str | bytes) -> bytes:
    data = value.encode() if isinstance(value, str) else value
    return varint(field << 3 | 2) + varint(len(data)) + data


def varint(value: int) -> bytes:
    value &= (1 << 64) - 1
    out = b""
    while value > 0x7F:
        out += bytes([value & 0x7F | 0x80])
        value >>= 7
    return out + bytes([value])


def envelope(version: str, kind: str, raw: bytes) -> bytes:
    return b"k8s\x00" + text(1, text(1, version) + text(2, kind)) + text(2, raw)


def test_an_event_of_events_k8s_io_is_read() -> None:
    metadata = text(1, "a") + text(3, "default") + text(11, text(1, "app") + text(2, "web"))
    series = number(1, 2) + text(2, number(1, 1767323345))
    raw = text(1, metadata) + text(2, number(1, 1767323045) + number(2, 123456000)) + text(3, series)
    raw += text(4, "example.com/ctl") + text(8, text(1, "Pod") + text(3, "web-0")) + text(10, "note") + number(15, -3)
    raw += text(31, "a field of tomorrow")
    assert decode_object(envelope("events.k8s.io/v1", "Event", raw)) == {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": "a", "namespace": "default", "labels": {"app": "web"}},
        "eventTime": "2026-01-02T03:04:05.123456+00:00",
        "series": {"count": 2, "lastObservedTime": "2026-01-02T03:09:05+00:00"},
        "reportingController": "example.com/ctl",
        "regarding": {"kind": "Pod", "name": "web-0"},
        "note": "note",
        "deprecatedCount": -3,
    }


def test_a_review_of_access_is_read() -> None:
    raw = text(2, text(1, text(1, "default") + text(2, "list") + text(5, "events")))
    found = decode_object(envelope("authorization.k8s.io/v1", "SelfSubjectAccessReview", raw))
    assert found["spec"] == {"resourceAttributes": {"namespace": "default", "verb": "list", "resource": "events"}}


def test_gos_zero_time_is_unset() -> None:
    raw = text(6, number(1, -62135596800)) + text(7, number(1, 0) + number(2, 0)) + text(10, b"")
    found = decode_object(envelope("v1", "Event", raw))
    times = [found[field] for field in ("firstTimestamp", "lastTimestamp", "eventTime")]
    assert times == [None, "1970-01-01T00:00:00+00:00", None]


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{}",
        b"k8s\x00\xff\xff",
        envelope("v1", "Event", b"\x0a\xff\x01"),
        envelope("v1", "Event", text(3, b"\xff")),
        envelope("v1", "Event", number(3, 1)),
        envelope("v1", "Event", b"\x0b"),
        envelope("v1", "Event", text(6, number(1, 2**62))),
        envelope("v1", "Event", b"\x80" * 20),
    ],
)
def test_what_is_no_protobuf_is_refused(data: bytes) -> None:
    with pytest.raises(ApiError) as refused:
        decode_object(data)
    assert refused.value.code == 400


def test_a_kind_that_is_not_read_in_protobuf_is_unsupported() -> None:
    with pytest.raises(ApiError) as refused:
        decode_object(envelope("v1", "Node", b""))
    assert refused.value.code == 415
