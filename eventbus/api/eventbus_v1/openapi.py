"""OpenAPI of `/eventbus/v1/`: a separate document."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from eventbus.api.eventbus_v1.cloud_events import BATCH, STRUCTURED
from eventbus.api.eventbus_v1.intake import Refused
from eventbus.api.eventbus_v1.search import FACETS
from eventbus.api.eventbus_v1.why import VerdictsRequest
from eventbus.broker.frames import FRAMES_TYPE
from eventbus.broker.health.export_status import SinkStatus
from eventbus.broker.health.status import BusStatus, SourceCounts
from eventbus.model.event import ObjectReference
from eventbus.store.story.story import Link
from eventbus.store.story.verdict import Rhythm, Verdict

#: Under which it is found in /openapi/v3.
PATH: Final = "eventbus/v1"

_REF: Final = "#/components/schemas/{name}"
_JSON: Final = "application/json"
_TEXT: Final = {"type": "string"}
_NUMBER: Final = {"type": "integer"}
_ANY: Final = {"type": "object"}
#: core/v1's stands in the document of api/v1.
_EVENT: Final = {"type": "object", "description": "a core/v1 Event", "required": ["involvedObject"]}


class Recorded(msgspec.Struct, frozen=True):
    """The response to events: the number accepted, and the refused events."""

    accepted: int
    refused: list[Refused]


class Bus(msgspec.Struct, frozen=True, rename="camel"):
    """The facts about the bus that a recorder must know."""

    id: str
    partitions: int
    event_ttl_s: int
    codecs: tuple[int, ...]


class Last(msgspec.Struct, frozen=True):
    """The last sequence number of each producer that was asked for; 0: unknown."""

    last: list[int | None]


class Place(msgspec.Struct, frozen=True):
    """The place where a stream begins; opaque."""

    position: str


class Buried(msgspec.Struct, frozen=True):
    """One buried entry in a list; *size* in bytes."""

    id: str
    time: str
    group: str
    cause: str
    deaths: int
    why: str
    size: int
    events: list[dict[str, Any]]


class Dead(Buried, frozen=True):
    """One buried entry, whole; *bytes* in hex."""

    bytes: str


class DeadList(msgspec.Struct, frozen=True):
    """Some of them, oldest first."""

    items: list[Buried]
    more: bool


class Done(msgspec.Struct, frozen=True):
    """The fate of a buried entry."""

    id: str
    done: str


class Sinks(msgspec.Struct, frozen=True):
    """Every external sink that ever had a worker."""

    items: list[SinkStatus]


class Sources(msgspec.Struct, frozen=True):
    """Every source that has a name."""

    items: list[SourceCounts]


class Found(msgspec.Struct, frozen=True, rename="camel"):
    """The events found, the one last seen first."""

    resource_version: str
    begins: str
    examined: int
    more: bool
    items: list[dict[str, Any]]


class Near(msgspec.Struct, frozen=True):
    """An event about something else, and its link to the object; *also*: objects that were started together."""

    link: Link
    event: dict[str, Any]
    also: list[ObjectReference]


class Why(msgspec.Struct, frozen=True, rename="camel"):
    """One object's story."""

    object: ObjectReference
    stored: dict[str, Any] | None
    owners: list[ObjectReference]
    owned: list[ObjectReference]
    hosts: list[str]
    since: str | None
    until: str | None
    begins: str | None
    verdicts: list[Verdict]
    events: list[dict[str, Any]]
    of_owned: list[dict[str, Any]]
    around: list[Near]
    rhythms: list[Rhythm]
    resource_version: str


class Verdicts(msgspec.Struct, frozen=True):
    """Of each object that has Warnings."""

    items: list[Verdict]


class Rights(msgspec.Struct, frozen=True, rename="camel"):
    """The parts of the page that its user may use."""

    replay: bool
    discard: bool
    see_health: bool


class SessionOf(msgspec.Struct, frozen=True, rename="camel"):
    """The page's user; *namespaces*: where events may be listed, null: everywhere."""

    user: str
    signed_in: bool
    namespaces: list[str] | None
    may: Rights
    event_ttl_s: int
    occurrences_s: int
    build: str


class Histogram(msgspec.Struct, frozen=True, rename="camel"):
    """Counts a bucket; a row has `time`, the words of *by*, and `count`."""

    begins: str
    step_s: int
    by: list[str]
    rows: list[dict[str, Any]]


def own_document() -> dict[str, Any]:
    """Make the document of all paths under /eventbus/v1/. The schemas of OpenAPI 3.1 are JSON Schema."""
    shapes = [Recorded, Bus, Last, Place, BusStatus, Dead, DeadList, Done, Sinks, Sources, Histogram]
    shapes += [Found, Why, VerdictsRequest, Verdicts, SessionOf]
    _, schemas = msgspec.json.schema_components(shapes, ref_template=_REF)
    return {
        "openapi": "3.1.0",
        "info": {"title": "eventbus", "version": "v1"},
        "paths": {f"/{PATH}/{path}": operations for path, operations in _paths().items()},
        "components": {"schemas": schemas},
    }


def _paths() -> dict[str, dict[str, Any]]:
    namespace, since = _query("namespace"), _query("since", "RFC 3339, or how long ago: 15m")
    several = {"oneOf": [_EVENT, {"type": "array", "items": _EVENT}]}
    frames = {"type": "string", "format": "binary"}
    record: dict[str, Any] = {_JSON: several, "application/x-ndjson": _TEXT, FRAMES_TYPE: frames}
    clouds: dict[str, Any] = {STRUCTURED: _ANY, BATCH: {"type": "array"}}
    key = {"name": "Idempotency-Key", "in": "header", "schema": _TEXT}
    asked = {"type": "object", "properties": {"producers": {"type": "array"}}, "required": ["producers"]}
    entry = [{"name": name, "in": "path", "required": True, "schema": _TEXT} for name in ("partition", "entry")]
    listing = [_query("group"), _query("cause"), _query("limit", schema=_NUMBER)]
    buckets = [since, _query("until"), _query("by"), _query("step", schema=_NUMBER), *map(_query, FACETS)]
    search = [
        *(namespace, since, _query("until"), _query("q", "words, each in any field"), _query("limit", schema=_NUMBER)),
        *(_query("labelSelector"), _query("fieldSelector")),
    ]
    about = [
        _query("object", "shop/Order/7, instead of kind and name"),
        *(_query("kind"), namespace, _query("name")),
        _query("before", "how long before its first Warning: 10m"),
        _query("system", "true: with eventbus's own workers"),
    ]
    token = {"type": "object", "properties": {"token": _TEXT}, "required": ["token"]}
    return {
        "events": {"get": _operation("Stored events, the one last seen first.", Found, search)},
        "why": {"get": _operation("One object's story, and events around it.", Why, about)},
        "verdicts": {
            "post": _operation("Does it still?", Verdicts, (), {_JSON: {"$ref": _REF.format(name="VerdictsRequest")}})
        },
        "session": {
            "get": _operation("The user of the page.", SessionOf),
            "post": _operation("Sign in by a token, for a cookie.", SessionOf, (), {_JSON: token}),
            "delete": {"summary": "Sign out.", "responses": {"204": {"description": "the cookie is taken back"}}},
        },
        "bus": {"get": _operation("The facts that a recorder needs.", Bus)},
        "record": {"post": _operation("Record events.", Recorded, [key], record)},
        "producers": {"post": _operation("The last numbers of producers.", Last, (), {_JSON: asked})},
        "cloudevents": {"post": _operation("Record CloudEvents.", Recorded, (), clouds)},
        "stream": {"get": _lines([since, _query("position"), namespace])},
        "stream/position": {"get": _operation("Where a later stream begins.", Place, [since, namespace])},
        "status": {"get": _operation("Groups, workers, partitions, counters.", BusStatus)},
        "suppressed": {"get": _operation("Suppressed events, by source.", Sources)},
        "sinks": {"get": _operation("External sinks.", Sinks)},
        "histogram": {"get": _operation("How often, by time and facet.", Histogram, buckets)},
        "dead": {"get": _operation("The dead letter.", DeadList, listing)},
        "dead/{partition}/{entry}": {
            "parameters": entry,
            "get": _operation("One buried entry.", Dead),
            "delete": _operation("Let it go.", Done),
        },
        "dead/{partition}/{entry}/replay": {
            "parameters": entry,
            "post": _operation("Give it back to its group.", Done),
        },
        "dead/{partition}/{entry}/discard": {"parameters": entry, "post": _operation("Let it go.", Done)},
    }


def _operation(summary: str, shape: type, parameters: Any = (), bodies: dict[str, Any] | None = None) -> dict[str, Any]:
    schema = {"$ref": _REF.format(name=shape.__name__)}
    found: dict[str, Any] = {
        "summary": summary,
        "parameters": list(parameters),
        "responses": {
            "200": {"description": "OK", "content": {_JSON: {"schema": schema}}},
            "default": {"description": "a Status"},
        },
    }
    if bodies:
        content = {media_type: {"schema": body} for media_type, body in bodies.items()}
        found["requestBody"] = {"required": True, "content": content}
    return found


def _lines(parameters: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "summary": "Raw events as they are recorded, a JSON line each; does not end.",
        "parameters": parameters,
        "responses": {
            "200": {"description": "lines", "content": {"application/x-ndjson": {"schema": _TEXT}}},
            "default": {"description": "a Status"},
        },
    }


def _query(name: str, description: str = "", schema: dict[str, Any] = _TEXT) -> dict[str, Any]:
    found: dict[str, Any] = {"name": name, "in": "query", "schema": schema}
    return found | {"description": description} if description else found
