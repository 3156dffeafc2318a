"""Stored events: what many have in common, what few have, and the calls it takes to decode one."""

from __future__ import annotations

import gc
import sys
from typing import Any

import msgspec
import pytest

from eventbus.broker.functions import pack_argument
from eventbus.errors import PoisonBatch
from eventbus.model.encoding.wire import pack_event
from eventbus.model.event import Event, ObjectReference
from eventbus.store.stored import FIELDS, REMEMBERED_BYTES, View, decode_stored, remembering
from tests.builders import make_event

#: count, first, name, namespace, entry, stored count, last, version, created, uid, message, form, subject
TIMES = (1_700_000_000_000_001, 1_700_000_000_500_000, 1_700_000_000_250)
HEAD: tuple[Any, ...] = (3, TIMES[0], "web-0.1", "shop", "1-0", 2, TIMES[1], 7, TIMES[2])
HEAD += ("p:1", False, "", "shop/pod/web-0")


def stored(body: bytes, **changed: Any) -> bytes:
    """Pack a stored event as the server's cmsgpack does; *changed* by position, as `at_3`."""
    fields = [*HEAD, body] + [False] * (FIELDS - len(HEAD) - 1)
    for at, value in changed.items():
        fields[int(at.removeprefix("at_"))] = value
    return pack_argument(fields)


def bare_body(name: str = "web-0") -> bytes:
    """Pack the body that a recorder's event has in the store: seven fields."""
    about = ("Pod", "shop", name, "uid-" + name, "v1")
    return pack_argument(["", "", about, "BackOff", "Back-off restarting", "Warning", ("kubelet", "node-1")])


def decoded(packed: bytes, view: View = View.SHOWN) -> Event:
    event = decode_stored(packed, view)
    assert event is not None
    return event


def test_what_events_have_in_common_is_in_memory_once() -> None:
    one, other = decoded(stored(bare_body("web-0"))), decoded(stored(bare_body("web-1")))
    assert one.metadata.namespace is other.metadata.namespace is other.involved_object.namespace
    assert one.involved_object.kind is other.involved_object.kind
    assert one.involved_object.api_version is other.involved_object.api_version
    assert one.reason is other.reason
    assert one.type is other.type
    assert one.message is other.message
    assert one.source is other.source
    assert one.reporting_component is other.source.component
    assert one.metadata.creation_timestamp is other.metadata.creation_timestamp
    assert one.involved_object == ObjectReference("Pod", "shop", "web-0", "uid-web-0", "v1")


def test_a_message_is_its_own_however_many_there_were() -> None:
    bodies = [stored(bare_body(), at_10=f"message {n}") for n in range(10_000)]
    assert [decoded(body).message for body in bodies] == [f"message {n}" for n in range(10_000)]


@pytest.mark.parametrize(("view", "count"), [(View.SHOWN, 3), (View.WRITTEN, 2)])
def test_the_fields_that_few_events_have_are_read_too(view: View, count: int) -> None:
    sent = make_event(
        action="Pulling", reporting_component="", reporting_instance="other", related=ObjectReference("P")
    )
    found = decoded(stored(pack_event(sent)), view)
    assert (found.action, found.reporting_component, found.reporting_instance) == ("Pulling", "", "other")
    assert (found.related, found.count) == (ObjectReference("P"), count)
    assert found.metadata.labels == sent.metadata.labels


def test_text_that_is_not_utf_8_is_shown_as_far_as_it_goes() -> None:
    assert decoded(stored(bare_body(), at_2=b"web\xff")).metadata.name == "web�"


def test_what_is_remembered_is_bounded_in_bytes() -> None:
    decode = remembering(View.SHOWN)
    usual = stored(bare_body(), at_10="x" * (REMEMBERED_BYTES - 256))
    large = stored(bare_body(), at_10="x" * REMEMBERED_BYTES)
    assert decode(usual) is decode(usual)
    assert decode(large) is not decode(large)
    assert decode(large) == decode_stored(large)


def test_decoding_takes_few_calls() -> None:
    packed, calls = stored(bare_body()), 0
    decode_stored(packed)  # msgspec looks at the types once

    def note(_frame: object, what: str, _arg: object) -> None:
        nonlocal calls
        calls += what == "call"

    gc.disable()  # who is told of a collection (hypothesis, for one) is called as well
    sys.setprofile(note)
    try:
        decode_stored(packed)
    finally:
        sys.setprofile(None)
        gc.enable()
    assert calls <= 11


@pytest.mark.parametrize(
    "junk",
    [
        b"",
        b"junk",
        msgspec.msgpack.encode([1] * 21),
        msgspec.msgpack.encode([[1], {}, *range(19)]),
        stored(bare_body())[:50],
        stored(b"?"),
    ],
)
def test_other_bytes_are_a_corrupt_value(junk: bytes) -> None:
    with pytest.raises(PoisonBatch):
        decode_stored(junk)
