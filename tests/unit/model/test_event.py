from __future__ import annotations

import copy
import pickle  # noqa: TID251 - multiprocessing sends events so
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from hypothesis import given

from eventbus.errors import InvalidEvent
from eventbus.model.event import Event, EventSeries, EventSource, ObjectMeta, OwnerReference
from eventbus.model.frozen import FrozenDict
from eventbus.model.names import is_dns_label, is_dns_subdomain, is_qualified_name
from eventbus.model.validation import check_annotations, check_values, validate, validate_recorded
from tests.builders import NOW, events, make_event, make_reference

NEW_STYLE: dict[str, Any] = {
    "event_time": NOW,
    "reporting_component": "example.com/kubelet",
    "reporting_instance": "kubelet-1",
    "action": "Starting",
}


# ---- values


@pytest.mark.parametrize(
    "change",
    [
        lambda d: d.__setitem__("a", "c"),
        lambda d: d.__delitem__("a"),
        lambda d: d.update(a="c"),
        lambda d: d.setdefault("b", "c"),
        lambda d: d.pop("a"),
        lambda d: d.popitem(),
        lambda d: d.clear(),
        lambda d: d.__ior__({"a": "c"}),
    ],
)
def test_labels_and_annotations_refuse_every_change(change: Callable[[Any], object]) -> None:
    metadata = ObjectMeta(labels={"a": "b"}, annotations={"a": "b"})
    for mapping in (metadata.labels, metadata.annotations):
        with pytest.raises(TypeError, match="frozen"):
            change(mapping)
        assert mapping == {"a": "b"}


def test_metadata_keeps_its_own_copy_of_labels_and_annotations() -> None:
    given_labels, given_annotations = {"a": "b"}, {"c": "d"}
    metadata = ObjectMeta(labels=given_labels, annotations=given_annotations)
    given_labels["a"] = given_annotations["c"] = "changed"
    assert (metadata.labels, metadata.annotations) == ({"a": "b"}, {"c": "d"})


@given(events())
def test_an_event_equals_its_copies_and_has_their_hash(event: Event) -> None:
    for twin in (copy.deepcopy(event), pickle.loads(pickle.dumps(event)), msgspec.structs.replace(event)):
        assert twin == event
        assert hash(twin) == hash(event)


def test_a_frozen_dict_equals_a_dict_in_any_order() -> None:
    assert FrozenDict(a="1", b="2") == {"b": "2", "a": "1"}
    assert hash(FrozenDict(a="1", b="2")) == hash(FrozenDict(b="2", a="1"))


def test_a_frozen_dict_is_not_changed_by_its_own_init() -> None:
    frozen = FrozenDict({"a": "1"})
    frozen.__init__({"a": "2"})  # type: ignore[misc]
    assert frozen == {"a": "1"}


def test_a_copied_frozen_dict_is_still_frozen() -> None:
    frozen = FrozenDict(a="1")
    for twin in (copy.copy(frozen), copy.deepcopy(frozen), pickle.loads(pickle.dumps(frozen))):
        assert type(twin) is FrozenDict
        assert twin == frozen


@pytest.mark.parametrize(
    ("unset", "seen"),
    [((), 5), (("series",), 4), (("series", "last_timestamp"), 3), (("series", "last_timestamp", "event_time"), 2)],
)
def test_last_seen_is_the_latest_kind_of_time_that_is_set(unset: tuple[str, ...], seen: int) -> None:
    def at(second: int) -> datetime:
        return datetime(2024, 1, 1, 0, 0, second, tzinfo=UTC)

    event = make_event(
        metadata=ObjectMeta(creation_timestamp=at(1)),
        first_timestamp=at(2),
        event_time=at(3),
        last_timestamp=at(4),
        series=EventSeries(count=2, last_observed_time=at(5)),
    )
    assert msgspec.structs.replace(event, **dict.fromkeys(unset)).last_seen == at(seen)


def test_last_seen_ends_at_the_creation_time_and_may_be_unknown() -> None:
    assert Event(metadata=ObjectMeta(creation_timestamp=NOW)).last_seen == NOW
    assert Event(series=EventSeries(count=2)).last_seen is None


# ---- validation


@given(events())
def test_what_keeps_the_rules_is_valid(event: Event) -> None:
    validate(event)


@pytest.mark.parametrize("event_type", ["", "normal", "WARNING", "Error", "Normal "])
def test_any_other_type_is_refused(event_type: str) -> None:
    _refused(make_event(type=event_type), "type", "must be Normal or Warning")


def _about(**fields: Any) -> dict[str, Any]:
    return {"involved_object": make_reference(**fields)}


def _meta(**fields: Any) -> dict[str, Any]:
    return {"metadata": ObjectMeta(**{"name": "web-0.1", "namespace": "default", **fields})}


@pytest.mark.parametrize(
    ("field", "overrides"),
    [
        ("reason", lambda n: {"reason": "x" * n}),
        ("action", lambda n: {"action": "x" * n}),
        ("source.component", lambda n: {"source": EventSource(component="x" * n), "reporting_component": ""}),
        ("reportingComponent", lambda n: {"reporting_component": "x" * n}),
        ("source.host", lambda n: {"source": EventSource(host="x" * n), "reporting_instance": ""}),
        ("reportingInstance", lambda n: {"reporting_instance": "x" * n}),
        ("involvedObject.kind", lambda n: _about(kind="x" * n)),
        ("involvedObject.name", lambda n: _about(name="x" * n)),
        ("involvedObject.namespace", lambda n: _about(namespace="x" * n) | _meta(namespace="x" * n)),
        ("related.kind", lambda n: {"related": make_reference(kind="x" * n)}),
        ("related.name", lambda n: {"related": make_reference(name="x" * n)}),
        ("related.namespace", lambda n: {"related": make_reference(namespace="x" * n)}),
        ("metadata.name", lambda n: _meta(name="x" * n)),
        ("metadata.generateName", lambda n: _meta(generate_name="x" * n)),
        ("metadata.annotations[a]", lambda n: _meta(annotations={"a": "x" * n})),
        ("metadata.annotations (a key)", lambda n: _meta(annotations={"x" * n: "a"})),
    ],
)
def test_a_field_may_be_as_long_as_its_limit_and_no_longer(
    field: str, overrides: Callable[[int], dict[str, Any]]
) -> None:
    limits = {"kind": 63, "namespace": 63, "name": 253, "generateName": 253, "reason": 128, "action": 128}
    limits |= {"component": 128, "host": 253, "reportingComponent": 317, "reportingInstance": 253}
    limits |= {"annotations[a]": 1024, "annotations (a key)": 317}
    limit = limits[field.rpartition(".")[2]]
    validate(make_event(**{"metadata": _meta()["metadata"], **overrides(limit)}))
    _refused(make_event(**{"metadata": _meta()["metadata"], **overrides(limit + 1)}), field, f"at most {limit}")


def test_lengths_are_bytes_not_characters() -> None:
    validate(make_event(reason="ü" * 64))
    _refused(make_event(reason="ü" * 65), "reason", "has 130 bytes, at most 128")


def test_a_message_of_an_old_style_event_has_no_limit_of_its_own() -> None:
    validate(make_event(message="x" * 100_000))


def test_annotations_are_few_and_small_in_all() -> None:
    validate(make_event(**_meta(annotations={f"k{i}": "" for i in range(16)})))
    _refused(make_event(**_meta(annotations={f"k{i}": "" for i in range(17)})), "metadata.annotations", "17 keys")
    validate(make_event(**_meta(annotations={f"{i}": "x" * 1023 for i in range(4)})))
    too_much = {f"{i}": "x" * 1023 for i in range(4)} | {"": "x"}
    _refused(make_event(**_meta(annotations=too_much)), "metadata.annotations", "empty key")
    too_much = {f"{i}": "x" * 1023 for i in range(4)} | {"k": ""}
    _refused(make_event(**_meta(annotations=too_much)), "metadata.annotations", "4097 bytes, at most 4096")


@pytest.mark.parametrize("annotations", [{"a": 1}, {1: "a"}, {"a": None}, {"": "a"}, {"\ud800": "x" * 1025}])
def test_annotations_can_be_checked_before_there_is_an_event(annotations: Any) -> None:
    with pytest.raises(InvalidEvent) as caught:
        check_annotations(annotations)
    str(caught.value).encode()


@pytest.mark.parametrize(
    ("labels", "field"),
    [
        ({"": "a"}, "metadata.labels"),
        ({"a b": "a"}, "metadata.labels"),
        ({"a": "b c"}, "metadata.labels[a]"),
        ({"a": "b/c"}, "metadata.labels[a]"),
        ({"a": "x" * 64}, "metadata.labels[a]"),
    ],
)
def test_labels_that_no_selector_can_ask_for_are_refused(labels: dict[str, str], field: str) -> None:
    _refused(make_event(**_meta(labels=labels)), field, "")


@pytest.mark.parametrize("namespace", ["Default", "a.b", "a_b", "-a", "a-", "a b", "ä"])
def test_a_namespace_that_is_no_dns_label_is_refused(namespace: str) -> None:
    event = make_event(**_about(namespace=namespace), **_meta(namespace=namespace))
    _refused(event, "involvedObject.namespace", "is not a DNS label")
    _refused(make_event(**_meta(namespace=namespace)), "metadata.namespace", "is not a DNS label")


@pytest.mark.parametrize(
    ("object_namespace", "event_namespace", "agree"),
    [
        ("shop", "shop", True),
        ("shop", "default", False),
        ("shop", "", False),
        ("", "", True),
        ("", "default", True),
        ("", "kube-system", False),
        ("", "shop", False),
        ("default", "", False),
    ],
)
def test_an_old_style_event_lives_in_the_namespace_of_its_object(
    object_namespace: str, event_namespace: str, agree: bool
) -> None:
    event = make_event(**_about(namespace=object_namespace), **_meta(namespace=event_namespace))
    if agree:
        validate(event)
    else:
        _refused(event, "involvedObject.namespace", "does not match")


@pytest.mark.parametrize(
    ("object_namespace", "event_namespace", "agree"),
    [
        ("shop", "shop", True),
        ("shop", "other", True),
        ("", "default", True),
        ("", "kube-system", True),
        ("", "shop", False),
        ("", "", False),
    ],
)
def test_a_new_style_event_of_a_cluster_scoped_object_lives_in_default_or_kube_system(
    object_namespace: str, event_namespace: str, agree: bool
) -> None:
    event = make_event(**NEW_STYLE, **_about(namespace=object_namespace), **_meta(namespace=event_namespace))
    if agree:
        validate(event)
    else:
        _refused(event, "involvedObject.namespace", "does not match")


@pytest.mark.parametrize(
    ("overrides", "field"),
    [
        ({"reporting_component": ""}, "reportingComponent"),
        ({"reporting_component": "a b"}, "reportingComponent"),
        ({"reporting_component": "x" * 64}, "reportingComponent"),
        ({"reporting_component": "Example.com/x"}, "reportingComponent"),
        ({"reporting_instance": ""}, "reportingInstance"),
        ({"reporting_instance": "x" * 129}, "reportingInstance"),
        ({"action": ""}, "action"),
        ({"reason": ""}, "reason"),
        ({"message": "x" * 1025}, "message"),
    ],
)
def test_with_an_event_time_the_stricter_rules_hold(overrides: dict[str, Any], field: str) -> None:
    validate(make_event(**NEW_STYLE | {"message": "x" * 1024, "reporting_instance": "x" * 128}))
    _refused(make_event(**NEW_STYLE | overrides), field, "")


@pytest.mark.parametrize("field", ["kind", "name"])
def test_an_object_without_kind_or_name_is_valid_but_cannot_be_recorded(field: str) -> None:
    event = make_event(**_about(**{field: ""}))
    validate(event)
    with pytest.raises(InvalidEvent, match="is empty") as caught:
        validate_recorded(event)
    assert caught.value.field == f"involvedObject.{field}"


def test_what_is_recorded_keeps_the_other_rules_too() -> None:
    with pytest.raises(InvalidEvent, match="must be Normal or Warning"):
        validate_recorded(make_event(type="Error"))


@pytest.mark.parametrize(
    ("overrides", "field", "problem"),
    [
        ({"reason": None}, "reason", "Expected `str`, got `null`"),
        ({"reason": object()}, "reason", "Expected `str`, got `object`"),
        ({"message": b"x"}, "message", "Expected `str`, got `bytes`"),
        ({"metadata": None}, "metadata", "Expected `object`, got `null`"),
        ({"related": {"kind": 7}}, "related.kind", "Expected `str`, got `int`"),
        (_about(uid=7), "involvedObject.uid", "Expected `str`, got `int`"),
        (_meta(annotations={"a": 1}), "metadata.annotations[...]", "Expected `str`, got `int`"),
        (_meta(labels={1: "a"}), "metadata.labels", "Expected `str`"),
        (_meta(finalizers=("a/b", 7)), "metadata.finalizers[1]", "Expected `str`, got `int`"),
        (
            _meta(owner_references=(OwnerReference(uid=7),)),  # type: ignore[arg-type]
            "metadata.ownerReferences[0].uid",
            "Expected `str`, got `int`",
        ),
        (_meta(managed_fields=("a",)), "metadata.managedFields[0]", "Expected `object`, got `str`"),
        (_meta(generation="1"), "metadata.generation", "Expected `int`, got `str`"),
        (_meta(deletion_grace_period_seconds=0.5), "metadata.deletionGracePeriodSeconds", "Expected `int | null`"),
        ({"count": "1"}, "count", "Expected `int`, got `str`"),
        ({"count": 2**31}, "count", "Expected `int` <= 2147483647"),
        ({"series": EventSeries(count=-(2**31) - 1)}, "series.count", "Expected `int` >= -2147483648"),
        ({"first_timestamp": "2024-01-01"}, "firstTimestamp", "Invalid RFC3339 encoded datetime"),
        ({"last_timestamp": datetime(2024, 1, 1)}, "lastTimestamp", "timezone"),
        ({"message": "a\0b"}, "message", "lone surrogate or NUL"),
        ({"reason": "\udcff"}, "reason", "lone surrogate or NUL"),
        (_about(field_path="\ud800"), "involvedObject.fieldPath", "lone surrogate or NUL"),
        (_meta(annotations={"a": "\0"}), "metadata.annotations.a", "lone surrogate or NUL"),
        (_meta(annotations={"\udcff": "a"}), r"metadata.annotations.\udcff", "lone surrogate or NUL"),
    ],
)
def test_a_value_of_the_wrong_type_or_text_is_refused_with_its_path(
    overrides: dict[str, Any], field: str, problem: str
) -> None:
    _refused(make_event(**overrides), field, problem)


def test_what_is_no_event_at_all_is_refused() -> None:
    with pytest.raises(InvalidEvent):
        check_values(None)  # type: ignore[arg-type]


def _refused(event: Event, field: str, problem: str) -> None:
    with pytest.raises(InvalidEvent) as caught:
        validate(event)
    assert caught.value.field == field
    assert problem in caught.value.problem
    str(caught.value).encode()


# ---- names


@pytest.mark.parametrize(
    ("text", "label", "subdomain", "qualified"),
    [
        ("web-0", True, True, True),
        ("0", True, True, True),
        ("a.b-c.d", False, True, True),
        ("x" * 63, True, True, True),
        ("x" * 64, False, True, False),
        ("x." * 126 + "x", False, True, False),
        ("x." * 126 + "xx", False, False, False),
        ("Web", False, False, True),
        ("a_b", False, False, True),
        ("", False, False, False),
        ("-a", False, False, False),
        ("a-", False, False, False),
        ("a..b", False, False, True),
        ("a.-b", False, False, True),
        ("a\n", False, False, False),
        ("ä", False, False, False),
        ("٣", False, False, False),
        ("example.com/Name_1", False, False, True),
        ("Example.com/name", False, False, False),
        ("/name", False, False, False),
        ("a/", False, False, False),
        ("a/b/c", False, False, False),
    ],
)
def test_names_have_three_shapes(text: str, label: bool, subdomain: bool, qualified: bool) -> None:
    assert (is_dns_label(text), is_dns_subdomain(text), is_qualified_name(text)) == (label, subdomain, qualified)
