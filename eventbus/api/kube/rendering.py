"""Encodes objects, lists and watch frames: whole, as tables, or as metadata."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from eventbus.api.kube.negotiation import YAML, Answer, Shape
from eventbus.api.kube.resources import Resource
from eventbus.api.kube.tables import EncodedItems, Table
from eventbus.api.versions.wire_versions import WireVersions
from eventbus.model.encoding.event_json import metadata_to_json
from eventbus.model.event import ObjectMeta
from eventbus.model.kinds import Kind
from eventbus.model.list_watch import ObjectList, WatchEvent, WatchEventType

_META: Final = "meta.k8s.io"
#: Annotation of the bookmark after the initial events of a watch.
INITIAL_EVENTS_END: Final = "k8s.io/initial-events-end"

_encode: Final = msgspec.json.Encoder().encode


class Renderer(msgspec.Struct, frozen=True):
    """Objects of one resource, in one shape. Thread-safe."""

    resource: Resource
    answer: Answer = Answer()
    versions: WireVersions = WireVersions()

    def one(self, found: Any) -> bytes:
        """Encode one object, for the response of a get or a write."""
        match self.answer.shape:
            case Shape.TABLE:
                return self.bytes_of(
                    self._table.of([found], {"resourceVersion": self.versions.own(found.metadata.resource_version)})
                )
            case Shape.METADATA:
                return self.bytes_of(self._partial(found))
        return self.bytes_of(self._whole(found))

    def many(self, found: ObjectList[Any]) -> bytes:
        """Encode a list. Its items have no kind and apiVersion, as in the API server."""
        metadata: dict[str, Any] = {"resourceVersion": self.versions.of_list(found.resource_version)}
        if found.continue_:
            metadata["continue"] = found.continue_
        if found.remaining:
            metadata["remainingItemCount"] = found.remaining
        match self.answer.shape:
            case Shape.TABLE:
                return self.bytes_of(self._table.of(found.items, metadata))
            case Shape.METADATA:
                return self.bytes_of(
                    {
                        "kind": "PartialObjectMetadataList",
                        "apiVersion": self._meta_version,
                        "metadata": metadata,
                        "items": [self._partial(item) for item in found.items]
                        or None,  # Go encodes an empty list as null
                    }
                )
        kind = self.resource.kind
        head = _encode({"kind": f"{kind.name}List", "apiVersion": kind.api_version, "metadata": metadata})
        items = items_of(kind, found.items, self.versions)
        return self._finished(head[:-1] + b',"items":[' + b",".join(items) + b"]}")

    def frame(self, event: WatchEvent[Any], *, first: bool) -> bytes:
        """Encode a line of a watch. *first*: include the columns of a table."""
        if event.type is WatchEventType.BOOKMARK:
            return self._bookmark(event)
        found: Any = event.object
        version = self.versions.of_frame(event.position, found.metadata.resource_version)
        match self.answer.shape:
            case Shape.TABLE:
                plain = self._table.of([found], {"resourceVersion": version}, columns=first, version=version)
            case Shape.METADATA:
                plain = self._partial(found, version)
            case _:
                plain = self._whole(found, version)
        return _encode({"type": event.type.value, "object": plain}) + b"\n"

    def bytes_of(self, plain: Mapping[str, Any]) -> bytes:
        """Encode in the requested form: JSON on one line, pretty JSON, YAML."""
        return self._finished(_encode(plain))

    def _finished(self, encoded: bytes) -> bytes:
        if self.answer.media_type == YAML:
            from eventbus.util.yaml import dump_yaml

            return dump_yaml(msgspec.json.decode(encoded)).encode()
        return (msgspec.json.format(encoded, indent=2) if self.answer.pretty else encoded) + b"\n"

    @property
    def _meta_version(self) -> str:
        return f"{_META}/{self.answer.meta_version}"

    def _bookmark(self, event: WatchEvent[Any]) -> bytes:
        annotations = {INITIAL_EVENTS_END: "true"} if event.initial_events_end else {}
        metadata = ObjectMeta(resource_version=self.versions.of_list(event.position), annotations=annotations)
        plain: dict[str, Any]
        match self.answer.shape:
            case Shape.TABLE:
                plain = self._table.bookmark(self._metadata_alone(metadata))
            case Shape.METADATA:
                plain = self._metadata_alone(metadata)
            case _:
                plain = _empty(self.resource, metadata)
        return _encode({"type": event.type.value, "object": plain}) + b"\n"

    def _whole(self, found: Any, version: str = "") -> dict[str, Any]:
        return versioned(self.resource.kind.encode(found), self.versions, version)

    def _partial(self, found: Any, version: str = "") -> dict[str, Any]:
        return versioned(self._metadata_alone(found.metadata), self.versions, version)

    def _metadata_alone(self, metadata: ObjectMeta) -> dict[str, Any]:
        return {"kind": "PartialObjectMetadata", "apiVersion": self._meta_version} | _metadata(metadata)

    @property
    def _table(self) -> Table:
        shape = (self.answer.include, self.answer.meta_version)
        return Table(self.resource.kind, self._meta_version, self.versions, self._shown, shape)

    def _shown(self, found: Any, version: str = "") -> dict[str, Any] | None:
        """Return the object in a table row."""
        match self.answer.include:
            case "Object":
                return self._whole(found, version)
            case "Metadata":
                return self._partial(found, version)
        return None


#: Cache of encoded items. Most items of a list were in the list before.
_items: Final[EncodedItems[bytes]] = EncodedItems()


def items_of(kind: Kind[Any], found: Sequence[Any], versions: WireVersions) -> list[bytes]:
    """Encode items of a list."""

    def encode(item: Any) -> bytes:
        plain = versioned(kind.encode(item), versions)
        plain.pop("kind", None)
        plain.pop("apiVersion", None)
        return _encode(plain)

    return _items.of(found, (kind.api_version, versions), encode, keep=versions.partitions == 1)


def versioned(plain: dict[str, Any], versions: WireVersions, version: str = "") -> dict[str, Any]:
    """Set the client's version in *plain*: *version*, or its own, converted."""
    metadata = plain["metadata"]
    if own := metadata.get("resourceVersion"):
        metadata["resourceVersion"] = version or versions.own(own)
    return plain


def _metadata(metadata: ObjectMeta) -> dict[str, Any]:
    return {"metadata": metadata_to_json(metadata)}


def _empty(resource: Resource, metadata: ObjectMeta) -> dict[str, Any]:
    """Make an object with only *metadata* set. Typed clients require the other fields to exist."""
    kind = resource.kind
    try:
        return kind.encode(kind.type(metadata=metadata))
    except TypeError:  # the kind has fields without a default
        return {"kind": kind.name, "apiVersion": kind.api_version} | _metadata(metadata)
