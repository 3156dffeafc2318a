"""Namespaces: stored ones, and unstored ones that are in use because objects lie in them."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from eventbus.api.thread_context import ThreadContext
from eventbus.broker.redis_errors import redis_errors
from eventbus.errors import AlreadyExists, BusRefused, NotFound
from eventbus.model.encoding.object_json import namespace_to_json
from eventbus.model.event import ObjectMeta
from eventbus.model.kinds import EVENT, KINDS, Kind
from eventbus.model.list_watch import ListOptions, ObjectList
from eventbus.model.names import is_dns_label
from eventbus.model.objects.cluster import FINALIZER, Namespace, NamespaceSpec, NamespaceStatus
from eventbus.store.list_options import Continue
from eventbus.store.selection import Selection

DEFAULT: Final = "default"
#: Namespaces that the API server protects from deletion.
IMMORTAL: Final = frozenset({DEFAULT, "kube-system", "kube-public"})
#: Limit of unstored namespaces in a list. Further namespaces are not listed, but a get by name still finds them.
MOST: Final = 10_000

NAMESPACE: Final[Kind[Namespace]] = Kind(
    name="Namespace",
    plural="namespaces",
    namespaced=False,
    type=Namespace,
    has_status=True,
    short_names=("ns",),
    fields={"status.phase": lambda found: found.status.phase},
    to_json=namespace_to_json,
    has_generation=False,
)


def begun(namespace: Namespace) -> Namespace:
    """Return the namespace as a create stores it: always Active, and with its finalizer."""
    finalizers = namespace.spec.finalizers
    if FINALIZER not in finalizers:
        finalizers = (*finalizers, FINALIZER)
    return msgspec.structs.replace(namespace, spec=NamespaceSpec(finalizers=finalizers), status=NamespaceStatus())


def terminating(namespace: Namespace) -> Namespace:
    """Return the namespace as a delete answers it: Terminating, although it is removed at once."""
    metadata = msgspec.structs.replace(namespace.metadata, deletion_timestamp=datetime.now(UTC).replace(microsecond=0))
    return msgspec.structs.replace(namespace, metadata=metadata, status=NamespaceStatus(phase="Terminating"))


def make_default(context: ThreadContext) -> None:
    """Store the namespace `default`, which always exists."""
    try:
        context.objects(NAMESPACE).create(Namespace(metadata=ObjectMeta(name=DEFAULT)))
    except AlreadyExists:
        return


def get_namespace(context: ThreadContext, name: str) -> Namespace:
    """Return a namespace that is stored or in use. Raises: NotFound."""
    try:
        stored: Namespace = context.objects(NAMESPACE).get(name)
        return stored
    except NotFound:
        if is_dns_label(name) and _is_used(context, name):
            return _used(context, name)
        raise


def list_namespaces(context: ThreadContext, options: ListOptions) -> ObjectList[Namespace]:
    """Return a page of the selected namespaces, stored or in use, sorted by name."""
    listed = context.objects(NAMESPACE).list(msgspec.structs.replace(options, limit=0, continue_=""))
    selection: Selection[Namespace] = Selection(NAMESPACE, options)
    all_stored = context.objects(NAMESPACE).list() if options.label_selector or options.field_selector else listed
    stored = {namespace.metadata.name for namespace in all_stored.items}
    used = [_used(context, name) for name in _names_in_use(context) if name not in stored]
    items = [*listed.items, *(namespace for namespace in used if selection.matches(namespace))]
    return _page(sorted(items, key=lambda namespace: namespace.metadata.name), listed.resource_version, options)


def _page(items: list[Namespace], version: str, options: ListOptions) -> ObjectList[Namespace]:
    """Return the page of *items* that *options* select. Later pages keep the version of the first page."""
    if options.continue_:
        start = Continue.parse(options.continue_)
        items = [namespace for namespace in items if namespace.metadata.name.encode() > start.member]
        version = start.version
    remaining = len(items) - options.limit
    if not options.limit or remaining <= 0:
        return ObjectList(tuple(items), version)
    page = items[: options.limit]
    more = Continue(version, 0, page[-1].metadata.name.encode())
    # As in the API server: the remaining count is set only without selectors.
    count = None if options.label_selector or options.field_selector else remaining
    return ObjectList(tuple(page), version, str(more), count)


def _used(context: ThreadContext, name: str) -> Namespace:
    """Make the object of a namespace that is in use but not stored. Its creation time is unknown."""
    uid = str(uuid.uuid5(uuid.NAMESPACE_URL, f"eventbus:{context.bus.id}:{name}"))
    return Namespace(metadata=ObjectMeta(name=name, uid=uid, resource_version="1"))


def _indexes(context: ThreadContext) -> Iterator[bytes]:
    """Yield the name indexes of all namespaced kinds."""
    for kind in KINDS:
        if kind.namespaced:
            for keys in context.bus.keys if kind.plural == EVENT.plural else context.bus.keys[:1]:
                yield keys.index_name if kind.plural == EVENT.plural else keys.index_name_of(kind.plural)


def _is_used(context: ThreadContext, name: str) -> bool:
    low = f"[{name}/".encode()
    return any(_first(context, index, low).startswith(low[1:]) for index in _indexes(context))


def _names_in_use(context: ThreadContext) -> list[str]:
    """Return the names in use. Each call skips to the next namespace, so the cost does not depend on its objects."""
    names: set[str] = set()
    for index in _indexes(context):
        low = b"-"
        while len(names) < MOST and (member := _first(context, index, low)):
            name = member.partition(b"/")[0]
            names.add(name.decode("utf-8", "replace"))
            low = b"[" + name + b"0"  # the character after the slash
    return sorted(name for name in names if name)


def _first(context: ThreadContext, index: bytes, low: bytes) -> bytes:
    try:
        with redis_errors():
            members: Any = context.client.execute_command("ZRANGE", index, low, b"+", "BYLEX", "LIMIT", 0, 1)
    except BusRefused:  # the index of pods, unless our Redis user is an operator
        return b""
    return bytes(members[0]) if members else b""
