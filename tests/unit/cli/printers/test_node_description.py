"""Nodes as kubectl printed them: the recorded output of the real one, spaces aside."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

from eventbus.cli.printers.node_description import Around, node_sections
from eventbus.cli.printers.object_printer import PrintOptions, make_printer
from eventbus.model.kinds import NODE
from eventbus.model.objects.cluster import Lease, LeaseSpec, Node

VECTOR: dict[str, Any] = json.loads((Path(__file__).parents[3] / "vectors/kubectl/nodes.json").read_text("utf-8"))
NOW = datetime(2026, 1, 2, 3, 5, 10, tzinfo=UTC)


@pytest.fixture
def node() -> Node:
    return NODE.decode(VECTOR["node"])


def recorded(*command: str) -> str:
    [text] = [run["stdout"] for run in VECTOR["runs"] if run["command"] == list(command)]
    return str(text)


def squeezed(text: str) -> list[str]:
    """Lines with two spaces between their cells; ages are left out."""
    lines = [re.sub(r"(?<=\S) {2,}", "  ", line).rstrip() for line in text.splitlines()]
    return [re.sub(r"<age>|<unknown>$", "<age>", line) for line in lines]


def test_describe_prints_every_section_of_a_node(node: Node) -> None:
    page = recorded("describe", "node", "node-1")
    wanted = page[page.index("Lease:") : page.index("Events:")]
    pods = sorted(VECTOR["pods"], key=lambda pod: str(pod["metadata"]["name"]))  # as a store lists them
    assert squeezed(node_sections(node, Around(None, pods), NOW)) == squeezed(wanted)


def test_describe_prints_a_lease_with_its_age(node: Node) -> None:
    spec = LeaseSpec(holder_identity="node-1_17", lease_duration_seconds=40, renew_time=NOW.replace(second=7))
    page = node_sections(node, Around(Lease(spec=spec)), NOW)
    assert page.startswith(
        "Lease:\n"
        "  HolderIdentity:  node-1_17\n"
        "  AcquireTime:     <unset>\n"
        "  RenewTime:       Fri, 02 Jan 2026 03:05:07 +0000 (3s ago)\n"
        "  LeaseDuration:   40s\n"
        "Conditions:\n"
    )


def test_describe_sums_what_the_pods_of_a_node_ask_for(node: Node) -> None:
    resources = {"requests": {"cpu": "250m", "memory": "64Mi"}, "limits": {"cpu": "1", "memory": "1Gi"}}
    pod = {
        "metadata": {"namespace": "shop", "name": "web-0"},
        "spec": {"containers": [{"resources": resources}, {"resources": resources}]},
        "status": {"phase": "Running"},
    }
    page = squeezed(node_sections(node, Around(None, [pod, pod | {"status": {"phase": "Failed"}}]), NOW))
    assert "  shop  web-0  500m (25%)  2 (100%)  128Mi (0%)  2Gi (8%)  <age>" in page
    assert "  cpu  500m (25%)  2 (100%)" in page


@pytest.mark.parametrize("form", ["", "wide"])
def test_get_prints_the_columns_of_a_node(node: Node, form: str) -> None:
    created = msgspec.structs.replace(node.metadata, creation_timestamp=datetime.now(UTC))
    printed = make_printer(NODE, PrintOptions(form=form)).listed([msgspec.structs.replace(node, metadata=created)])
    wanted = recorded("get", "nodes", *(("-o", form) if form else ()))
    assert [re.sub(r"\b\d+s\b", "<age>", line) for line in squeezed(printed)] == squeezed(wanted)
