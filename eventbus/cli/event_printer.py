"""Events in the form that `-o` names: a table, JSON, YAML or names; at once, or one by one under `-w`."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from enum import StrEnum
from typing import Protocol

from eventbus.cli.event_table import event_name, get_headers, get_row
from eventbus.cli.output import core_of, dump_json
from eventbus.cli.table import Table
from eventbus.cli.yaml import dump_yaml
from eventbus.event import Event
from eventbus.text import printable


class Form(StrEnum):
    """What `-o` may say; without it the form is a narrow table."""

    TABLE = "table"
    WIDE = "wide"
    JSON = "json"
    YAML = "yaml"
    NAME = "name"


class Printer(Protocol):
    """Makes text of events; whole lines, or nothing."""

    def listed(self, events: Sequence[Event]) -> str:
        """A list that is not going to be watched."""
        ...

    def watched(self, events: Sequence[Event]) -> str:
        """More events of a watch; the first of them may be its list."""
        ...


def make_printer(
    form: Form, *, all_namespaces: bool = False, no_headers: bool = False, colour: bool = False
) -> Printer:
    """The printer of *form*; the other arguments are those of a table."""
    if form is Form.JSON:
        return _Json()
    if form is Form.YAML:
        return _Yaml()
    if form is Form.NAME:
        return _Names()
    return _Rows(wide=form is Form.WIDE, all_namespaces=all_namespaces, no_headers=no_headers, colour=colour)


class _Rows:
    def __init__(self, *, wide: bool, all_namespaces: bool, no_headers: bool, colour: bool) -> None:
        self._wide = wide
        self._all_namespaces = all_namespaces
        self._colour = colour
        self._table = Table(get_headers(wide=wide, all_namespaces=all_namespaces), no_headers=no_headers)

    def listed(self, events: Sequence[Event]) -> str:
        now = datetime.now(UTC)
        return self._table.text(
            get_row(event, now=now, wide=self._wide, all_namespaces=self._all_namespaces, colour=self._colour)
            for event in events
        )

    watched = listed


class _Names:
    def listed(self, events: Sequence[Event]) -> str:
        return "".join(f"{printable(event_name(event))}\n" for event in events)

    watched = listed


class _Json:
    def listed(self, events: Sequence[Event]) -> str:
        return dump_json(_list_of(events)) + "\n"

    def watched(self, events: Sequence[Event]) -> str:
        return "".join(dump_json(core_of(event)) + "\n" for event in events)


class _Yaml:
    """Under `-w` each event is a document of its own."""

    def __init__(self) -> None:
        self._first = True

    def listed(self, events: Sequence[Event]) -> str:
        return dump_yaml(_list_of(events))

    def watched(self, events: Sequence[Event]) -> str:
        text = "".join("---\n" + dump_yaml(core_of(event)) for event in events)
        if text and self._first:
            self._first = False
            return text.removeprefix("---\n")
        return text


def _list_of(events: Sequence[Event]) -> dict[str, object]:
    """kubectl's own list: it has no version to go on from."""
    return {
        "apiVersion": "v1",
        "items": [core_of(event) for event in events],
        "kind": "List",
        "metadata": {"resourceVersion": ""},
    }
