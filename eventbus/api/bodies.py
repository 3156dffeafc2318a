"""Reads the bodies of requests: JSON, YAML, and the protobuf that some clients send and nothing else."""

from __future__ import annotations

import json
from collections.abc import Hashable
from functools import cache
from typing import Any, Final

import msgspec

from eventbus.api import status
from eventbus.api.negotiation import JSON, YAML

PROTOBUF: Final = "application/vnd.kubernetes.protobuf"
READ: Final = (JSON, YAML, PROTOBUF)
JSON_PATCH: Final = "application/json-patch+json"
MERGE_PATCH: Final = "application/merge-patch+json"
STRATEGIC_PATCH: Final = "application/strategic-merge-patch+json"
APPLY_PATCH: Final = "application/apply-patch+yaml"
PATCHES: Final = (JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH, APPLY_PATCH)
#: Bytes of YAML, for which PyYAML takes a second; what is JSON in a YAML body may be larger.
MAX_YAML: Final = 256 * 1024

_decode: Final = msgspec.json.Decoder().decode


class Body(msgspec.Struct, frozen=True):
    """The bytes of a body, and what they are."""

    data: bytes
    media_type: str

    def read(self, what: str) -> Any:
        """The plain value. *what*: as `Event`, for the error. Raises: Refusal: 400."""
        if self.media_type == PROTOBUF:
            from eventbus.api.protobuf import decode_object

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
        """The plain value of JSON or YAML. Raises: ValueError: it is none."""
        if self.media_type in (YAML, APPLY_PATCH) and not self.data.lstrip().startswith(b"{"):
            return _load_yaml(self.data)
        try:
            return _decode(self.data)
        except RecursionError:
            raise ValueError("nested too deeply") from None

    def doubles(self) -> list[str]:
        """Keys that an object of this JSON has twice."""
        found: list[str] = []

        def note(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
            if len(keys := dict(pairs)) < len(pairs):
                seen: set[str] = set()
                found.extend(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
            return keys

        if self.media_type == JSON:
            json.loads(self.data, object_pairs_hook=note)
        return found


def media_type_of(header: str | None, accepted: tuple[str, ...] = READ) -> str:
    """The media type of a body; without a header JSON. Raises: Refusal: 415."""
    if not header and JSON in accepted:
        return JSON  # python-kubernetes names none
    found = (header or "").partition(";")[0].strip().lower()
    found = {"application/x-yaml": YAML, "text/yaml": YAML}.get(found, found)
    if found not in accepted:
        raise status.unsupported_media_type(accepted)
    return found


def _load_yaml(data: bytes) -> Any:
    import yaml

    if len(data) > MAX_YAML:
        raise status.too_large(MAX_YAML)
    try:
        loader = _loader()(data)  # reads the first bytes, which may be no text
        try:
            # Once through JSON, which has neither bytes nor infinities.
            return _decode(msgspec.json.encode(loader.get_single_data()))
        finally:
            loader.dispose()
    except (yaml.YAMLError, RecursionError, ValueError, TypeError) as error:
        raise ValueError(f"error converting YAML to JSON: {str(error).splitlines()[0]}") from None


@cache
def _loader() -> Any:
    """YAML that is JSON: times stay texts, every key is a text, and nothing stands for something else."""
    import yaml

    # Not the one in C: it crashes the process on brackets that are nested deeply.
    class Loader(yaml.SafeLoader):
        def compose_node(self, parent: Any, index: Any) -> Any:
            # A few lines of aliases of aliases are gigabytes of JSON.
            if self.check_event(yaml.AliasEvent):
                raise ValueError("aliases are not read")
            return super().compose_node(parent, index)

        def construct_mapping(self, node: Any, deep: bool = False) -> dict[Hashable, Any]:
            found = super().construct_mapping(node, deep=deep)
            return {key if isinstance(key, str) else json.dumps(key): value for key, value in found.items()}

    Loader.yaml_implicit_resolvers = {
        first: [(tag, pattern) for tag, pattern in found if tag != "tag:yaml.org,2002:timestamp"]
        for first, found in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }
    return Loader


__all__ = [
    "APPLY_PATCH",
    "JSON_PATCH",
    "MERGE_PATCH",
    "PATCHES",
    "PROTOBUF",
    "READ",
    "STRATEGIC_PATCH",
    "Body",
    "media_type_of",
]
