"""OpenAPI of `/eventbus/v1/`, a separate document, from the table of routes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from eventbus.api.eventbus_v1.routes import ROOT, Route

#: Under which it is found in /openapi/v3.
PATH: Final = ROOT.removeprefix("/")

_REF: Final = "#/components/schemas/{name}"
_PLACEHOLDER: Final = re.compile(r"{(\w+)}")


def own_document(routes: Sequence[Route]) -> dict[str, Any]:
    """Make the document of all *routes*. The schemas of OpenAPI 3.1 are JSON Schema."""
    types = [shape for route in routes for shape in (route.reply, *route.body.values()) if shape is not None]
    found, components = msgspec.json.schema_components(types, ref_template=_REF)
    schemas = iter(found)
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        reply = None if route.reply is None else next(schemas)
        operation: dict[str, Any] = {"summary": route.summary, "parameters": _parameters(route)}
        if route.body:
            content = {media_type: {"schema": next(schemas)} for media_type in route.body}
            operation["requestBody"] = {"required": True, "content": content}
        answer: dict[str, Any] = {"description": "done"}
        if reply is not None:
            answer["content"] = {route.reply_type: {"schema": reply}}
        operation["responses"] = {"204" if reply is None else "200": answer, "default": {"description": "a Status"}}
        paths.setdefault(f"{ROOT}/{route.path}", {})[route.method.lower()] = operation
    return {
        "openapi": "3.1.0",
        "info": {"title": "eventbus", "version": "v1"},
        "paths": paths,
        "components": {"schemas": components},
    }


def _parameters(route: Route) -> list[dict[str, Any]]:
    text = {"type": "string"}
    found: list[dict[str, Any]] = [
        {"name": name, "in": "path", "required": True, "schema": text} for name in _PLACEHOLDER.findall(route.path)
    ]
    if route.query is not None:
        _, shapes = msgspec.json.schema_components([route.query])
        for name, schema in shapes[route.query.__name__]["properties"].items():
            found.append({"name": name, "in": "query", "schema": schema})
    return found + [{"name": name, "in": "header", "schema": text} for name in route.headers]
