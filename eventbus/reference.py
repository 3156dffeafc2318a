"""Makes an ObjectReference of what a caller gives for an object, and an event's name of the object's."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, Final

from eventbus.errors import InvalidEvent
from eventbus.event import ObjectReference
from eventbus.names import MAX_SUBDOMAIN, is_dns_label, is_dns_subdomain
from eventbus.text import byte_length, printable
from eventbus.validation import MAX_KIND, MAX_NAME

_FIELD: Final = "involvedObject"

#: Field of ObjectReference → the other spelling of its key.
_CAMEL: Final = {
    "kind": "kind",
    "namespace": "namespace",
    "name": "name",
    "uid": "uid",
    "api_version": "apiVersion",
    "resource_version": "resourceVersion",
    "field_path": "fieldPath",
}
_KEYS: Final = frozenset(_CAMEL) | frozenset(_CAMEL.values())
_FROM_OBJECT: Final = ("kind", "api_version")
_FROM_METADATA: Final = ("namespace", "name", "uid", "resource_version")

_KIND: Final = re.compile(r"[A-Za-z0-9](?:[-A-Za-z0-9_.]*[A-Za-z0-9])?")

_WAYS_OUT: Final = (
    "pass an ObjectReference, KIND/NAME, a mapping with kind and name, an object's manifest, "
    "or an object with the attributes kind and metadata"
)

_Get = Callable[[str], Any]


def reference_to(obj: object) -> ObjectReference:
    """Return the reference that names *obj*.

    An ObjectReference is used as it is, even with empty fields. A string is `Pod/web-0`, of the namespace `default`, or
    `shop/Pod/web-0`. A mapping is either a reference itself (kind, name,
    namespace, uid, apiVersion, resourceVersion, fieldPath) or a manifest (kind, apiVersion, metadata). Of anything
    else the attributes kind, apiVersion and metadata are read; metadata has attributes or is a mapping. Keys and
    attributes may be camelCase or snake_case; None and absent mean empty. Whether a kind and a name came out is
    for `validation.validate_recorded` to say.

    Raises:   InvalidEvent: *obj* is None, of no such shape, a string of another form, has an unknown key or a value
              that is not a string.
    Source:   client-go tools/reference. Departure: there is no scheme, so an object without kind gives none.
    """
    if isinstance(obj, ObjectReference):
        return obj
    if obj is None:
        raise InvalidEvent(_FIELD, "can't reference a nil object")
    if isinstance(obj, str):
        return _from_string(obj)
    if isinstance(obj, Mapping):
        return _from_manifest(obj.get, obj["metadata"]) if "metadata" in obj else _from_keys(obj)
    if isinstance(obj, bytes) or not (hasattr(obj, "kind") and hasattr(obj, "metadata")):
        raise InvalidEvent(_FIELD, f"can't reference a {type(obj).__name__}; {_WAYS_OUT}")
    return _from_manifest(_attributes_of(obj), getattr(obj, "metadata", None))


def reference_from_text(text: str, namespace: str = "") -> ObjectReference:
    """Return the reference that a person means by KIND/NAME, like pod/web-0.

    The kind is kept as typed. *namespace* empty means a cluster-scoped object.

    Raises:   InvalidEvent: not exactly one slash, an empty or too long part, characters no kind or name has; in words
              for whoever typed it.
    """
    kind, slash, name = text.partition("/")
    if not (slash and kind and name):
        raise InvalidEvent("object", f"{_quoted(text)} is not of the form KIND/NAME, like pod/web-0")
    if "/" in name:
        problem = f"{_quoted(text)} has more than one slash; the form is KIND/NAME, like pod/web-0"
        raise InvalidEvent("object", f"{problem}, and the namespace is given apart, like -n shop")
    if _KIND.fullmatch(kind) is None or len(kind) > MAX_KIND:
        problem = f"{_quoted(kind)} is not a kind (at most {MAX_KIND} letters, digits, '-', '_', '.')"
        raise InvalidEvent("kind", problem)
    if name != name.strip() or name != printable(name):
        raise InvalidEvent("name", f"{_quoted(name)} has white space around it or control characters in it")
    if byte_length(name) > MAX_NAME:
        raise InvalidEvent("name", f"{_quoted(name)} has more than {MAX_NAME} bytes")
    if namespace and not is_dns_label(namespace):
        raise InvalidEvent("namespace", f"{_quoted(namespace)} is not a DNS label (a-z, 0-9, '-', at most 63)")
    return ObjectReference(kind=kind, namespace=namespace, name=name)


def event_name(object_name: str, time_ns: int) -> str:
    """Return `<object_name>.<time_ns in hex>`, or a random UUID where that is not a DNS-1123 subdomain.

    Args:     time_ns: nanoseconds since 1970.
    Source:   client-go tools/record makeEvent (since v0.33).
    """
    name = f"{object_name}.{time_ns:x}"
    if len(name) <= MAX_SUBDOMAIN and time_ns >= 0 and _begins_subdomain(object_name):
        return name
    from uuid import uuid4  # rarely come to, and a tenth of what importing this package takes

    return str(uuid4())


@lru_cache(maxsize=4096)
def _from_string(text: str) -> ObjectReference:
    namespace, slash, rest = text.partition("/")
    if slash and "/" in rest:
        return reference_from_text(rest, namespace)
    return reference_from_text(text, "default")


# A recorder names few objects many times.
_begins_subdomain = lru_cache(maxsize=4096)(is_dns_subdomain)


def _from_manifest(read: _Get, metadata: object) -> ObjectReference:
    if metadata is None:
        raise InvalidEvent(_FIELD, f"has no metadata; {_WAYS_OUT}")
    read_metadata: _Get = metadata.get if isinstance(metadata, Mapping) else _attributes_of(metadata)
    values = {field: _value(read, field) for field in _FROM_OBJECT}
    values |= {field: _value(read_metadata, field) for field in _FROM_METADATA}
    return ObjectReference(**values)


def _from_keys(mapping: Mapping[Any, Any]) -> ObjectReference:
    unknown = [key for key in mapping if key not in _KEYS]
    if unknown:
        known = ", ".join(_CAMEL.values())
        raise InvalidEvent(_FIELD, f"has the unknown key {_quoted(unknown[0])}; a reference has {known}")
    if not mapping:
        raise InvalidEvent(_FIELD, f"is an empty mapping; {_WAYS_OUT}")
    return ObjectReference(**{field: _value(mapping.get, field) for field in _CAMEL})


def _value(read: _Get, field: str) -> str:
    value = read(_CAMEL[field])
    if value is None:
        value = read(field)
    if value is None:
        return ""
    if not isinstance(value, str):
        problem = f"must be a string, is {type(value).__name__}"
        raise InvalidEvent(f"{_FIELD}.{_CAMEL[field]}", problem)
    # A member of a string enum becomes its plain value.
    return value if type(value) is str else str.__str__(value)


def _attributes_of(obj: object) -> _Get:
    return lambda name: getattr(obj, name, None)


def _quoted(text: object) -> str:
    shown = text if isinstance(text, str) else repr(text)
    return repr(shown if len(shown) <= 80 else shown[:77] + "...")
