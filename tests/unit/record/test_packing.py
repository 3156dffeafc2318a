"""packing.py: an event that is joined from a template has the bytes of one that is packed field by field."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventbus.errors import InvalidEvent
from eventbus.model.encoding.wire import pack_array, unpack_wire
from eventbus.model.event import ObjectReference
from eventbus.model.validation import validate_call
from eventbus.record import packing as module
from eventbus.record.packing import Pending, _array, find_template, pack
from tests.builders import ascii_characters, make_reference

NOW_NS = 1_763_719_000_123_456_789
USUAL = Pending(("kubelet", "node-17"), make_reference(), "Normal", "Started", "Started container web", NOW_NS)


def changed(**fields: object) -> Pending:
    return msgspec.structs.replace(USUAL, **fields)


def with_template(pending: Pending) -> Pending:
    """The event as a recorder makes it, which has looked its template up."""
    found = find_template(pending.source, pending.reference, pending.type, pending.reason)
    assert found
    return msgspec.structs.replace(pending, template=found)


@given(
    message=st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")),
    time_ns=st.integers(2**60, 2**63),
    past_ns=st.just(0) | st.integers(2**60, 2**63),
    reason=st.from_regex(r"[A-Z][A-Za-z]{0,60}", fullmatch=True, alphabet=ascii_characters),
)
def test_the_template_has_the_bytes_of_the_array(message: str, time_ns: int, past_ns: int, reason: str) -> None:
    pending = changed(message=message, time_ns=time_ns, past_ns=past_ns, reason=reason)
    assert pack(with_template(pending)) == pack_array(_array(pending)) == pack(pending)


@pytest.mark.parametrize("length", [0, 31, 32, 255, 256, 7_500])
def test_it_has_so_for_a_message_of_any_length(length: int) -> None:
    pending = changed(message="é" * length)
    assert pack(with_template(pending)) == pack_array(_array(pending)) == pack(pending)


@pytest.mark.parametrize("length", [1, 14, 15, 16, 100, 236])
def test_it_has_so_for_a_name_of_any_length(length: int) -> None:
    pending = changed(reference=make_reference(name="n" * length))
    assert pack(with_template(pending)) == pack_array(_array(pending)) == pack(pending)


@pytest.mark.parametrize(
    "fields",
    [
        {"time_ns": 1},
        {"time_ns": 2**60 - 1},
        {"past_ns": 1_000},
        {"message": "a\0b"},
        {"annotations": {"a": "b"}},
    ],
    ids=repr,
)
def test_what_is_not_usual_is_packed_field_by_field(fields: dict[str, object]) -> None:
    pending = changed(**fields)
    found, wanted = unpack_wire(pack(pending)), unpack_wire(pack_array(_array(pending)))
    # A name with another time than those of now has an end of its own each time.
    assert msgspec.structs.replace(found, name="") == msgspec.structs.replace(wanted, name="")
    assert len(found.name) == len(wanted.name)
    assert found.reason == "Started"


@pytest.mark.parametrize("name", ["With_Underscore", "n" * 240])
def test_a_name_of_which_none_can_be_made_gets_one_of_its_own_each_time(name: str) -> None:
    pending = changed(reference=make_reference(name=name))
    assert unpack_wire(pack(pending)).name != unpack_wire(pack(pending)).name


def test_a_lone_surrogate_is_repaired_and_a_number_refused() -> None:
    assert unpack_wire(pack(changed(message="a\ud800b"))).message == "a�b"
    with pytest.raises(InvalidEvent):
        pack(changed(message=5))


def test_a_thousand_events_of_one_object_make_one_template() -> None:
    module.TEMPLATES.clear()
    first = with_template(USUAL).template
    for n in range(1000):
        pack(changed(message=str(n), time_ns=NOW_NS + n))
        assert find_template(USUAL.source, make_reference(), USUAL.type, USUAL.reason) is first


def test_only_the_templates_of_a_few_thousand_objects_stay_in_memory() -> None:
    module.TEMPLATES.clear()
    for n in range(module.MOST_TEMPLATES + 2):
        assert with_template(changed(reference=make_reference(name=f"web-{n}"))).template
    assert len(module.TEMPLATES) == 2


@given(st.tuples(*[st.text(st.sampled_from("aZ0-._/ \0é\ud800"), max_size=70) | st.none() | st.just("x" * 254)] * 7))
def test_a_reference_that_is_not_looked_at_closely_keeps_every_rule(parts: tuple[Any, ...]) -> None:
    reference = ObjectReference(*parts)
    if module._is_plain(reference):
        namespace = reference.namespace or "default"
        validate_call(("c", "h"), reference, namespace=namespace, type="Normal", reason="R")
