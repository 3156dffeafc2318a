"""Negotiates the form of an answer: whole objects, a table, or metadata; as JSON or as YAML."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from functools import lru_cache
from typing import Final

import msgspec

from eventbus.api import status
from eventbus.api.kube.request_info import is_true

JSON: Final = "application/json"
YAML: Final = "application/yaml"
#: Media types that the error 406 lists.
SERVED: Final = (JSON, YAML)
_META: Final = "meta.k8s.io"
_META_VERSIONS: Final = ("v1", "v1beta1")
#: User agents with human readers, so it is pretty-printed.
_READ_BY_PEOPLE: Final = ("curl", "Wget", "Mozilla/5.0")


class Shape(Enum):
    """The form in which objects are shown."""

    WHOLE = ""
    TABLE = "Table"
    METADATA = "PartialObjectMetadata"


class Answer(msgspec.Struct, frozen=True):
    """The form of an answer. *meta_version* is for tables and metadata; *include* is for the rows of a table."""

    shape: Shape = Shape.WHOLE
    meta_version: str = "v1"
    media_type: str = JSON
    pretty: bool = False
    include: str = "Metadata"


class Clause(msgspec.Struct, frozen=True):
    """One part of an Accept header."""

    media_type: str
    parameters: Mapping[str, str]
    quality: float


def negotiate(accept: str, query: Mapping[str, str], user_agent: str, *, watch: bool, many: bool | None) -> Answer:
    """Return the answer for the best clause that can be served. *many*: a list or one object; None: unknown.

    Raises: ApiError: 406: no clause can be served; 400: includeObject is invalid.
    """
    include = query.get("includeObject") or "Metadata"
    asked = query.get("pretty")
    pretty = is_true(asked) if asked is not None else user_agent.startswith(_READ_BY_PEOPLE)
    for clause in clauses(accept or "*/*"):
        found = _served(clause, watch)
        if found is not None:
            media_type, shape, meta_version = found
            if shape is Shape.METADATA and many is not None:
                _check_metadata(clause.parameters["as"], many)
            if shape is Shape.TABLE and include not in ("None", "Metadata", "Object"):
                problem = f"includeObject: Invalid value: \"{include}\": must be 'Metadata', 'Object', 'None', or empty"
                raise status.bad_request(f"Unable to convert to Table as requested: {problem}")
            return Answer(shape, meta_version, media_type, pretty and not watch, include)
    raise status.not_acceptable(SERVED[:1] if watch else SERVED)


def _check_metadata(wanted: str, many: bool) -> None:
    """Raises: ApiError: 406: list metadata are requested for one object, or object metadata for a list."""
    if wanted.endswith("List") is not many:
        is_no = "is a list" if many else "is not a list"
        raise status.ApiError(406, "NotAcceptable", f"you requested {wanted}, but the requested object {is_no}")


def clauses(accept: str) -> Sequence[Clause]:
    """Return the clauses of a header, best quality first. Equal clauses keep their order."""
    return _remembered(accept) if len(accept) <= _LONGEST_REMEMBERED else _parsed(accept)


def _parsed(accept: str) -> Sequence[Clause]:
    found = []
    for part in accept.split(","):
        media_type, *rest = (word.strip() for word in part.split(";"))
        parameters = {key.strip(): value.strip() for key, _, value in (word.partition("=") for word in rest)}
        try:
            quality = float(parameters.pop("q", "1"))
        except ValueError:
            quality = 1.0
        if media_type:  # also with q=0, which the API server does not treat as a refusal
            found.append(Clause(media_type, parameters, quality))
    return sorted(found, key=lambda clause: -clause.quality)


_remembered: Final = lru_cache(maxsize=64)(_parsed)  # a client sends the same header each time
#: Longest header to cache, in characters. The clauses of a 32 KB header take 2 MB.
_LONGEST_REMEMBERED: Final = 1024


def _served(clause: Clause, watch: bool) -> tuple[str, Shape, str] | None:
    media_type = JSON if clause.media_type == "*/*" else clause.media_type
    if media_type not in SERVED or (watch and media_type != JSON):
        return None
    wanted = clause.parameters.get("as", "")
    if not wanted:
        return None if "v" in clause.parameters or "g" in clause.parameters else (media_type, Shape.WHOLE, "v1")
    version = clause.parameters.get("v", "")
    if clause.parameters.get("g") != _META or version not in _META_VERSIONS:
        return None
    match wanted:
        case "Table":
            return media_type, Shape.TABLE, version
        case "PartialObjectMetadata" | "PartialObjectMetadataList":
            return media_type, Shape.METADATA, version
    return None
