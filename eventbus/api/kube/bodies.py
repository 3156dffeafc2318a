"""Request bodies: read whole and bounded, decoded from JSON, YAML or protobuf, and made into objects."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, Final, TypeVar

import msgspec
from aiohttp import web
from msgspec import inspect

from eventbus.api import status
from eventbus.api.kube.negotiation import JSON, YAML
from eventbus.api.kube.options import WriteOptions
from eventbus.api.kube.request_info import RequestInfo
from eventbus.api.kube.validation import check_base64, invalid
from eventbus.errors import InvalidEvent, InvalidObject
from eventbus.model.decodable import decodable
from eventbus.model.encoding.event_json import EVENTS_V1_SHAPE
from eventbus.model.encoding.json_read import plain_loader
from eventbus.model.kinds import EVENTS_V1, Kind
from eventbus.store.storage import MAX_BYTES, with_metadata

T = TypeVar("T")

#: Seconds that a body may take to arrive.
BODY_S: Final = 30.0
#: Bytes of a body, as the API server has it.
MAX_BODY: Final = 3 * 1024 * 1024
#: Bytes of a patch and of its result: an object has at most half of it. The work of a patch may grow with its square.
MAX_PATCH: Final = 2 * MAX_BYTES

PROTOBUF: Final = "application/vnd.kubernetes.protobuf"
READ: Final = (JSON, YAML, PROTOBUF)
JSON_PATCH: Final = "application/json-patch+json"
MERGE_PATCH: Final = "application/merge-patch+json"
STRATEGIC_PATCH: Final = "application/strategic-merge-patch+json"
APPLY_PATCH: Final = "application/apply-patch+yaml"
PATCHES: Final = (JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH, APPLY_PATCH)
#: Bytes of YAML, for which PyYAML takes a second; JSON in a YAML body may be larger.
MAX_YAML: Final = 256 * 1024

_TOKEN: Final = r"[!#$%&'*+.^_`|~0-9A-Za-z-]++"
_MEDIA_TYPE: Final = re.compile(rf'\s*+({_TOKEN}/{_TOKEN})\s*+(?:;\s*+{_TOKEN}=(?:{_TOKEN}|"[^"]*+")\s*+)*+;?\s*+')

_decode: Final = msgspec.json.Decoder().decode


async def read_body(request: web.Request, *, most: int = MAX_BODY, within_s: float = BODY_S) -> bytes:
    """Read all of it, and hold no more than *most* bytes.

    Raises: ApiError: 400, it is not encoded as it says; 413, too large; 408, not there within *within_s* seconds.
    """
    content = request.content
    try:
        if content.is_eof() and content.total_bytes <= most:  # as that of a small request, most often
            return content.read_nowait()
        async with asyncio.timeout(within_s):
            await content.readexactly(most + 1)
    except asyncio.IncompleteReadError as end:
        return end.partial
    except web.RequestPayloadError as error:
        content.feed_eof()  # or aiohttp would wait for the rest of it
        raise status.bad_request(f"the body cannot be read: {str(error).splitlines()[-1].strip()}") from None
    except TimeoutError:
        raise status.ApiError(408, "Timeout", f"the body has not arrived within {within_s:g} s", details={}) from None
    raise status.too_large(most)


def decode_as(shape: type[T], data: bytes, wanted: str) -> T:
    """Read JSON of one *shape*. *wanted*: its description, for the error. Raises: ApiError: 400."""
    try:
        return msgspec.json.decode(data, type=decodable(shape))
    except (ValueError, RecursionError) as error:
        raise status.bad_request(f"{wanted}: {error}") from None


class Body(msgspec.Struct, frozen=True):
    """The bytes of a body and their media type."""

    data: bytes
    media_type: str

    def read(self, kind: str) -> Any:
        """Return the plain value. *kind*: as `Event`, for the error. Raises: ApiError: 400."""
        if self.media_type == PROTOBUF:
            from eventbus.api.kube.protobuf import decode_object

            return decode_object(self.data)
        try:
            return self.value()
        except ValueError as error:
            shown = self.data[:64].decode("utf-8", "replace") or "<empty>"
            problem = f"couldn't get version/kind; json parse error: {error} ({shown})"
            raise status.bad_request(
                f"the object provided is unrecognized (must be of type {kind}): {problem}"
            ) from None

    def value(self) -> Any:
        """Return the plain value of JSON or YAML. Raises: ValueError: the body is invalid."""
        if self.media_type in (YAML, APPLY_PATCH) and not self.data.lstrip().startswith(b"{"):
            return _load_yaml(self.data)
        try:
            return _decode(self.data)
        except RecursionError:
            raise ValueError("nested too deeply") from None


def media_type_of(header: str | None, accepted: tuple[str, ...] = READ) -> str:
    """The media type of a body; without a header JSON. Raises: ApiError: 415."""
    if not header and JSON in accepted:
        return JSON  # python-kubernetes names none
    if accepted is PATCHES:  # patch types are compared verbatim
        found = (header or "").partition(";")[0].strip()
    else:
        parsed = _MEDIA_TYPE.fullmatch(header or "")
        found = parsed[1].lower() if parsed else ""
    if found not in accepted:
        raise status.unsupported_media_type(accepted)
    return found


def _load_yaml(data: bytes) -> Any:
    import yaml

    if len(data) > MAX_YAML:
        raise status.too_large(MAX_YAML)
    try:
        loader = plain_loader()(data)  # reads the first bytes, which may be no text
        try:
            # Once through JSON, which has neither bytes nor infinities.
            return _decode(msgspec.json.encode(loader.get_data() if loader.check_data() else None))
        finally:
            loader.dispose()
    except (yaml.YAMLError, RecursionError, ValueError, TypeError) as error:
        raise ValueError(f"error converting YAML to JSON: {str(error).splitlines()[0]}") from None


#: Fields of other servers that have no meaning here. They are kept or dropped without a warning.
_IGNORED: Final = frozenset({"kind", "apiVersion", "selfLink"})


def shape_of(kind: Kind[Any]) -> type:
    """Return the type with the fields of the kind's JSON."""
    return EVENTS_V1_SHAPE if kind is EVENTS_V1 else kind.type


def unknown_fields(kind: Kind[Any], plain: Mapping[str, Any]) -> list[str]:
    """Yield the paths of fields that *kind* does not have, such as `spec.bogus`; null fields are skipped."""
    return list(_unknown(plain, _info(shape_of(kind)), ""))


@cache
def _info(shape: type) -> inspect.Type:
    return inspect.type_info(shape)


def _unknown(value: Any, info: inspect.Type, path: str) -> Iterator[str]:
    if isinstance(info, inspect.UnionType):
        members = [member for member in info.types if not isinstance(member, inspect.NoneType)]
        if len(members) == 1:
            yield from _unknown(value, members[0], path)
    elif isinstance(info, inspect.StructType) and isinstance(value, Mapping):
        fields = {field.encode_name: field.type for field in info.fields}
        for key, inner in value.items():
            below = f"{path}.{key}" if path else str(key)
            if key in fields:
                yield from _unknown(inner, fields[key], below)
            elif inner is not None and key not in _IGNORED and not str(key).startswith("$"):
                yield below
    elif isinstance(info, inspect.ListType | inspect.VarTupleType) and isinstance(value, list):
        for number, inner in enumerate(value):
            yield from _unknown(inner, info.item_type, f"{path}[{number}]")


#: Values of fieldValidation that report unknown fields.
_REPORTING: Final = ("Strict", "Warn")


def object_of(info: RequestInfo, body: Body, options: WriteOptions) -> tuple[Any, tuple[str, ...]]:
    """Return the object of a body, in the request's namespace, and warnings. Raises: ApiError: 400."""
    quick = _read_at_once(info, body, options)
    if quick is not None:
        return quick, ()
    plain, warnings = _plain(info, body, options)
    return _typed(info, plain), warnings


def _read_at_once(info: RequestInfo, body: Body, options: WriteOptions) -> Any:
    """Decode valid JSON directly. None: the plain value must be read, for the error message."""
    read = info.resource.kind.from_bytes
    if read is None or body.media_type != JSON or options.validation in _REPORTING:
        return None
    try:
        body.value()  # the decoder would accept invalid JSON in unknown fields
        made = read(body.data)
    except ValueError:  # covers every decoding error
        return None
    if made is None or made.metadata.namespace == info.namespace:
        return made
    return None if made.metadata.namespace else with_metadata(made, namespace=info.namespace)


def _plain(info: RequestInfo, body: Body, options: WriteOptions) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return the plain object of a body, and check its kind, version and namespace. Raises: ApiError: 400."""
    kind = info.resource.kind
    plain = body.read(kind.name)
    plain = {} if plain is None else plain
    if not isinstance(plain, Mapping):
        raise status.bad_request(f"the object provided is unrecognized (must be of type {kind.name})")
    version, name = plain.get("apiVersion") or kind.api_version, plain.get("kind") or kind.name
    if name != kind.name and version == kind.api_version:
        text = f'{name} in version "{kind.api_version.rpartition("/")[2]}" cannot be handled as a {kind.name}'
        raise status.bad_request(text[:400])
    if version != kind.api_version:
        expected = f"the expected API version ({kind.api_version})"
        raise status.bad_request(f"the API version in the data ({str(version)[:80]}) does not match {expected}")
    metadata = plain.get("metadata", {})
    metadata = {} if metadata is None else metadata
    if not isinstance(metadata, Mapping):
        raise status.bad_request(f"{kind.name}: metadata must be an object")
    given = metadata.get("namespace") or info.namespace
    if not kind.namespaced:  # cluster-scoped objects lose their namespace
        metadata, given = {key: value for key, value in metadata.items() if key != "namespace"}, ""
    if given != info.namespace:
        raise status.bad_request(
            "the namespace of the provided object does not match the namespace sent on the request"
        )
    whole = dict(plain) | {"metadata": dict(metadata) | ({"namespace": given} if given else {})}
    return whole, warnings_of(info, plain, options)


def warnings_of(
    info: RequestInfo, plain: Mapping[str, Any], options: WriteOptions, *, patch: bool = False
) -> tuple[str, ...]:
    """Return warnings about unknown fields. Raises: ApiError: they are refused: 400, or 422 for a patch."""
    if options.validation not in _REPORTING:
        return ()
    found = [f'unknown field "{path}"' for path in unknown_fields(info.resource.kind, plain)]
    if found and options.validation == "Strict":
        kind = info.resource.kind
        problem = f"strict decoding error: {', '.join(found)}"
        if patch:
            raise bad_patch(plain, problem)
        version = kind.api_version.rpartition("/")[2]
        raise status.bad_request(f'{kind.name} in version "{version}" cannot be handled as a {kind.name}: {problem}')
    return tuple(found)


def _typed(info: RequestInfo, plain: Mapping[str, Any]) -> Any:
    """Raises: ApiError: 400: a field has the wrong type."""
    kind = info.resource.kind
    try:
        found = kind.decode(plain)
        check_base64(found)
    except (InvalidEvent, InvalidObject) as error:
        version = kind.api_version.rpartition("/")[2]
        message = f'{kind.name} in version "{version}" cannot be handled as a {kind.name}: {error}'
        raise status.bad_request(message) from None
    return found


def bad_patch(value: Any, problem: str) -> status.ApiError:
    """Return 422: the result of the patch *value* is not a valid object."""
    shown = msgspec.json.encode(value)[:200].decode("utf-8", "replace")
    return status.invalid("", "", [invalid("patch", shown, problem)])
