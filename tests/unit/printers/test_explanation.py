"""Single fields as `kubectl explain` shows them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from eventbus.kinds import KINDS
from eventbus.printers.explanation import NoSuchField, explain
from tests.thin import thin

#: Path → its line, and whether there are fields below it.
SINGLE = {
    "event.reason": ("FIELD: reason <string>", False),
    "event.count": ("FIELD: count <integer>", False),
    "event.firstTimestamp": ("FIELD: firstTimestamp <string>", False),
    "event.series": ("FIELD: series <EventSeries>", True),
    "event.series.lastObservedTime": ("FIELD: lastObservedTime <string>", False),
    "event.involvedObject.name": ("FIELD: name <string>", False),
    "event.metadata": ("FIELD: metadata <ObjectMeta>", True),
    "event.metadata.labels": ("FIELD: labels <map[string]string>", False),
    "event.kind": ("FIELD: kind <string>", False),
    "node.spec.unschedulable": ("FIELD: unschedulable <boolean>", False),
    "node.spec.taints": ("FIELD: taints <[]Taint>", True),
    "node.spec.taints.effect": ("FIELD: effect <string>", False),
    "lease.spec.leaseDurationSeconds": ("FIELD: leaseDurationSeconds <integer>", False),
    "pod.spec.containers.command": ("FIELD: command <[]string>", False),
    "pod.spec.containers.livenessProbe.httpGet.path": ("FIELD: path <string>", False),
    "pod.spec.containers.livenessProbe.httpGet.port": ("FIELD: port <string>", False),
}
MISSING = ["event.nothing", "event.reason.more", "event.involvedobject", "node.spec.taints.0"]


def explained(path: str, *, recursive: bool = False) -> str:
    word, *fields = path.split(".")
    kind = KINDS.named(word)
    assert kind is not None
    return explain(kind, fields, recursive=recursive)


@pytest.mark.parametrize("path", SINGLE)
def test_a_field_has_its_type_its_description_and_what_is_below_it(path: str) -> None:
    line, has_fields = SINGLE[path]
    lines = explained(path).splitlines()
    assert lines[0] == f"KIND:       {path.partition('.')[0].title()}"
    assert lines[3:6] == [line, "", "DESCRIPTION:"]
    assert ("FIELDS:" in lines) == has_fields


@pytest.mark.parametrize("path", MISSING)
def test_a_field_that_there_is_not_is_named(path: str) -> None:
    with pytest.raises(NoSuchField, match=f'field "{path.rpartition(".")[2]}" does not exist'):
        explained(path)


def paths(listed: str) -> Iterator[str]:
    """Read the path of each field from what --recursive prints: two spaces more for each step down."""
    above: list[str] = []
    for line in listed.partition("FIELDS:\n")[2].splitlines():
        indented = line.partition("\t")[0]
        name = indented.strip()
        above = [*above[: (len(indented) - len(name)) // 2 - 1], name]
        yield ".".join(above)


@pytest.mark.parametrize("kind", thin([kind.name.lower() for kind in KINDS], lambda kind: kind != "pod"))
def test_every_field_that_is_listed_is_explained_by_itself(kind: str) -> None:
    found = list(paths(explained(kind, recursive=True)))
    assert "metadata.name" in found
    for path in found:
        assert f"FIELD: {path.rpartition('.')[2]} <" in explained(f"{kind}.{path}")
