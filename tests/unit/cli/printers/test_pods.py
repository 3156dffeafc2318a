"""Pods as kubectl printed them, in fifteen states: the recorded output of the real one, spaces aside."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from eventbus.cli.printers.description import Stored, describe_objects, format_description
from eventbus.model.columns.objects import columns_of, pod_row
from eventbus.model.kinds import POD

VECTOR: dict[str, Any] = json.loads((Path(__file__).parents[3] / "vectors/kubectl/pods.json").read_text("utf-8"))
NOW = datetime(2026, 1, 2, 3, 5, 10, tzinfo=UTC)
PODS = {pod["metadata"]["name"]: POD.decode(pod) for pod in VECTOR["pods"]}
#: Lines of kubectl's page that we do not have: nothing here has priorities or tolerations, the IPs are one.
LEFT_OUT = ("Priority:", "IPs:", "  IP:  10", "Tolerations:", "  node.kubernetes.io")


def recorded(*command: str) -> list[str]:
    [text] = [run["stdout"] for run in VECTOR["runs"] if run["command"] == list(command)]
    return str(text).splitlines()


@pytest.mark.parametrize(("wide", "headers"), [(False, columns_of(POD).headers), (True, columns_of(POD).wide_headers)])
def test_every_state_has_kubectls_cells(wide: bool, headers: tuple[str, ...]) -> None:
    command = ("get", "pods", "-o", "wide") if wide else ("get", "pods")
    first, *rows = recorded(*command)
    assert first == "  ".join(headers).upper()
    for row in rows:
        name = row.split()[0]
        found = [str(cell) for cell in pod_row(PODS[name], NOW, wide, False)]
        found[4] = "<age>"
        found[3] = found[3].partition(" (")[0]  # the recorded server knew no ages
        assert "  ".join(found) == re.sub(r" \([^)]* ago\)", "", row), name


@pytest.mark.parametrize("name", ["crash", "running", "init", "lost", "completed"])
def test_describe_prints_what_kubectl_prints(name: str) -> None:
    [described] = describe_objects([], [Stored(POD, PODS[name])])
    page = format_description(described, now=NOW, show_events=False)
    found = [re.sub(r"\s+", " ", line).strip() for line in page.splitlines()]
    for line in recorded("describe", "pod", name):
        if line.strip() and not line.startswith((*LEFT_OUT, "Events:")):
            assert re.sub(r"\s+", " ", line).strip() in found, line


def test_a_pod_that_is_being_deleted_is_terminating() -> None:
    import msgspec

    pod = PODS["running"]
    deleted = msgspec.structs.replace(pod, metadata=msgspec.structs.replace(pod.metadata, deletion_timestamp=NOW))
    assert pod_row(deleted, NOW, False, False)[2] == "Terminating"
