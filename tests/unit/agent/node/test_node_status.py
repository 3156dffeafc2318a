"""Status functions that raise leave the other functions' fields current."""

from __future__ import annotations

import logging
from collections import Counter

import msgspec
import pytest

from eventbus.agent.node.node_status import NodeStatusFunc, run_status_functions
from eventbus.model.event import ObjectMeta
from eventbus.model.objects.cluster import Node

NODE = Node(metadata=ObjectMeta(name="n1"))


def writes(key: str, number: list[int]) -> NodeStatusFunc:
    def function(node: Node) -> Node:
        capacity = dict(node.status.capacity) | {key: str(number[0])}
        return msgspec.structs.replace(node, status=msgspec.structs.replace(node.status, capacity=capacity))

    function.__name__ = key
    return function


def failing(node: Node) -> Node:
    raise OSError("no such disk")


def wrong(node: Node) -> Node:
    return "no node"  # type: ignore[return-value]


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL + 1, logger="eventbus")


def test_each_function_sees_what_the_one_before_has_made() -> None:
    seen: list[dict[str, str]] = []

    def look(node: Node) -> Node:
        seen.append(dict(node.status.capacity))
        return node

    run_status_functions([writes("a", [1]), look], NODE, Counter())
    assert seen == [{"a": "1"}]


@pytest.mark.parametrize("bad", [failing, wrong])
def test_one_that_fails_leaves_the_others_current(bad: NodeStatusFunc) -> None:
    number = [1]
    functions, failures = [writes("a", number), bad, writes("b", number)], Counter[str]()
    first = run_status_functions(functions, NODE, failures)
    number[0] = 2
    assert run_status_functions(functions, first, failures).status.capacity == {"a": "2", "b": "2"}
    assert failures.total() == 2
