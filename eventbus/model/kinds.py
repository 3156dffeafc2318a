"""The kinds of stored objects: the built-in ones, and those that a program registers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Generic, TypeVar, cast

import msgspec

from eventbus.model.encoding.event_json import (
    EVENTS_VERSION,
    from_core,
    from_events_v1,
    read_core,
    read_events_v1,
    to_core,
    to_events_v1,
)
from eventbus.model.encoding.object_json import (
    lease_to_json,
    node_to_json,
    pod_to_json,
    struct_from_json,
    struct_to_json,
)
from eventbus.model.event import Event
from eventbus.model.frozen import mutable_parts
from eventbus.model.list_watch import HasMetadata
from eventbus.model.names import is_dns_label
from eventbus.model.objects.cluster import Lease, Node
from eventbus.model.objects.config import ConfigMap, Secret
from eventbus.model.objects.pod import Pod
from eventbus.model.objects.silence import Acknowledgement, Silence
from eventbus.model.selectors import EVENT_FIELDS, EVENTS_V1_FIELDS, OBJECT_FIELDS
from eventbus.model.validation import FieldProblem

T = TypeVar("T", bound=HasMetadata)


class Kind(msgspec.Struct, Generic[T], frozen=True, kw_only=True):
    """The description of a kind that the store needs.

    Its values are `msgspec.Struct`s, frozen all the way down (see `model.frozen`), with `metadata: ObjectMeta` and
    the class attributes `kind` and `api_version`, so that every object handed out carries them.

    Args:   name: as `Node`.  plural: as `nodes`, a DNS label.  type: of its values.
            has_status: `update` leaves the field *status* alone, and `update_status` everything else.
            short_names: abbreviations that users may type instead.
            categories: names for groups of kinds, such as `all` for `kubectl get all`.
            fields: the selectable fields in addition to metadata.name and, if namespaced, metadata.namespace.
            to_json: returns an object's JSON as a plain dict; by default as msgspec writes it.
            from_json: reads that dict; by default `struct_from_json`.
            from_bytes: a faster reader of JSON bytes; it returns None if *from_json* must report the error.
            version: the apiVersion, of a second shape of the type's objects; by default the type's own.
            has_generation: the store counts the changes of *spec* in metadata.generation; by default if there is one.
            changes_bytes: how far its changes reach back, bytes, if that is less than the bus's option of the name.
            named_by_uid: an object without a name gets its uid as name.
            problems: returns the invalid fields of an object, which is then not stored.
    Raises: TypeError: *type* is none of these.  ValueError: *plural* is no DNS label.
    """

    name: str
    plural: str
    namespaced: bool
    type: type[T]
    has_status: bool = False
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    fields: Mapping[str, Callable[[T], str]] = msgspec.field(default_factory=dict)
    to_json: Callable[[T], dict[str, Any]] | None = None
    from_json: Callable[[Mapping[str, Any]], T] | None = None
    from_bytes: Callable[[bytes], T | None] | None = None
    version: str = ""
    has_generation: bool | None = None
    changes_bytes: int | None = None
    named_by_uid: bool = False
    problems: Callable[[T], Iterable[FieldProblem]] | None = None

    def __post_init__(self) -> None:
        if not is_dns_label(self.plural):  # it is part of the names of keys
            raise ValueError(f"{self.name}: its plural {self.plural!r} must be a DNS label, like nodes")
        names = [name for name in OBJECT_FIELDS if self.namespaced or name != "metadata.namespace"]
        msgspec.structs.force_setattr(self, "fields", {name: OBJECT_FIELDS[name] for name in names} | dict(self.fields))
        shape: Any = self.type
        if not (isinstance(shape, type) and issubclass(shape, msgspec.Struct) and shape.__struct_config__.frozen):
            raise TypeError(f"{self.name}: its type must be a frozen msgspec.Struct")
        missing = {"metadata", *(("status",) if self.has_status else ())} - set(shape.__struct_fields__)
        if missing or not hasattr(shape, "kind") or not hasattr(shape, "api_version"):
            raise TypeError(f"{self.name}: its type needs the fields metadata (and status), and kind and api_version")
        if not _is_ours(shape) and (mutable := ", ".join(mutable_parts(shape))):
            problem = "its type must be frozen all the way down, of tuples and FrozenDicts or as a FrozenStruct"
            raise TypeError(f"{self.name}: {problem}: {mutable}")
        if self.has_generation is None:
            msgspec.structs.force_setattr(self, "has_generation", "spec" in shape.__struct_fields__)
        type_kind = getattr(shape, "kind", "")
        if type_kind != self.name and isinstance(type_kind, str):
            raise TypeError(f"{self.name}: its type says that its kind is {type_kind}")

    def __hash__(self) -> int:
        return hash((self.name, self.plural))

    @property
    def api_version(self) -> str:
        """Return the apiVersion, as `v1` or `coordination.k8s.io/v1`."""
        if self.version:
            return self.version
        shape: Any = self.type
        return shape.api_version if isinstance(shape.api_version, str) else "v1"

    @property
    def resource(self) -> str:
        """Return the name that errors use: `nodes`, `leases.coordination.k8s.io`."""
        group, slash, _ = self.api_version.rpartition("/")
        return f"{self.plural}.{group}" if slash else self.plural

    def encode(self, obj: T) -> dict[str, Any]:
        """Return the plain dict that is the object's JSON, with kind and apiVersion."""
        if self.to_json is not None:
            return self.to_json(obj)
        struct = cast("msgspec.Struct", obj)
        return struct_to_json(struct, kind=self.name, api_version=self.api_version)

    def decode(self, mapping: Mapping[str, Any]) -> T:
        """Read JSON that is already a mapping. Raises: InvalidObject, of an event InvalidEvent."""
        if self.from_json is not None:
            return self.from_json(mapping)
        return struct_from_json(mapping, self.type, kind=self.name, api_version=self.api_version)


def _is_ours(shape: type) -> bool:
    """Return True for types of this package. A test checks that they are frozen: a check here doubles import time."""
    return shape.__module__.startswith(f"{__package__}.")


EVENT: Kind[Event] = Kind(
    name="Event",
    plural="events",
    namespaced=True,
    type=Event,
    short_names=("ev",),
    fields=EVENT_FIELDS,
    to_json=to_core,
    from_json=from_core,
    from_bytes=read_core,
)
#: The same events in the shape, and by the fields, of events.k8s.io/v1.
EVENTS_V1: Kind[Event] = msgspec.structs.replace(
    EVENT,
    fields=EVENTS_V1_FIELDS,
    to_json=to_events_v1,
    from_json=from_events_v1,
    from_bytes=read_events_v1,
    version=EVENTS_VERSION,
)
# Nodes and Leases have no generation, as in the API server.
NODE: Kind[Node] = Kind(
    name="Node",
    plural="nodes",
    namespaced=False,
    type=Node,
    has_status=True,
    short_names=("no",),
    fields={"spec.unschedulable": lambda node: "true" if node.spec.unschedulable else "false"},
    to_json=node_to_json,
    has_generation=False,
)
LEASE: Kind[Lease] = Kind(
    name="Lease",
    plural="leases",
    namespaced=True,
    type=Lease,
    to_json=lease_to_json,
    has_generation=False,
    # A renewal is news for seconds: some minutes of a thousand nodes that renew every 10 s.
    changes_bytes=8 * 1024 * 1024,
)
POD: Kind[Pod] = Kind(
    name="Pod",
    plural="pods",
    namespaced=True,
    type=Pod,
    has_status=True,
    short_names=("po",),
    categories=("all",),
    fields={
        "spec.nodeName": lambda pod: pod.spec.node_name,
        "spec.restartPolicy": lambda pod: pod.spec.restart_policy,
        "spec.schedulerName": lambda pod: pod.spec.scheduler_name or "default-scheduler",
        "spec.serviceAccountName": lambda pod: pod.spec.service_account_name,
        "spec.hostNetwork": lambda pod: "true" if pod.spec.host_network else "false",
        "status.phase": lambda pod: pod.status.phase,
        "status.podIP": lambda pod: pod.status.pod_ip,
        "status.nominatedNodeName": lambda pod: pod.status.nominated_node_name,
    },
    to_json=pod_to_json,
)
CONFIGMAP: Kind[ConfigMap] = Kind(
    name="ConfigMap", plural="configmaps", namespaced=True, type=ConfigMap, short_names=("cm",)
)
SECRET: Kind[Secret] = Kind(
    name="Secret", plural="secrets", namespaced=True, type=Secret, fields={"type": lambda secret: secret.type}
)


def _silence_problems(silence: Silence) -> Iterable[FieldProblem]:
    from eventbus.model.silence_rules import silence_problems

    return silence_problems(silence)


def _acknowledgement_problems(acknowledgement: Acknowledgement) -> Iterable[FieldProblem]:
    from eventbus.model.silence_rules import acknowledgement_problems

    return acknowledgement_problems(acknowledgement)


SILENCE: Kind[Silence] = Kind(
    name="Silence", plural="silences", namespaced=False, type=Silence, named_by_uid=True, problems=_silence_problems
)
ACKNOWLEDGEMENT: Kind[Acknowledgement] = Kind(
    name="Acknowledgement",
    plural="acknowledgements",
    namespaced=False,
    type=Acknowledgement,
    short_names=("ack",),
    named_by_uid=True,
    problems=_acknowledgement_problems,
)

_BUILT_IN = (EVENT, NODE, LEASE, POD, CONFIGMAP, SECRET, SILENCE, ACKNOWLEDGEMENT)


class Kinds:
    """The kinds that a process knows. Changes of other kinds are skipped."""

    def __init__(self, kinds: Iterable[Kind[Any]] = _BUILT_IN) -> None:
        self._by_plural = {kind.plural: kind for kind in kinds}

    def __iter__(self) -> Iterator[Kind[Any]]:
        return iter(tuple(self._by_plural.values()))

    def register(self, kind: Kind[T]) -> Kind[T]:
        """Add *kind*. Returns: it. Raises: ValueError: another kind has this plural."""
        registered = self._by_plural.setdefault(kind.plural, kind)
        if registered is not kind:
            raise ValueError(f"{kind.plural} are of the kind {registered.name} already")
        return kind

    def get(self, plural: str) -> Kind[Any] | None:
        """Return the kind of that plural."""
        return self._by_plural.get(plural)

    def named(self, word: str) -> Kind[Any] | None:
        """Return the kind that a person means by *word*: name, plural or short name, in any case."""
        word = word.lower()
        return next((kind for kind in self if word in (kind.name.lower(), kind.plural, *kind.short_names)), None)


#: The kinds of this process; a user's are registered here.
KINDS = Kinds()
