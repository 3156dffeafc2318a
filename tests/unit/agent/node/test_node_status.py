"""Status functions that raise or hang leave the other functions' fields current."""

from __future__ import annotations

import logging
import threading

import msgspec
import pytest

from eventbus.agent.node.node_status import NodeStatusFunc, StatusFunctions
from eventbus.model.event import ObjectMeta
from eventbus.model.objects.cluster import Node
from tests.waiting import eventually

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


def test_each_function_sees_the_changes_of_the_one_before() -> None:
    seen: list[dict[str, str]] = []

    def look(node: Node) -> Node:
        seen.append(dict(node.status.capacity))
        return node

    StatusFunctions([writes("a", [1]), look]).apply(NODE)
    assert seen == [{"a": "1"}]


@pytest.mark.parametrize("bad", [failing, wrong])
def test_one_that_fails_leaves_the_others_current(bad: NodeStatusFunc) -> None:
    number = [1]
    functions = StatusFunctions([writes("a", number), bad, writes("b", number)])
    first = functions.apply(NODE)
    number[0] = 2
    assert functions.apply(first).status.capacity == {"a": "2", "b": "2"}
    assert functions.failures.total() == 2


def test_one_that_hangs_is_left_out_until_it_returns() -> None:
    number, go, calls = [1], threading.Event(), list[int]()

    def hanging(node: Node) -> Node:
        calls.append(number[0])
        go.wait()
        return writes("hung", number)(node)

    functions = StatusFunctions([writes("a", number), hanging, writes("b", number)], timeout_s=0.1)
    assert functions.apply(NODE).status.capacity == {"a": "1", "b": "1"}
    number[0] = 2
    assert functions.apply(NODE).status.capacity == {"a": "2", "b": "2"}
    assert (calls, functions.failures) == ([1], {"hanging": 1})

    go.set()
    eventually(lambda: "hung" in functions.apply(NODE).status.capacity)
