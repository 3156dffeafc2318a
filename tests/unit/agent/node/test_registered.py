"""Status functions of installed packages: entry points of the group eventbus.node_status."""

from __future__ import annotations

import logging
from importlib.metadata import EntryPoint

import pytest

from eventbus.agent.node.node_status import registered_node_status_funcs
from eventbus.model.event import ObjectMeta
from eventbus.model.objects.cluster import Node

NOT_CALLABLE = 7


def rack(node: Node) -> Node:
    return node


def test_functions_are_found_by_name_and_what_is_none_is_left_out(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    found = {"rack": f"{__name__}:rack", "gone": "no.such.module:x", "number": f"{__name__}:NOT_CALLABLE"}

    def entry_points(*, group: str) -> list[EntryPoint]:
        assert group == "eventbus.node_status"
        return [EntryPoint(name, value, group) for name, value in found.items()]

    monkeypatch.setattr("importlib.metadata.entry_points", entry_points)
    with caplog.at_level(logging.ERROR, "eventbus"):
        functions = registered_node_status_funcs()
    assert functions == [rack]
    assert functions[0](Node(metadata=ObjectMeta(name="n1"))).metadata.name == "n1"
    assert ["gone" in caplog.records[0].message, "number" in caplog.records[1].message] == [True, True]
