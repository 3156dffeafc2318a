"""Describes objects and their events for `eventbus describe`, in kubectl's words. Pure functions."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec

from eventbus.cli.printers.node_description import Around, node_sections
from eventbus.cli.printers.object_printer import plain_of
from eventbus.cli.printers.output import core_of
from eventbus.cli.printers.pod_description import pod_lines, pod_sections
from eventbus.model.columns.events import by_last_seen, describe_events, seen
from eventbus.model.columns.objects import node_roles
from eventbus.model.event import SUPPRESSED_REASON, Event
from eventbus.model.kinds import KINDS, NODE, POD, SECRET, Kind
from eventbus.model.objects.cluster import Node
from eventbus.model.objects.pod import Pod
from eventbus.store.story.verdict import first_seen
from eventbus.util.human_duration import age, local_time
from eventbus.util.text import printable

#: Lines of a list; the rest is counted.
LINES = 8


class Reason(msgspec.Struct, frozen=True, rename="camel"):
    """The count of the object's events of one type and reason."""

    type: str
    reason: str
    events: int  #: stored ones
    seen: int  #: the sum of their counts


class Description(msgspec.Struct, frozen=True):
    """One object: the events about it, sorted by when they were last seen, and itself if it is stored."""

    kind: str
    namespace: str  #: empty for cluster-scoped objects
    name: str
    events: tuple[Event, ...]
    stored: Stored | None = None

    @property
    def uids(self) -> list[str]:
        """Return its uids, the latest first: a recreated object has another."""
        own = [self.stored.object.metadata.uid] if self.stored else []
        return _distinct([*own, *(event.involved_object.uid for event in reversed(self.events))])

    @property
    def api_versions(self) -> list[str]:
        """Return its API versions, the latest first."""
        own = [self.stored.kind.api_version] if self.stored else []
        return _distinct([*own, *(event.involved_object.api_version for event in reversed(self.events))])

    @property
    def first_seen(self) -> datetime | None:
        """Return the earliest time of the events that are still stored."""
        return min((time for event in self.events if (time := event.first_timestamp or event.event_time)), default=None)

    @property
    def last_seen(self) -> datetime | None:
        """Return the latest time of the events that are still stored."""
        return max((time for event in self.events if (time := event.last_seen)), default=None)

    @property
    def reasons(self) -> list[Reason]:
        """Return the reasons, warnings first, then the most frequent; not that of reports of suppression."""
        found: dict[tuple[str, str], list[Event]] = {}
        for event in self.events:
            if event.reason != SUPPRESSED_REASON:
                found.setdefault((event.type, event.reason), []).append(event)
        rows = [Reason(*key, len(events), sum(map(seen, events))) for key, events in found.items()]
        return sorted(rows, key=lambda row: (row.type != "Warning", -row.seen, row.reason))

    @property
    def sources(self) -> list[str]:
        """Return the sources, as `kubelet, node-1`, the latest first."""
        return _distinct(_source(event) for event in reversed(self.events))

    @property
    def suppressed(self) -> int:
        """Count its events that were suppressed as spam, as far as the store has reports."""
        return sum(seen(event) for event in self.events if event.reason == SUPPRESSED_REASON)


def describe_objects(events: Iterable[Event], stored: Iterable[Stored] = ()) -> list[Description]:
    """Make one description for each object: namespace, kind in any case, and name.

    The kind is spelled as in the first event."""
    about: dict[tuple[str, str, str], list[Event]] = {}
    itself = {one.identity: one for one in stored}
    spelled = {(namespace, kind.lower(), name): kind for namespace, kind, name in itself}
    ordered = by_last_seen(events)
    for event in sorted(ordered, key=first_seen):
        namespace, kind, name = _identity(event)
        spelled.setdefault((namespace, kind.lower(), name), kind)
    for event in ordered:
        namespace, kind, name = _identity(event)
        about.setdefault((namespace, spelled[namespace, kind.lower(), name], name), []).append(event)
    return [
        Description(kind, namespace, name, tuple(about.get(identity, ())), itself.get(identity))
        for identity in sorted(about.keys() | itself.keys())
        for namespace, kind, name in [identity]
    ]


def _identity(event: Event) -> tuple[str, str, str]:
    """Return the object's identity, as `Stored.identity`. A node has no namespace, though its events lie in one."""
    about, namespace = event.involved_object, event.metadata.namespace
    kind = next((one for one in KINDS if one.name.lower() == about.kind.lower()), None)
    if kind is None:
        return namespace, about.kind, about.name
    return namespace if kind.namespaced else "", kind.name, about.name


def format_description(described: Description, *, now: datetime, show_events: bool = True, colour: bool = False) -> str:
    """Format the page of one object, with kubectl's Events section at its end."""
    lines = _lines(described, now)
    width = max(len(label) for label, _ in lines) + 3
    parts = [_line(label, values, width) for label, values in lines]
    if described.stored:
        parts.append(stored_sections(described.stored, now))
    if show_events:
        parts.append(describe_events(described.events, now=now, label_width=width, colour=colour))
    return "".join(parts)


def _lines(described: Description, now: datetime) -> list[Line]:
    lines: list[Line] = [("Name", [described.name])]
    if described.namespace:
        lines.append(("Namespace", [described.namespace]))
    if described.stored:
        lines += stored_lines(described.stored)
    lines += [("Kind", [described.kind]), ("API Version", described.api_versions), ("UID", described.uids)]
    if described.events:
        lines += [
            ("First Seen", [_when(described.first_seen, now)]),
            ("Last Seen", [_when(described.last_seen, now)]),
            ("Reasons", [f"{row.type:<7}  {row.reason} x{row.seen}" for row in described.reasons]),
            # kubectl's comma is that of its table; on this line it would read as two sources.
            ("Sources", _distinct(_source(event, " on ") for event in reversed(described.events))),
        ]
    if described.suppressed:
        lines.append(("Suppressed", [f"{described.suppressed} as spam (eventbus get suppressed)"]))
    return lines


def description_to_json(described: Description) -> dict[str, Any]:
    """Return the description as JSON-like data; events in the form of core/v1."""
    return {
        "kind": described.kind,
        "namespace": described.namespace,
        "name": described.name,
        "apiVersions": described.api_versions,
        "uids": described.uids,
        "firstSeen": _json_time(described.first_seen),
        "lastSeen": _json_time(described.last_seen),
        "reasons": msgspec.to_builtins(described.reasons),
        "sources": described.sources,
        "suppressed": described.suppressed,
        "object": plain_of(described.stored.kind, described.stored.object) if described.stored else None,
        "events": [core_of(event) for event in described.events],
    }


def _line(label: str, values: Sequence[str], width: int) -> str:
    """Format a label and its values, one a line, as many as LINES."""
    shown = [printable(value) for value in values[:LINES]] or ["<none>"]
    if len(values) > LINES:
        shown.append(f"and {len(values) - LINES} more")
    lead = f"{label + ':':<{width}}"
    return "".join(f"{lead if number == 0 else ' ' * width}{value}\n" for number, value in enumerate(shown))


def _when(time: datetime | None, now: datetime) -> str:
    return "<unknown>" if time is None else f"{local_time(time)} ({age(now, time)} ago)"


def _json_time(time: datetime | None) -> str | None:
    return None if time is None else time.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def _source(event: Event, between: str = ", ") -> str:
    component = event.source.component or event.reporting_component
    host = event.source.host or event.reporting_instance
    return f"{component}{between}{host}" if host else component


def _distinct(values: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(value for value in values if value))


#: A label of the page, and its values, one a line.
Line: TypeAlias = tuple[str, list[str]]

_WORD_BORDER = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
#: Annotations in which `eventbus apply` and kubectl keep the last applied manifest.
_UNSHOWN: Final = "kubectl.kubernetes.io/last-applied-configuration"
_SPELLED: Final = {"Api": "API", "Id": "ID", "Os": "OS", "Uid": "UID", "Url": "URL"}


class Stored(NamedTuple):
    """An object as the store holds it."""

    kind: Kind[Any]
    object: Any
    around: Around = Around()  #: of a node

    @property
    def identity(self) -> tuple[str, str, str]:
        """Return namespace, kind and name."""
        return self.object.metadata.namespace, self.kind.name, self.object.metadata.name


def stored_lines(stored: Stored) -> list[Line]:
    """Return the lines at the top of the page, a label each."""
    item, metadata = stored.object, stored.object.metadata
    created = metadata.creation_timestamp
    annotations = {key: value for key, value in metadata.annotations.items() if key != _UNSHOWN}
    lines: list[Line] = [
        ("Labels", [f"{key}={value}" for key, value in sorted(metadata.labels.items())]),
        ("Annotations", [f"{key}: {value}" for key, value in sorted(annotations.items())]),
        ("CreationTimestamp", [local_time(created)] if created else []),
    ]
    if isinstance(item, Pod):
        return [*lines, *pod_lines(item)]
    if not isinstance(item, Node):
        return lines
    taints = [f"{taint.key}{'=' if taint.value else ''}{taint.value}:{taint.effect}" for taint in item.spec.taints]
    unschedulable = str(item.spec.unschedulable).lower()
    return [("Roles", [node_roles(item)]), *lines, ("Taints", taints), ("Unschedulable", [unschedulable])]


def stored_sections(stored: Stored, now: datetime) -> str:
    """The rest of it. Source: kubectl's describeNode; any other kind as its generic describer does it."""
    if stored.kind is NODE:
        return node_sections(stored.object, stored.around, now)
    if stored.kind is POD:
        return pod_sections(stored.object)
    plain = plain_of(stored.kind, stored.object)
    if stored.kind is SECRET:  # the length of each value only
        plain["data"] = {key: f"{_bytes(value)} bytes" for key, value in sorted((plain.get("data") or {}).items())}
    return _tree({key: plain[key] for key in sorted(plain.keys() - {"kind", "apiVersion", "metadata"})})


def _bytes(value: str) -> int:
    return len(value.rstrip("=")) * 3 // 4


def _words(key: str) -> str:
    """Split words: `holderIdentity` becomes `Holder Identity`."""
    words = [word[:1].upper() + word[1:] for word in _WORD_BORDER.sub(" ", key).split()]
    return " ".join(_SPELLED.get(word, word) for word in words)


def _tree(values: Mapping[str, Any], label: Callable[[str], str] = _words, indent: int = 0) -> str:
    """Format a mapping, a label a line, with inner mappings indented."""
    labels = {key: printable(label(str(key))) + ":" for key in values}
    width = max(map(len, labels.values()), default=0) + 2
    text = ""
    for key, value in values.items():
        if isinstance(value, (Mapping, list, tuple)) and value:
            text += " " * indent + labels[key] + "\n" + "".join(_items(value, label, indent + 2))
        else:
            text += f"{' ' * indent}{labels[key]:<{width}}{_scalar(value)}\n"
    return text


def _items(value: Any, label: Callable[[str], str], indent: int) -> Iterator[str]:
    for item in [value] if isinstance(value, Mapping) else value:
        if isinstance(item, Mapping):
            yield _tree(item, label, indent)
        elif isinstance(item, (list, tuple)):
            yield from _items(item, label, indent + 2)
        else:
            yield f"{' ' * indent}{_scalar(item)}\n"


def _scalar(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return printable(str(value)) if value or value == 0 else "<none>"
