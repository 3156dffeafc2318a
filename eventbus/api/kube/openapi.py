"""Makes OpenAPI from the kinds, for `kubectl explain`, `create`, `apply`, and client generators."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any, Final, NamedTuple

import msgspec
from aiohttp import web

from eventbus.api import status
from eventbus.api.kube import openapi_v2
from eventbus.api.kube.bodies import PATCHES, shape_of
from eventbus.api.kube.field_texts import described, field_text
from eventbus.api.kube.negotiation import JSON
from eventbus.api.kube.patches import MERGED
from eventbus.api.kube.resources import Resource, Resources
from eventbus.model.frozen import FrozenDict
from eventbus.model.kinds import Kind

_REF: Final = "#/components/schemas/{name}"
#: Query parameters of writes. kubectl checks fields itself unless `fieldValidation` is announced.
_WRITE_PARAMETERS: Final = ("dryRun", "fieldManager", "fieldValidation")
_LIST_PARAMETERS: Final = (
    ("labelSelector", "string"),
    ("fieldSelector", "string"),
    ("limit", "integer"),
    ("continue", "string"),
    ("resourceVersion", "string"),
    ("resourceVersionMatch", "string"),
    ("timeoutSeconds", "integer"),
    ("watch", "boolean"),
    ("allowWatchBookmarks", "boolean"),
    ("sendInitialEvents", "boolean"),
)


class OpenApi:
    """Answers /openapi/v3, an index and one document for each group and version, and /openapi/v2, one for all.

    *more*: additional documents for v3, by path.
    """

    def __init__(self, *, kinds: Iterable[Kind[Any]], more: Mapping[str, Mapping[str, Any]]) -> None:
        found = _documents(tuple(kinds))
        self._whole, self._whole_packed = found.whole, found.whole_packed
        self._documents = {**found.by_path, **{path: msgspec.json.encode(each) for path, each in more.items()}}
        self._hashes = {path: hashlib.sha256(data).hexdigest().upper() for path, data in self._documents.items()}

    def add_routes(self, router: web.UrlDispatcher) -> None:
        router.add_get("/openapi/v2", self.whole, allow_head=False)
        router.add_get("/openapi/v3", self.index, allow_head=False)
        router.add_get("/openapi/v3/{path:.+}", self.one, allow_head=False)

    async def whole(self, request: web.Request) -> web.Response:
        """Answer OpenAPI v2, as protobuf to clients that prefer it, such as kubectl."""
        if request.headers.get("Accept", "").partition(",")[0].strip() == openapi_v2.MEDIA_TYPE:
            # Go's media type parser refuses the @ in kubectl's Accept header.
            return web.Response(
                body=self._whole_packed, headers={"Content-Type": openapi_v2.MEDIA_TYPE.replace("@", ".")}
            )
        return web.Response(body=self._whole, content_type=JSON)

    async def index(self, _request: web.Request) -> web.Response:
        paths = {
            path: {"serverRelativeURL": f"/openapi/v3/{path}?hash={digest}"} for path, digest in self._hashes.items()
        }
        return web.Response(body=msgspec.json.encode({"paths": paths}), content_type=JSON)

    async def one(self, request: web.Request) -> web.Response:
        """Answer the document of one group and version; 304 if the client has it."""
        path = request.match_info["path"]
        data = self._documents.get(path)
        if data is None:
            raise status.no_such_path()
        etag = f'"{self._hashes[path]}"'
        headers = {"ETag": etag}
        if request.query.get("hash") == self._hashes[path]:
            headers["Cache-Control"] = "public, immutable, max-age=31536000"
        if request.headers.get("If-None-Match") == etag:
            return web.Response(status=304, headers=headers)
        return web.Response(body=data, content_type=JSON, headers=headers)


class _Documents(NamedTuple):
    """The encoded documents of the kinds: those of v3 by path, and the one of v2, also as protobuf."""

    by_path: Mapping[str, bytes]
    whole: bytes
    whole_packed: bytes


@cache
def _documents(kinds: tuple[Kind[Any], ...]) -> _Documents:
    """Make the documents of *kinds*, which takes long, once in a process."""
    resources = Resources(kinds)
    documents: dict[str, Any] = {}
    for group, versions in resources.groups().items():
        for version in versions:
            path = f"apis/{group}/{version}" if group else f"api/{version}"
            documents[path] = document(resources.in_version(group, version), path)
    whole = openapi_v2.swagger(documents.values())
    by_path = {path: msgspec.json.encode(found) for path, found in documents.items()}
    return _Documents(by_path, msgspec.json.encode(whole), openapi_v2.encode(whole))


def document(resources: list[Resource], path: str) -> dict[str, Any]:
    """Make the document of one group and version."""
    schemas: dict[str, Any] = {}
    paths: dict[str, Any] = {}
    for resource in resources:
        name = _schema_name(resource)
        schemas |= _schemas(resource, name)
        paths |= _paths(resource, f"/{path}", _REF.format(name=name))
    return {
        "openapi": "3.0.0",
        "info": {"title": "eventbus", "version": "v1"},
        "paths": paths,
        "components": {"schemas": schemas},
    }


def _schema_name(resource: Resource) -> str:
    group = resource.group or "core"
    return ".".join((*reversed(group.split(".")), resource.version, resource.kind.name))


def _schemas(resource: Resource, name: str) -> dict[str, Any]:
    shape: Any = shape_of(resource.kind)
    made, found = msgspec.json.schema_components([shape], schema_hook=_hook, ref_template=_REF)
    top = made[0].get("$ref", "").rpartition("/")[2]
    schemas = {_own_name(key, top, name): _valid(value, top, name) for key, value in found.items()}
    properties = {"apiVersion": {"type": "string"}, "kind": {"type": "string"}}
    whole = schemas[name]
    whole["properties"] = properties | whole.get("properties", {})
    whole["x-kubernetes-group-version-kind"] = [_gvk(resource)]
    _add_merge_keys(schemas, whole)
    for key in found:
        _add_descriptions(key, schemas[_own_name(key, top, name)])
    return schemas


def _add_descriptions(owner: str, schema: dict[str, Any]) -> None:
    for field, property_schema in schema.get("properties", {}).items():
        if text := field_text(owner, field):
            property_schema["description"] = text


def _add_merge_keys(schemas: dict[str, Any], schema: dict[str, Any], path: str = "") -> None:
    """Add its merge strategy to each list. Without it, `kubectl apply` takes a default in an item for a change."""
    for name, field in schema.get("properties", {}).items():
        below = f"{path}.{name}" if path else name
        if below in MERGED and field.get("type") == "array":
            field["x-kubernetes-patch-strategy"] = "merge"
            if key := MERGED[below]:
                field["x-kubernetes-patch-merge-key"] = key
        inner = field.get("items", field).get("$ref", "").rpartition("/")[2]
        if inner in schemas:
            _add_merge_keys(schemas, schemas[inner], below)


def _own_name(key: str, top: str, name: str) -> str:
    return name if key == top else f"eventbus.{key.lstrip('_')}"


def _hook(wanted: type) -> dict[str, Any]:
    if wanted is FrozenDict:
        return {"type": "object", "additionalProperties": {"type": "string"}}
    raise NotImplementedError(wanted)  # required by msgspec; a Kind refuses such types earlier


def _valid(value: Any, top: str, name: str) -> Any:
    """Convert msgspec's schema for OpenAPI 3.0 and kubectl explain: no null types, no defaults, no titles."""
    if isinstance(value, list):
        return [_valid(inner, top, name) for inner in value]
    if not isinstance(value, dict):
        return value
    if "$ref" in value:
        key = value["$ref"].rpartition("/")[2]
        return {"$ref": _REF.format(name=_own_name(key, top, name))}
    some = [one for one in value.get("anyOf", ()) if one != {"type": "null"}]
    if some:
        rest = {key: inner for key, inner in value.items() if key not in ("anyOf", "default", "title")}
        return (_valid(some[0], top, name) if len(some) == 1 else _either(some)) | rest
    known = {key: _valid(inner, top, name) for key, inner in value.items() if key not in ("default", "title")}
    if isinstance(known.get("properties"), dict):
        known["properties"] = {key: _valid(inner, top, name) for key, inner in value["properties"].items()}
    if isinstance(known.get("description"), str):
        known["description"] = described(known["description"])
    if not known.get("required", True):
        del known["required"]
    return known or {"type": "object"}  # any value; kubectl explain fails on a field without a type


def _either(some: list[Any]) -> dict[str, Any]:
    """Convert a union: number or text is Kubernetes' int-or-string, as for ports; other unions allow any value."""
    if {one.get("type") for one in some} == {"integer", "string"}:
        return {"type": "string", "format": "int-or-string"}
    return {"type": "object"}


def _paths(resource: Resource, path: str, schema: str) -> dict[str, Any]:
    where = f"{path}/namespaces/{{namespace}}" if resource.kind.namespaced else path
    many, one = f"{where}/{resource.plural}", f"{where}/{resource.plural}/{{name}}"
    found = {
        many: {
            **_parameters(resource, named=False),
            "get": _operation(resource, "list", schema, [_parameter(*pair) for pair in _LIST_PARAMETERS]),
            "post": _operation(resource, "post", schema, _writing(), bodies=(JSON, "application/yaml")),
            "delete": _operation(resource, "deletecollection", schema, []),
        },
        one: {
            **_parameters(resource, named=True),
            "get": _operation(resource, "get", schema, []),
            "put": _operation(resource, "put", schema, _writing(), bodies=(JSON, "application/yaml")),
            "patch": _operation(
                resource, "patch", schema, [*_writing(), _parameter("force", "boolean")], bodies=PATCHES
            ),
            "delete": _operation(resource, "delete", schema, [_parameter("dryRun", "string")]),
        },
    }
    if resource.kind.namespaced:
        listing = _operation(resource, "list", schema, [_parameter(*pair) for pair in _LIST_PARAMETERS])
        found[f"{path}/{resource.plural}"] = {"get": listing}
    return found


def _parameters(resource: Resource, *, named: bool) -> dict[str, Any]:
    names = (["namespace"] if resource.kind.namespaced else []) + (["name"] if named else [])
    parameters = [{"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in names]
    return {"parameters": parameters} if parameters else {}


def _operation(
    resource: Resource, action: str, schema: str, parameters: list[dict[str, Any]], bodies: tuple[str, ...] = ()
) -> dict[str, Any]:
    content = {JSON: {"schema": {"$ref": schema}}} if action in ("get", "put", "patch", "post") else {JSON: {}}
    operation: dict[str, Any] = {
        "x-kubernetes-action": action,
        "x-kubernetes-group-version-kind": _gvk(resource),
        "parameters": parameters,
        "responses": {"200": {"description": "OK", "content": content}, "default": {"description": "a Status"}},
    }
    if bodies:
        shown = {"$ref": schema} if action != "patch" else {"type": "object"}
        operation["requestBody"] = {
            "required": True,
            "content": {media_type: {"schema": shown} for media_type in bodies},
        }
    return operation


def _writing() -> list[dict[str, Any]]:
    return [_parameter(name, "string") for name in _WRITE_PARAMETERS]


def _parameter(name: str, sort: str) -> dict[str, Any]:
    return {"name": name, "in": "query", "schema": {"type": sort, "uniqueItems": True}}


def _gvk(resource: Resource) -> dict[str, str]:
    return {"group": resource.group, "version": resource.version, "kind": resource.kind.name}
