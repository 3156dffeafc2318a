"""Checks config maps and secrets by the rules of the API server.

Source: kubernetes `pkg/apis/core/validation/validation.go`.
"""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Iterator, Mapping
from typing import Final

import msgspec

from eventbus.api.kube.metadata_rules import invalid
from eventbus.api.status import Cause
from eventbus.errors import InvalidObject
from eventbus.model.names import MAX_SUBDOMAIN
from eventbus.model.objects.config import ConfigMap, Secret

_KEY: Final = re.compile(r"[-._a-zA-Z0-9]+")
_KEY_RULE: Final = (
    "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  or"
    " 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')"
)
#: The keys that a secret of a type has to have.
_WANTED: Final[Mapping[str, tuple[str, ...]]] = {
    "kubernetes.io/tls": ("tls.crt", "tls.key"),
    "kubernetes.io/dockercfg": (".dockercfg",),
    "kubernetes.io/dockerconfigjson": (".dockerconfigjson",),
}
_JSON: Final = frozenset({".dockercfg", ".dockerconfigjson"})
#: Line ends are allowed in base64.
_LINE_ENDS: Final = str.maketrans("", "", "\r\n")
_IMMUTABLE: Final = "Forbidden: field is immutable when `immutable` is set"


def check_base64(found: object) -> None:
    """Check that the base64 fields of a config map or secret are valid. Raises: InvalidObject."""
    if isinstance(found, Secret):
        field, data = "data", found.data
    elif isinstance(found, ConfigMap):
        field, data = "binaryData", found.binary_data
    else:
        return
    for key, value in data.items():
        try:
            b64decode(value.translate(_LINE_ENDS), validate=True)
        except ValueError:
            raise InvalidObject(f"{field}[{key}]: illegal base64 data") from None


def config_map_causes(new: ConfigMap, former: ConfigMap | None) -> Iterator[Cause]:
    """List the validation errors of a config map and of its change."""
    if former is not None:
        yield from _changed(new, former, ("data", "binaryData"))
    for key in sorted(new.data):
        yield from _key_causes("data", key)
        if key in new.binary_data:
            yield invalid(f"data[{key}]", key, "duplicate of key present in binaryData")
    for key in sorted(new.binary_data):
        yield from _key_causes("binaryData", key)


def secret_causes(new: Secret, former: Secret | None) -> Iterator[Cause]:
    """List the validation errors of a secret and of its change."""
    if former is not None:
        if new.type != former.type:
            yield invalid("type", new.type, "field is immutable")
        yield from _changed(new, former, ("data",))
    for key in sorted(new.data):
        yield from _key_causes("data", key)
    for key in _WANTED.get(new.type, ()):
        if key not in new.data:
            yield Cause("FieldValueRequired", "Required value", f"data[{key}]")
        elif key in _JSON and not _is_json_object(new.data[key]):
            yield invalid(f"data[{key}]", "<secret contents redacted>", "must be a JSON object")


def _changed(new: ConfigMap | Secret, former: ConfigMap | Secret, fields: tuple[str, ...]) -> Iterator[Cause]:
    if not former.immutable:
        return
    if not new.immutable:
        yield Cause("FieldValueForbidden", _IMMUTABLE, "immutable")
    for field in fields:
        name = "binary_data" if field == "binaryData" else field
        if getattr(new, name) != getattr(former, name):
            yield Cause("FieldValueForbidden", _IMMUTABLE, field)


def _key_causes(field: str, key: str) -> Iterator[Cause]:
    where = f"{field}[{key}]"
    if len(key) > MAX_SUBDOMAIN:
        yield invalid(where, key, f"must be no more than {MAX_SUBDOMAIN} characters")
    if not _KEY.fullmatch(key):
        yield invalid(where, key, _KEY_RULE)
    if key in (".", ".."):
        yield invalid(where, key, f"must not be '{key}'")
    elif key.startswith(".."):
        yield invalid(where, key, "must not start with '..'")


def _is_json_object(data: str) -> bool:
    try:
        return isinstance(msgspec.json.decode(b64decode(data)), dict)
    except (ValueError, RecursionError):
        return False
