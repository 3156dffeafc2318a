"""`--sort-by` as kubectl's sorter.go has it."""

from __future__ import annotations

import pytest

from eventbus.cli.printers.sort_by import FieldMissing, order_of
from eventbus.model.event import ObjectMeta
from eventbus.model.kinds import NODE
from eventbus.model.objects.cluster import Node, NodeSpec, NodeStatus


def nodes(*names: str) -> list[Node]:
    return [Node(metadata=ObjectMeta(name=name)) for name in names]


def in_order(values: list[str]) -> list[str]:
    """Sort nodes with these labels; return the labels."""
    found = [Node(metadata=ObjectMeta(name=str(at), labels={"a": value})) for at, value in enumerate(values)]
    return [node.metadata.labels["a"] for node in order_of(NODE, ".metadata.labels.a")(found)]


@pytest.mark.parametrize(
    "values",
    [
        ["n1", "n2", "n3", "n10", "n11"],
        ["1", "2", "10", "a", "a1b2", "a1b10"],
        ["v1.9.0", "v1.10.0", "v1.10.1"],
        ["100m", "0.5", "1", "1500m", "1Ki", "2e3", "128Mi", "1G", "1Gi"],
        ["2024-01-01T00:00:00Z", "2024-01-01T00:00:00.500Z", "2024-01-01T02:00:01+01:00"],
        ["", "B", "a"],
    ],
)
def test_texts_are_ordered_naturally_and_quantities_and_times_by_what_they_mean(values: list[str]) -> None:
    assert in_order(values[::-1]) == values
    assert in_order(values) == values


def test_objects_without_the_field_come_first_in_their_order_and_numbers_by_size() -> None:
    found = [*nodes("x", "y"), Node(metadata=ObjectMeta(name="z"), spec=NodeSpec(unschedulable=True))]
    ordered = order_of(NODE, "{.spec.unschedulable}")([found[2], *found[:2]])
    assert [node.metadata.name for node in ordered] == ["x", "y", "z"]
    amounts = [Node(metadata=ObjectMeta(name=n), status=NodeStatus(capacity={"cpu": n})) for n in ("10", "9")]
    assert [node.metadata.name for node in order_of(NODE, ".status.capacity.cpu")(amounts)] == ["9", "10"]


@pytest.mark.parametrize("typed", ["{.bogus}", ".bogus", "bogus"])
def test_a_field_that_no_object_has_is_an_error_in_kubectls_words(typed: str) -> None:
    with pytest.raises(FieldMissing) as found:
        order_of(NODE, typed)(nodes("a"))
    assert str(found.value) == 'couldn\'t find any field with path "{.bogus}" in the list of objects'
    assert order_of(NODE, typed)([]) == []
