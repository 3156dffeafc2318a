"""Status functions that raise or hang: what the others find is current all the same."""

from __future__ import annotations

import logging
import threading

import msgspec
import pytest

from eventbus.agent.status_round import StatusRound
from eventbus.event import ObjectMeta
from eventbus.objects.node import Node

NODE = Node(metadata=ObjectMeta(name="n1"))


def writes(key: str, number: list[int]) -> object:
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

    StatusRound([writes("a", [1]), look]).run(NODE)  # type: ignore[list-item]
    assert seen == [{"a": "1"}]


@pytest.mark.parametrize("bad", [failing, wrong])
def test_one_that_fails_leaves_the_others_current(bad: object) -> None:
    number = [1]
    round = StatusRound([writes("a", number), bad, writes("b", number)])  # type: ignore[list-item]
    first = round.run(NODE)
    number[0] = 2
    assert round.run(first).status.capacity == {"a": "2", "b": "2"}
    assert round.failures.total() == 2


def test_one_that_hangs_leaves_the_others_current_and_is_called_again_when_it_is_back() -> None:
    number, go_on, calls = [1], threading.Event(), []

    def hanging(node: Node) -> Node:
        calls.append(node)
        go_on.wait()
        capacity = dict(node.status.capacity) | {"h": "late"}
        return msgspec.structs.replace(node, status=msgspec.structs.replace(node.status, capacity=capacity))

    round = StatusRound([writes("a", number), hanging, writes("b", number)], longest_s=0.5)  # type: ignore[list-item]
    node = round.run(NODE)
    number[0] = 2
    node = round.run(node)
    assert node.status.capacity == {"a": "2", "b": "2"}
    assert (len(calls), round.failures["hanging"]) == (1, 2)
    go_on.set()
    for thread in threading.enumerate():
        if thread.name == "eventbus-status-hanging":
            thread.join()
    assert round.run(node).status.capacity == {"a": "2", "b": "2", "h": "late"}
