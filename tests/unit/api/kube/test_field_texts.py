"""What the fields mean: known of the kinds that people ask about most, and of no field that there is not."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from eventbus.api.kube.field_texts import FIELD_TEXTS
from eventbus.api.kube.namespaces import NAMESPACE
from eventbus.api.kube.openapi import document
from eventbus.api.kube.resources import Resources
from eventbus.model.kinds import EVENT, KINDS, LEASE, NODE

#: Told by the name of its fields: NodeSystemInfo.
CLEAR = {"NodeSystemInfo"}


def schemas(kinds: list[Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """The last word of each schema's name, and its fields."""
    resources = Resources(kinds)
    for group, versions in resources.groups().items():
        for version in versions:
            made = document(resources.in_version(group, version), f"apis/{group}/{version}" if group else "api/v1")
            for name, schema in made["components"]["schemas"].items():
                word = "EventsV1" if name == "io.k8s.events.v1.Event" else name.rpartition(".")[2]
                yield word, schema.get("properties", {})


@pytest.mark.parametrize("kind", [EVENT, LEASE, NODE, NAMESPACE], ids=lambda kind: str(kind.plural))
def test_every_field_of_what_people_ask_about_has_a_text(kind: Any) -> None:
    untold = {
        f"{name}.{field}"
        for name, fields in schemas([kind])
        if name not in CLEAR
        for field, found in fields.items()
        if not found.get("description")
    }
    assert untold == set()


def test_no_text_is_of_a_field_that_there_is_not() -> None:
    every = {(name, field) for name, fields in schemas([*KINDS, NAMESPACE]) for field in fields}
    assert {(name, field) for name, texts in FIELD_TEXTS.items() for field in texts} - every == set()
