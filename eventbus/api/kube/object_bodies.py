"""Reads the object in the body of a create, update or apply, and reports its unknown fields."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from eventbus.api import status
from eventbus.api.kube.bodies import Body
from eventbus.api.kube.config_rules import check_base64
from eventbus.api.kube.metadata_rules import invalid
from eventbus.api.kube.negotiation import JSON
from eventbus.api.kube.options import WriteOptions
from eventbus.api.kube.request_info import Asked
from eventbus.api.kube.unknown_fields import unknown_fields
from eventbus.errors import InvalidEvent, InvalidObject
from eventbus.store.storage import with_metadata

#: Values of fieldValidation that report unknown fields.
_TELLING: Final = ("Strict", "Warn")


def object_of(asked: Asked, body: Body, options: WriteOptions) -> tuple[Any, tuple[str, ...]]:
    """Return the object of a body, in the request's namespace, and warnings. Raises: Refusal: 400."""
    quick = _read_at_once(asked, body, options)
    if quick is not None:
        return quick, ()
    plain, warnings = _plain(asked, body, options)
    return _typed(asked, plain), warnings


def _read_at_once(asked: Asked, body: Body, options: WriteOptions) -> Any:
    """Decode valid JSON directly. None: the plain value must be read, for the error message."""
    read = asked.resource.kind.from_bytes
    if read is None or body.media_type != JSON or options.validation in _TELLING:
        return None
    try:
        body.value()  # the decoder would accept invalid JSON in unknown fields
        made = read(body.data)
    except ValueError:  # covers every decoding error
        return None
    if made is None or made.metadata.namespace == asked.namespace:
        return made
    return None if made.metadata.namespace else with_metadata(made, namespace=asked.namespace)


def _plain(asked: Asked, body: Body, options: WriteOptions) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return the plain object of a body, and check its kind, version and namespace. Raises: Refusal: 400."""
    kind = asked.resource.kind
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
    given = metadata.get("namespace") or asked.namespace
    if not kind.namespaced:  # cluster-scoped objects lose their namespace
        metadata, given = {key: value for key, value in metadata.items() if key != "namespace"}, ""
    if given != asked.namespace:
        raise status.bad_request(
            "the namespace of the provided object does not match the namespace sent on the request"
        )
    whole = dict(plain) | {"metadata": dict(metadata) | ({"namespace": given} if given else {})}
    return whole, warnings_of(asked, plain, tuple(body.doubles()) if options.validation in _TELLING else (), options)


def warnings_of(
    asked: Asked, plain: Mapping[str, Any], doubles: tuple[str, ...], options: WriteOptions, *, patch: bool = False
) -> tuple[str, ...]:
    """Return warnings about unknown fields. Raises: Refusal: they are refused: 400, or 422 for a patch."""
    if options.validation not in _TELLING:
        return ()
    found = [f'unknown field "{path}"' for path in unknown_fields(asked.resource.kind, plain)]
    found += [f'duplicate field "{key}"' for key in doubles]
    if found and options.validation == "Strict":
        kind = asked.resource.kind
        problem = f"strict decoding error: {', '.join(found)}"
        if patch:
            raise bad_patch(plain, problem)
        version = kind.api_version.rpartition("/")[2]
        raise status.bad_request(f'{kind.name} in version "{version}" cannot be handled as a {kind.name}: {problem}')
    return tuple(found)


def _typed(asked: Asked, plain: Mapping[str, Any]) -> Any:
    """Raises: Refusal: 400: a field has the wrong type."""
    kind = asked.resource.kind
    try:
        found = kind.decode(plain)
        check_base64(found)
    except (InvalidEvent, InvalidObject) as error:
        version = kind.api_version.rpartition("/")[2]
        message = f'{kind.name} in version "{version}" cannot be handled as a {kind.name}: {error}'
        raise status.bad_request(message) from None
    return found


def bad_patch(value: Any, problem: str) -> status.Refusal:
    """Return 422: the result of the patch *value* is not a valid object."""
    shown = msgspec.json.encode(value)[:200].decode("utf-8", "replace")
    return status.invalid("", "", [invalid("patch", shown, problem)])
