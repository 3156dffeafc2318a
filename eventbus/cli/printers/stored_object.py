"""Describes a stored object for `eventbus describe`, in kubectl's words. Pure functions."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from typing import Any, Final, NamedTuple, TypeAlias

from eventbus.cli.printers.node_description import Around, node_sections
from eventbus.cli.printers.object_printer import plain_of
from eventbus.cli.printers.pod_description import pod_lines, pod_sections
from eventbus.model.columns.objects import node_roles
from eventbus.model.kinds import NODE, POD, SECRET, Kind
from eventbus.model.objects.cluster import Node
from eventbus.model.objects.pod import Pod
from eventbus.util.local_time import local_time
from eventbus.util.text import printable

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
    found, metadata = stored.object, stored.object.metadata
    created = metadata.creation_timestamp
    annotations = {key: value for key, value in metadata.annotations.items() if key != _UNSHOWN}
    lines: list[Line] = [
        ("Labels", [f"{key}={value}" for key, value in sorted(metadata.labels.items())]),
        ("Annotations", [f"{key}: {value}" for key, value in sorted(annotations.items())]),
        ("CreationTimestamp", [local_time(created)] if created else []),
    ]
    if isinstance(found, Pod):
        return [*lines, *pod_lines(found)]
    if not isinstance(found, Node):
        return lines
    taints = [f"{taint.key}{'=' if taint.value else ''}{taint.value}:{taint.effect}" for taint in found.spec.taints]
    unschedulable = str(found.spec.unschedulable).lower()
    return [("Roles", [node_roles(found)]), *lines, ("Taints", taints), ("Unschedulable", [unschedulable])]


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
    for one in [value] if isinstance(value, Mapping) else value:
        if isinstance(one, Mapping):
            yield _tree(one, label, indent)
        elif isinstance(one, (list, tuple)):
            yield from _items(one, label, indent + 2)
        else:
            yield f"{' ' * indent}{_scalar(one)}\n"


def _scalar(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return printable(str(value)) if value or value == 0 else "<none>"
