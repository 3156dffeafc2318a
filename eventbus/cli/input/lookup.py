"""Parses the objects named on a command line, and finds them and their events or explains why there are none."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from eventbus.cli.session import Session
from eventbus.errors import EventBusError, InvalidEvent, NotFound
from eventbus.model.event import Event, ObjectReference
from eventbus.model.list_watch import ListOptions, ObjectList
from eventbus.model.reference import meant_kinds, named_reference, reference_from_text
from eventbus.util.text import printable

if TYPE_CHECKING:
    from eventbus.cli.printers.description import Stored
    from eventbus.cli.printers.node_description import Around
    from eventbus.model.kinds import Kind
    from eventbus.store.object_store import AnyStore

#: Maximum number of other places in a hint.
HINTS = 5


def list_about(store: AnyStore, namespace: str | None, reference: ObjectReference) -> ObjectList[Event]:
    """The events about *reference* in *namespace* (None: all), its kind as people type it."""
    lists = [
        store.list(namespace, kind=kind, name=reference.name) for kind in dict.fromkeys(meant_kinds(reference.kind))
    ]
    # The oldest version: a watch from it misses no change since the later lists.
    return ObjectList(tuple(event for listing in lists for event in listing.items), lists[0].resource_version)


def stored_kind(typed: str) -> Kind[Any] | None:
    """Return the kind of stored objects that *typed* means, if any."""
    from eventbus.model.kinds import KINDS

    return next((kind for word in meant_kinds(typed) if (kind := KINDS.named(word))), None)


def demanded_kind(typed: str, *, else_do: str = "") -> Kind[Any]:
    """As `stored_kind`. Raises: UsageError: there is none; the message names the known kinds and *else_do*."""
    from eventbus.model.kinds import KINDS

    kind = stored_kind(typed)
    if kind is None:
        known = ", ".join(sorted(kind.plural for kind in KINDS))
        raise click.UsageError(f"the store holds no {printable(typed)}: it has {known}{else_do}")
    return kind


def readable_kind(store: AnyStore, typed: str, namespace: str | None) -> Kind[Any] | None:
    """As `stored_kind`; one that this user may not read counts as not stored, and a line on stderr says so."""
    from eventbus.store.object_store import may_read

    kind = stored_kind(typed)
    if kind is None or may_read(store, kind, namespace or ""):
        return kind
    click.echo(
        f"{kind.plural} themselves are not shown, only their events: this user lacks the role operator", err=True
    )
    return None


def find_stored(store: AnyStore, kind: Kind[Any], namespace: str | None, name: str) -> list[Stored]:
    """The object *name* as it is stored; namespace None: those of all of them."""
    from eventbus.cli.printers.description import Stored
    from eventbus.model.list_watch import list_all
    from eventbus.model.selectors import escape_value

    objects = store.objects(kind)
    if namespace is None and kind.namespaced:
        stored, _ = list_all(objects, ListOptions(field_selector=f"metadata.name={escape_value(name)}"))
        return [Stored(kind, item) for item in stored.items]
    try:
        stored = objects.get(name, namespace if namespace and kind.namespaced else "")
    except NotFound:
        return []
    return [Stored(kind, stored, _around(store, kind, name))]


def _around(store: AnyStore, kind: Kind[Any], node: str) -> Around:
    """Fetch the lease and pods of a node; nothing for other kinds."""
    from eventbus.cli.printers.node_description import Around
    from eventbus.model.kinds import KINDS, LEASE, NODE
    from eventbus.model.list_watch import list_all
    from eventbus.model.objects.cluster import NODE_LEASES
    from eventbus.store.object_store import may_read

    if kind is not NODE:
        return Around()
    try:
        lease = store.objects(LEASE).get(node, NODE_LEASES)
    except NotFound:
        lease = None
    pods = KINDS.get("pods")
    if pods is None or not may_read(store, pods):
        return Around(lease)
    listed, _ = list_all(store.objects(pods), ListOptions())
    plain = [pods.encode(pod) for pod in listed.items]
    return Around(lease, [pod for pod in plain if (pod.get("spec") or {}).get("nodeName") == node])


def find_stored_beginning(store: AnyStore, kind: Kind[Any], namespace: str | None, begin: str) -> list[Stored]:
    """Return all objects with this name prefix."""
    from eventbus.cli.printers.description import Stored
    from eventbus.model.list_watch import list_all

    place = namespace if namespace and kind.namespaced else ""
    listing, _ = list_all(store.objects(kind), ListOptions(namespace=place))
    matching = [item for item in listing.items if item.metadata.name.startswith(begin)]
    return [Stored(kind, item, _around(store, kind, item.metadata.name)) for item in matching]


def is_about(event: Event, kinds: frozenset[str], name: str) -> bool:
    """Return True if the event's object has *name* and one of *kinds*, which are in lower case."""
    return event.involved_object.name == name and event.involved_object.kind.lower() in kinds


def elsewhere(events: tuple[Event, ...], kinds: frozenset[str], name: str, stored: Sequence[Stored]) -> list[str]:
    """Suggest objects of the same name: in another namespace, or of another kind."""
    places = [(event.metadata.namespace, event.involved_object.kind, event.involved_object.name) for event in events]
    counts: Counter[str] = Counter()
    for namespace, kind, known in (*places, *(item.identity for item in stored)):
        if known == name:
            place = "" if namespace in ("", "default") else f" -n {namespace}"
            counts[f"{kind.lower()}/{known}{place}"] += 1 + (kind.lower() in kinds)
    return [text for text, _ in counts.most_common(HINTS)]


def waiting(session: Session) -> str:
    """Return a sentence if events wait in the stream and no worker stores them; else ''."""
    from eventbus.broker.health.status import read_unread
    from eventbus.broker.keys import SINK_GROUP

    if session.remote is not None:
        return no_worker(session, only_waiting=True)
    try:
        unread = read_unread(session.bus, session.client, SINK_GROUP)
    except EventBusError:
        return ""  # without the right to read the groups there is no hint
    return _waiting(unread) if unread else ""


def no_worker(session: Session, *, only_waiting: bool = False) -> str:
    """As `waiting`, but also if no events wait, unless *only_waiting*."""
    lag, alive = _sink_group(session)
    if alive:
        return ""
    return _waiting(lag) if lag else "" if only_waiting else _START.capitalize()


def not_stored(session: Session, about: ObjectReference) -> str:
    """Return a sentence if no worker stores a new event about *about*; else ''. Over HTTP, there is none."""
    from eventbus.broker.health.status import has_worker
    from eventbus.broker.keys import SINK_GROUP, partition_of

    if session.remote is not None:
        return ""
    keys = session.bus.keys[partition_of(about, session.bus.partitions)]
    try:
        return "" if has_worker(session.client, keys, SINK_GROUP) else f"The event is not stored yet; {_START}"
    except EventBusError:
        return ""  # as in `waiting`


def _waiting(lag: int) -> str:
    number = "1 event waits" if lag == 1 else f"{lag} events wait"
    return f"{number} to be recorded, but {_START}"


_START = "no sink worker is alive: start one with `eventbus worker sink`"


def _sink_group(session: Session) -> tuple[int, int]:
    """Return the lag and live workers of the sink group; (0, 1) if this user may not read them."""
    from eventbus.broker.keys import SINK_GROUP

    try:
        groups = session.read_status().groups
    except EventBusError:
        return 0, 1
    sink = next((group for group in groups if group.name == SINK_GROUP), None)
    return (0, 1) if sink is None else (sink.lag or 0, sink.alive)


def object_from_words(words: tuple[str, ...]) -> ObjectReference:
    """Parse `pod/web-0`, `shop/pod/web-0`, or `pod web-0` as in kubectl.

    The kind stays as typed; the namespace is empty if it was not typed.

    Raises: InvalidEvent: neither.
    """
    if len(words) == 1 and "/" not in words[0]:
        raise InvalidEvent("object", f"{words[0]!r} needs its kind: KIND/NAME, like pod/{words[0]}")
    if len(words) == 2 and "/" not in words[0]:
        return named_reference(*words)
    if len(words) > 1:
        raise InvalidEvent("object", f"{' '.join(words)!r} is not of the form KIND/NAME, like pod/web-0")
    return reference_from_text(words[0])


def objects_from_words(words: tuple[str, ...]) -> list[ObjectReference]:
    """Parse `node/a node/b`, or `node a b`. Raises: InvalidEvent: neither."""
    if "/" in words[0]:
        return [object_from_words((word,)) for word in words]
    return [object_from_words((words[0], name)) for name in words[1:]] or [object_from_words(words)]
