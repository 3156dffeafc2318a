"""Reads the bodies of requests, whole and bounded: JSON, YAML, and the protobuf that some clients send."""

from __future__ import annotations

import asyncio
import json
import re
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from typing import Any, Final, TypeVar

import msgspec
from aiohttp import web

from eventbus.api import status
from eventbus.api.kube.negotiation import JSON, YAML
from eventbus.model.decodable import decodable
from eventbus.model.encoding.json_read import plain_loader
from eventbus.store.storage import MAX_BYTES

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
#: Bytes of YAML, for which PyYAML takes a second; what is JSON in a YAML body may be larger.
MAX_YAML: Final = 256 * 1024
#: Double keys that are reported of one body, as by the API server, and characters of each key in their paths.
MOST_DOUBLES: Final = 100
_SHOWN: Final = 256

_TOKEN: Final = r"[!#$%&'*+.^_`|~0-9A-Za-z-]++"
_MEDIA_TYPE: Final = re.compile(rf'\s*+({_TOKEN}/{_TOKEN})\s*+(?:;\s*+{_TOKEN}=(?:{_TOKEN}|"[^"]*+")\s*+)*+;?\s*+')

_decode: Final = msgspec.json.Decoder().decode


async def read_body(request: web.Request, *, most: int = MAX_BODY, within_s: float = BODY_S) -> bytes:
    """Read all of it, and hold no more than *most* bytes.

    Raises: Refusal: 400, it is not encoded as it says; 413, too large; 408, not there within *within_s* seconds.
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
        raise status.Refusal(408, "Timeout", f"the body has not arrived within {within_s:g} s", details={}) from None
    raise status.too_large(most)


def decode_as(shape: type[T], data: bytes, wanted: str) -> T:
    """Read JSON of one *shape*. *wanted*: what it should be, for the error. Raises: Refusal: 400."""
    try:
        return msgspec.json.decode(data, type=decodable(shape))
    except (ValueError, RecursionError) as error:
        raise status.bad_request(f"{wanted}: {error}") from None


class Body(msgspec.Struct, frozen=True):
    """The bytes of a body and their media type."""

    data: bytes
    media_type: str

    def read(self, what: str) -> Any:
        """The plain value. *what*: as `Event`, for the error. Raises: Refusal: 400."""
        if self.media_type == PROTOBUF:
            from eventbus.api.kube.protobuf import decode_object

            return decode_object(self.data)
        try:
            return self.value()
        except ValueError as error:
            shown = self.data[:64].decode("utf-8", "replace") or "<empty>"
            problem = f"couldn't get version/kind; json parse error: {error} ({shown})"
            raise status.bad_request(
                f"the object provided is unrecognized (must be of type {what}): {problem}"
            ) from None

    def value(self) -> Any:
        """Return the plain value of JSON or YAML. Raises: ValueError: the body is invalid."""
        if self.media_type in (YAML, APPLY_PATCH) and not self.data.lstrip().startswith(b"{"):
            return _load_yaml(self.data)
        try:
            return _decode(self.data)
        except RecursionError:
            raise ValueError("nested too deeply") from None

    def doubles(self) -> list[str]:
        """The paths of keys that an object of this JSON has twice, `MOST_DOUBLES` at the most.

        Raises: Refusal: 400: it is nested too deeply.
        """
        if self.media_type != JSON:
            return []
        try:
            return list(islice(_doubles(json.loads(self.data, object_pairs_hook=_Object)), MOST_DOUBLES))
        except RecursionError:  # later than where `value` has read it
            raise status.bad_request("the body is nested too deeply") from None


class _Object(dict[str, Any]):
    """An object of JSON, and the keys that it has *twice*."""

    def __init__(self, pairs: list[tuple[str, Any]]) -> None:
        super().__init__(pairs)
        counted = Counter(key for key, _ in pairs) if len(self) < len(pairs) else {}
        self.twice = [key for key, times in counted.items() if times > 1]


def _doubles(value: Any, path: str = "") -> Iterator[str]:
    if isinstance(value, _Object):
        below = f"{path}." if path else ""
        yield from (below + key[:_SHOWN] for key in value.twice)
        for key, inner in value.items():
            yield from _doubles(inner, below + key[:_SHOWN])
    elif isinstance(value, list):
        for place, inner in enumerate(value):
            yield from _doubles(inner, f"{path}[{place}]")


def media_type_of(header: str | None, accepted: tuple[str, ...] = READ) -> str:
    """The media type of a body; without a header JSON. Raises: Refusal: 415."""
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
