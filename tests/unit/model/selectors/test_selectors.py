"""Selectors: the grammar and words of the API server, from the written rules and apimachinery, not from our output."""

from __future__ import annotations

import re

import pytest

from eventbus.model.event import EventSource, ObjectMeta, ObjectReference
from eventbus.model.kinds import LEASE, NODE, POD
from eventbus.model.selectors import (
    EVENT_FIELDS,
    EVENTS_V1_FIELDS,
    MAX_TERMS,
    OBJECT_FIELDS,
    FieldSelector,
    InvalidSelector,
    LabelSelector,
    escape_value,
)
from tests.builders import make_event

LABELS = {"a": "b", "n": "5", "empty": "", "example.com/tier": "front"}


@pytest.mark.parametrize(
    ("text", "selected"),
    [
        ("", True),
        ("a=b", True),
        ("a==b", True),
        ("a=c", False),
        ("missing=b", False),
        ("a!=c", True),
        ("a!=b", False),
        ("missing!=b", True),
        ("a in (b,c)", True),
        ("a in (c)", False),
        ("missing in (b)", False),
        ("a notin (b,c)", False),
        ("a notin (c)", True),
        ("missing notin (b)", True),
        ("a", True),
        ("missing", False),
        ("!a", False),
        ("!missing", True),
        ("! missing", True),
        ("empty=", True),
        ("a=", False),
        ("empty in ()", True),
        ("empty in (x,)", True),
        ("empty in (,x)", True),
        ("empty in (x,,y)", True),
        ("a in (x,,y)", False),
        ("n>4", True),
        ("n>5", False),
        ("n<6", True),
        ("n < 5", False),
        ("a>1", False),
        ("missing<1", False),
        ("example.com/tier=front", True),
        ("a=b,n=5", True),
        ("a=b,n=6", False),
        (" a  =  b , !missing ,n in(5) ", True),
        ("a in (in,notin,b)", True),
        ("in,notin", False),
        ("in notin (x)", True),
    ],
)
def test_labels_are_selected_by_the_whole_grammar(text: str, selected: bool) -> None:
    assert LabelSelector.parse(text).matches(LABELS) is selected


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a in x", "unable to parse requirement: found 'x' expected: '('"),
        ("a in (x", "unable to parse requirement: found '', expected: ',' or ')'"),
        ("a in (x y)", "unable to parse requirement: found 'y', expected: ',' or ')'"),
        ("a like b", "unable to parse requirement: found 'like', expected: in, notin, =, ==, !=, gt, lt"),
        ("a=b c", "found 'c', expected: ',' or 'end of string'"),
        ("a=b,", "found '', expected: identifier after ','"),
        ("a,,b", "found ',', expected: identifier after ','"),
        ("=b", "found '=', expected: !, identifier, or 'end of string'"),
        ("!", "unable to parse requirement: found '', expected: identifier"),
        ("a=(b)", "unable to parse requirement: found '(', expected: identifier"),
        ("a>b", "unable to parse requirement: values[0]: Invalid value: \"b\": for 'Gt', 'Lt' operators, "
         "the value must be an integer"),
    ],
)  # fmt: skip
def test_a_label_selector_that_cannot_be_read_is_refused_in_the_api_servers_words(text: str, problem: str) -> None:
    with pytest.raises(InvalidSelector) as refused:
        LabelSelector.parse(text)
    assert str(refused.value) == problem


@pytest.mark.parametrize(
    ("text", "beginning"),
    [
        ("-a=b", 'unable to parse requirement: <nil>: Invalid value: "-a": name part must consist of alphanumeric'),
        ("a=-b", 'unable to parse requirement: values[0][a]: Invalid value: "-b": a valid label must be an empty'),
        ("a=b/c", 'unable to parse requirement: values[0][a]: Invalid value: "b/c": a valid label must be an empty'),
        ("A_/b=c", 'unable to parse requirement: <nil>: Invalid value: "A_/b": prefix part a lowercase RFC 1123'),
        (f"a={'x' * 64}", f'unable to parse requirement: values[0][a]: Invalid value: "{"x" * 64}": must be no more'),
        (f"{'x' * 64}=a", f'unable to parse requirement: <nil>: Invalid value: "{"x" * 64}": name part must be no'),
    ],
)
def test_labels_that_no_object_can_have_are_refused(text: str, beginning: str) -> None:
    with pytest.raises(InvalidSelector) as refused:
        LabelSelector.parse(text)
    assert str(refused.value).startswith(beginning)


EVENT = make_event(
    metadata=ObjectMeta(name="web-0.1", namespace="shop"),
    involved_object=ObjectReference(
        kind="Pod",
        namespace="shop",
        name="web-0",
        uid="u1",
        api_version="v1",
        resource_version="7",
        field_path="spec.containers{web}",
    ),
    reason="BackOff",
    type="Warning",
    source=EventSource(component="kubelet", host="n1"),
    reporting_component="kubelet.io",
)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("metadata.name", "web-0.1"),
        ("metadata.namespace", "shop"),
        ("involvedObject.kind", "Pod"),
        ("involvedObject.namespace", "shop"),
        ("involvedObject.name", "web-0"),
        ("involvedObject.uid", "u1"),
        ("involvedObject.apiVersion", "v1"),
        ("involvedObject.resourceVersion", "7"),
        ("involvedObject.fieldPath", "spec.containers{web}"),
        ("reason", "BackOff"),
        ("type", "Warning"),
        ("source", "kubelet"),
        ("reportingComponent", "kubelet.io"),
    ],
)
def test_events_are_selected_by_every_field_kubectl_supports(field: str, value: str) -> None:
    for operator in ("=", "=="):
        assert FieldSelector.parse(f"{field}{operator}{value}", EVENT_FIELDS).matches(EVENT)
        assert not FieldSelector.parse(f"{field}{operator}x{value}", EVENT_FIELDS).matches(EVENT)
    assert FieldSelector.parse(f"{field}!=x", EVENT_FIELDS).matches(EVENT)
    assert not FieldSelector.parse(f"{field}!={value}", EVENT_FIELDS).matches(EVENT)


def test_there_are_no_other_fields() -> None:
    for fields in (POD.fields, NODE.fields):
        with pytest.raises(InvalidSelector, match=r"^field label not supported: x$"):
            FieldSelector.parse("x=1", fields)
    with pytest.raises(InvalidSelector, match=r'^"spec\.x" is not a known field selector: only "metadata.name", '):
        FieldSelector.parse("spec.x=1", LEASE.fields)
    assert (len(EVENT_FIELDS), len(EVENTS_V1_FIELDS)) == (13, 12)
    assert set(OBJECT_FIELDS) == {"metadata.name", "metadata.namespace"}


def test_the_new_api_has_the_same_fields_under_its_own_names() -> None:
    text = "regarding.name=web-0,regarding.kind=Pod,reportingController=kubelet.io"
    assert FieldSelector.parse(text, EVENTS_V1_FIELDS).matches(EVENT)
    for other in ("involvedObject.name", "source"):
        with pytest.raises(InvalidSelector, match=rf"^field label not supported: {re.escape(other)}$"):
            FieldSelector.parse(f"{other}=web-0", EVENTS_V1_FIELDS)


def test_the_source_of_an_event_without_one_is_who_reported_it() -> None:
    event = make_event(source=EventSource(), reporting_component="my-controller")
    assert FieldSelector.parse("source=my-controller", EVENT_FIELDS).matches(event)


@pytest.mark.parametrize(
    ("text", "selected"),
    [
        ("", True),
        ("type=Warning,reason=BackOff", True),
        ("type=Warning,reason=Started", False),
        (",type=Warning,,", True),
        ("type=warning", False),
        ("reason=Back", False),
        ("involvedObject.namespace=", False),
        ("involvedObject.namespace!=", True),
    ],
)
def test_field_terms_must_all_hold_and_compare_exactly(text: str, selected: bool) -> None:
    assert FieldSelector.parse(text, EVENT_FIELDS).matches(EVENT) is selected


@pytest.mark.parametrize("value", ["a,b", "a=b", "a\\b", "a\\,=", ",", "plain"])
def test_a_value_may_hold_what_separates_if_it_is_escaped(value: str) -> None:
    event = make_event(reason=value)
    selector = FieldSelector.parse(f"reason={escape_value(value)},type=Normal", EVENT_FIELDS)
    assert selector.matches(event)
    assert selector.required("reason") == value


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("bogus=1", "field label not supported: bogus"),
        ("type", "invalid selector: 'type'; can't understand 'type'"),
        ("reason=x,type", "invalid selector: 'reason=x,type'; can't understand 'type'"),
        (r"reason=a\b", r"invalid field selector: invalid escape sequence: \b"),
        ("reason=a\\", "invalid field selector: invalid escape sequence: \\"),
        ("reason=a=b", "invalid field selector: unescaped character in value: 61"),
    ],
)
def test_a_field_selector_that_cannot_be_used_is_refused_in_the_api_servers_words(text: str, problem: str) -> None:
    with pytest.raises(InvalidSelector) as refused:
        FieldSelector.parse(text, EVENT_FIELDS)
    assert str(refused.value) == problem


def test_a_selector_tells_the_value_a_field_must_have() -> None:
    selector = FieldSelector.parse("involvedObject.name=web-0,type!=Normal", EVENT_FIELDS)
    assert selector.required("involvedObject.name") == "web-0"
    assert selector.required("type") is None


def test_a_selector_has_a_limited_number_of_terms() -> None:
    labels, fields = [f"!a{i}" for i in range(MAX_TERMS + 1)], ["reason!=a"] * (MAX_TERMS + 1)
    assert LabelSelector.parse(",".join(labels[1:])).matches(LABELS)
    FieldSelector.parse(",".join(fields[1:]), EVENT_FIELDS)
    with pytest.raises(InvalidSelector, match="more than 64 terms"):
        LabelSelector.parse(",".join(labels))
    with pytest.raises(InvalidSelector, match="more than 64 terms"):
        FieldSelector.parse(",".join(fields), EVENT_FIELDS)
