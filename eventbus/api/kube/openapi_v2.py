"""Makes OpenAPI v2 (Swagger) from the kinds, as JSON and as protobuf, the only form that kubectl reads.

kubectl uses it where OpenAPI v3 has no schema: for a file of kind List with all its items, and for an object of a kind
that is not served. Before 1.27 it used only v2.

Source: gnostic `openapiv2/OpenAPIv2.proto`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from eventbus.api.kube.protobuf import varint

MEDIA_TYPE: Final = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"
_V3: Final = "#/components/schemas/"
_V2: Final = "#/definitions/"
_EXTENSION: Final = "x-kubernetes-"


def swagger(documents: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Merge the documents of all groups: every schema, and the PATCH of each path, for its parameters."""
    paths: dict[str, Any] = {}
    definitions: dict[str, Any] = {}
    for document in documents:
        for path, item in document["paths"].items():
            if "patch" in item:
                paths[path] = {"patch": _operation(item["patch"])}
        definitions |= {name: _definition(schema) for name, schema in document["components"]["schemas"].items()}
    info = {"title": "eventbus", "version": "v1"}
    return {"swagger": "2.0", "info": info, "paths": paths, "definitions": definitions}


def _operation(operation: Mapping[str, Any]) -> dict[str, Any]:
    parameters = [
        {"name": parameter["name"], "in": parameter["in"], "type": parameter["schema"]["type"]}
        for parameter in operation["parameters"]
    ]
    extensions = {key: value for key, value in operation.items() if key.startswith(_EXTENSION)}
    return {"parameters": parameters, "responses": {"200": {"description": "OK"}}, **extensions}


def _definition(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_definition(inner) for inner in schema]
    if not isinstance(schema, dict):
        return schema
    if "$ref" in schema:
        return {"$ref": schema["$ref"].replace(_V3, _V2)}
    return {key: _definition(inner) for key, inner in schema.items()}


def encode(document: Mapping[str, Any]) -> bytes:
    """Encode the result of `swagger` as a gnostic Document."""
    paths = b"".join(_part(2, _named(path, _path_item(item))) for path, item in document["paths"].items())
    info = _part(1, document["info"]["title"]) + _part(2, document["info"]["version"])
    return (
        _part(1, document["swagger"]) + _part(2, info) + _part(8, paths) + _part(9, _schemas(document["definitions"]))
    )


def _path_item(item: Mapping[str, Any]) -> bytes:
    operation = item["patch"]
    parameters = b"".join(_part(8, _query_parameter(parameter)) for parameter in operation["parameters"])
    response = _named("200", _part(1, _part(1, operation["responses"]["200"]["description"])))
    return _part(8, parameters + _part(9, _part(1, response)) + _extensions(13, operation))


def _query_parameter(parameter: Mapping[str, Any]) -> bytes:
    packed = _part(2, parameter["in"]) + _part(4, parameter["name"]) + _part(6, parameter["type"])
    return _part(1, _part(2, _part(3, packed)))  # a non-body parameter, in the query


def _schemas(schemas: Mapping[str, Any]) -> bytes:
    return b"".join(_part(1, _named(name, _schema(schema))) for name, schema in schemas.items())


def _schema(schema: Mapping[str, Any]) -> bytes:
    if "$ref" in schema:
        return _part(1, schema["$ref"])
    packed = b"".join(_part(place, schema[key]) for place, key in ((2, "format"), (4, "description")) if key in schema)
    packed += b"".join(_part(19, name) for name in schema.get("required", ()))
    if isinstance(schema.get("additionalProperties"), Mapping):
        packed += _part(21, _part(1, _schema(schema["additionalProperties"])))
    if "type" in schema:
        packed += _part(22, _part(1, schema["type"]))
    if "items" in schema:
        packed += _part(23, _part(1, _schema(schema["items"])))
    if "properties" in schema:
        packed += _part(25, _schemas(schema["properties"]))
    return packed + _extensions(31, schema)


def _extensions(place: int, owner: Mapping[str, Any]) -> bytes:
    """Encode the values, which are YAML; JSON is valid YAML."""
    return b"".join(
        _part(place, _named(key, _part(2, msgspec.json.encode(value))))
        for key, value in owner.items()
        if key.startswith(_EXTENSION)
    )


def _named(name: str, value: bytes) -> bytes:
    return _part(1, name) + _part(2, value)


def _part(place: int, value: str | bytes) -> bytes:
    """Encode a field of wire type 2: its number, the length, the bytes."""
    data = value.encode() if isinstance(value, str) else value
    return varint(place << 3 | 2) + varint(len(data)) + data
