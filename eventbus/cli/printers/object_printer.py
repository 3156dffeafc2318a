"""Formats objects of any kind in the form of `-o`: a whole list, or the changes of a watch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple, Protocol

import msgspec

from eventbus.cli.printers.jsonpath import Template, parse_template, render
from eventbus.cli.printers.output import FORMS, core_of, dump_json
from eventbus.model.columns.objects import NONE, columns_of, object_name
from eventbus.model.event import Event
from eventbus.model.kinds import Kind
from eventbus.util.table import FIRST_LINES, Cell, Table
from eventbus.util.text import printable
from eventbus.util.yaml import dump_yaml

#: Characters of `MODIFIED`. kubectl pads `ADDED` and `DELETED` to it, so that the columns stay aligned.
_WORD = 8


class PrintedChange(NamedTuple):
    """An object, and the type of its change, such as `ADDED`."""

    type: str
    object: Any


class PrintOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options of printing: the form, the columns, the colours."""

    form: str = ""  #: the value of -o; "" is a narrow table
    namespaces: bool = False  #: a first column with the namespace
    no_headers: bool = False
    colour: bool = False
    watch_events: bool = False  #: print the type of each change
    labels: tuple[str, ...] = ()  #: labels with a column each, after the others
    all_labels: bool = False  #: a last column with all labels


class Printer(Protocol):
    """Formats objects as text: whole lines, or nothing."""

    def listed(self, items: Sequence[Any]) -> str:
        """Format a list that is not going to be watched."""
        ...

    def watched(self, changes: Sequence[PrintedChange]) -> str:
        """Format the next changes of a watch. The first call may have the objects of its list, as `ADDED`."""
        ...


def make_printer(kind: Kind[Any], options: PrintOptions) -> Printer:
    """Make the printer of a form. Raises: ValueError: unknown form, or a template that cannot be parsed."""
    form, _, argument = options.form.partition("=")
    if argument and form == "jsonpath":
        return _Templates(kind, options, parse_template(argument))
    match options.form:
        case "" | "wide":
            return _Rows(kind, options)
        case "json":
            return _Documents(kind, options, lambda data: dump_json(data) + "\n", "")
        case "yaml":
            return _Documents(kind, options, dump_yaml, "---\n")
        case "name":
            return _Names(kind)
    raise ValueError(
        f"unable to match a printer suitable for the output format {options.form!r}, allowed: {FORMS}. "
        "For more forms, use kubectl with `eventbus worker api`"
    )


def plain_of(kind: Kind[Any], item: Any) -> dict[str, Any]:
    """Return the object's JSON."""
    return core_of(item) if isinstance(item, Event) else kind.encode(item)


class _Rows:
    def __init__(self, kind: Kind[Any], options: PrintOptions) -> None:
        self._options = options
        self._wide = options.form == "wide"
        self._columns = columns_of(kind)
        headers = self._columns.wide_headers if self._wide else self._columns.headers
        first = (*(("Event",) if options.watch_events else ()), *(("Namespace",) if options.namespaces else ()))
        last = (*(label.rpartition("/")[2] for label in options.labels), *(("Labels",) if options.all_labels else ()))
        self._table = Table((*first, *headers, *last), no_headers=options.no_headers, layout=FIRST_LINES)

    def listed(self, items: Sequence[Any]) -> str:
        return self.watched([PrintedChange("", item) for item in items])

    def watched(self, changes: Sequence[PrintedChange]) -> str:
        now = datetime.now(UTC)
        return self._table.text([self._row(change, now) for change in changes])

    def _row(self, change: PrintedChange, now: datetime) -> list[str | Cell]:
        options, item = self._options, change.object
        row: list[str | Cell] = [change.type.ljust(_WORD)] if options.watch_events else []
        row += [item.metadata.namespace] if options.namespaces else []
        labels = item.metadata.labels
        last = [labels.get(name, NONE) for name in options.labels]
        last += [",".join(f"{name}={labels[name]}" for name in sorted(labels)) or NONE] if options.all_labels else []
        return [*row, *self._columns.row(item, now, self._wide, options.colour), *last]


class _Names:
    def __init__(self, kind: Kind[Any]) -> None:
        self._kind = kind

    def listed(self, items: Sequence[Any]) -> str:
        return "".join(f"{printable(object_name(self._kind, item.metadata.name))}\n" for item in items)

    def watched(self, changes: Sequence[PrintedChange]) -> str:
        return self.listed([change.object for change in changes])


class _Documents:
    """JSON or YAML. *between* stands before every document of a watch but the first."""

    def __init__(self, kind: Kind[Any], options: PrintOptions, dump: Callable[[Any], str], between: str) -> None:
        self._kind = kind
        self._options = options
        self._dump = dump
        self._between = between
        self._first = True

    def listed(self, items: Sequence[Any]) -> str:
        return self._dump(_list_of(self._kind, items))

    def watched(self, changes: Sequence[PrintedChange]) -> str:
        text = "".join(self._between + self._dump(_document(self._kind, self._options, change)) for change in changes)
        if text and self._first:
            self._first = False
            return text.removeprefix(self._between)
        return text


class _Templates:
    def __init__(self, kind: Kind[Any], options: PrintOptions, template: Template) -> None:
        self._kind = kind
        self._options = options
        self._template = template

    def listed(self, items: Sequence[Any]) -> str:
        return render(self._template, _list_of(self._kind, items))

    def watched(self, changes: Sequence[PrintedChange]) -> str:
        return "".join(render(self._template, _document(self._kind, self._options, change)) for change in changes)


def _document(kind: Kind[Any], options: PrintOptions, change: PrintedChange) -> dict[str, Any]:
    """Return the document printed for one event of a watch."""
    plain = plain_of(kind, change.object)
    return {"type": change.type, "object": plain} if options.watch_events else plain


def _list_of(kind: Kind[Any], items: Sequence[Any]) -> dict[str, Any]:
    """Make the list object that kubectl prints. Its resourceVersion is empty."""
    return {
        "apiVersion": "v1",
        "items": [plain_of(kind, item) for item in items],
        "kind": "List",
        "metadata": {"resourceVersion": ""},
    }
