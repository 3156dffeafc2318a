"""Decodes protobuf bodies, for clients that send nothing else: access reviews, and client-go's typed clients.

Answers are never protobuf: every client that sends it accepts JSON. Source: the generated.proto files of k8s.io/api.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple

from eventbus.api import status

_MAGIC: Final = b"k8s\x00"
_DEPTH: Final = 16
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class Field(NamedTuple):
    """A field: its JSON name, and its type: a scalar, `time`, `map`, `bytes map`, or the name of a message."""

    name: str
    sort: str = "string"
    repeated: bool = False


_REFERENCE: Final = {
    number: Field(name)
    for number, name in enumerate(
        ("kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath"), start=1
    )
}
_MESSAGES: Final[Mapping[str, Mapping[int, Field]]] = {
    "meta": {
        1: Field("name"),
        2: Field("generateName"),
        3: Field("namespace"),
        5: Field("uid"),
        6: Field("resourceVersion"),
        7: Field("generation", "int"),
        8: Field("creationTimestamp", "time"),
        9: Field("deletionTimestamp", "time"),
        10: Field("deletionGracePeriodSeconds", "int"),
        11: Field("labels", "map"),
        12: Field("annotations", "map"),
        13: Field("ownerReferences", "owner", repeated=True),
        14: Field("finalizers", repeated=True),
    },
    "owner": {
        1: Field("kind"),
        3: Field("name"),
        4: Field("uid"),
        5: Field("apiVersion"),
        6: Field("controller", "bool"),
        7: Field("blockOwnerDeletion", "bool"),
    },
    "reference": _REFERENCE,
    "source": {1: Field("component"), 2: Field("host")},
    "series": {1: Field("count", "int"), 2: Field("lastObservedTime", "time")},
    "v1/Event": {
        1: Field("metadata", "meta"),
        2: Field("involvedObject", "reference"),
        3: Field("reason"),
        4: Field("message"),
        5: Field("source", "source"),
        6: Field("firstTimestamp", "time"),
        7: Field("lastTimestamp", "time"),
        8: Field("count", "int"),
        9: Field("type"),
        10: Field("eventTime", "time"),
        11: Field("series", "series"),
        12: Field("action"),
        13: Field("related", "reference"),
        14: Field("reportingComponent"),
        15: Field("reportingInstance"),
    },
    "events.k8s.io/v1/Event": {
        1: Field("metadata", "meta"),
        2: Field("eventTime", "time"),
        3: Field("series", "series"),
        4: Field("reportingController"),
        5: Field("reportingInstance"),
        6: Field("action"),
        7: Field("reason"),
        8: Field("regarding", "reference"),
        9: Field("related", "reference"),
        10: Field("note"),
        11: Field("type"),
        12: Field("deprecatedSource", "source"),
        13: Field("deprecatedFirstTimestamp", "time"),
        14: Field("deprecatedLastTimestamp", "time"),
        15: Field("deprecatedCount", "int"),
    },
    "coordination.k8s.io/v1/Lease": {1: Field("metadata", "meta"), 2: Field("spec", "lease spec")},
    "lease spec": {
        1: Field("holderIdentity"),
        2: Field("leaseDurationSeconds", "int"),
        3: Field("acquireTime", "time"),
        4: Field("renewTime", "time"),
        5: Field("leaseTransitions", "int"),
    },
    # For kubectl's `create namespace`, `create configmap` and `create secret`.
    "v1/Namespace": {1: Field("metadata", "meta")},
    "v1/ConfigMap": {
        1: Field("metadata", "meta"),
        2: Field("data", "map"),
        3: Field("binaryData", "bytes map"),
        4: Field("immutable", "bool"),
    },
    "v1/Secret": {
        1: Field("metadata", "meta"),
        2: Field("data", "bytes map"),
        3: Field("type"),
        4: Field("stringData", "map"),
        5: Field("immutable", "bool"),
    },
    "v1/DeleteOptions": {
        1: Field("gracePeriodSeconds", "int"),
        2: Field("preconditions", "preconditions"),
        4: Field("propagationPolicy"),
        5: Field("dryRun", repeated=True),
    },
    "preconditions": {1: Field("uid"), 2: Field("resourceVersion")},
    "authorization.k8s.io/v1/SelfSubjectAccessReview": {1: Field("metadata", "meta"), 2: Field("spec", "access")},
    "access": {
        1: Field("resourceAttributes", "resource"),
        2: Field("nonResourceAttributes", "path"),
    },
    "resource": {
        number: Field(name)
        for number, name in enumerate(
            ("namespace", "verb", "group", "version", "resource", "subresource", "name"), start=1
        )
    },
    "path": {1: Field("path"), 2: Field("verb")},
    "authorization.k8s.io/v1/SelfSubjectRulesReview": {1: Field("metadata", "meta"), 2: Field("spec", "rules")},
    "rules": {1: Field("namespace")},
    "authentication.k8s.io/v1/SelfSubjectReview": {1: Field("metadata", "meta")},
    "authentication.k8s.io/v1/TokenReview": {1: Field("metadata", "meta"), 2: Field("spec", "token")},
    "token": {1: Field("token"), 2: Field("audiences", repeated=True)},
}
#: Messages that occur only inside others.
_PARTS: Final = frozenset(name for name in _MESSAGES if "/" not in name)


def decode_object(data: bytes) -> dict[str, Any]:
    """Decode the object in the API server's envelope. Raises: ApiError: 400: invalid; 415: unsupported kind."""
    try:
        if not data.startswith(_MAGIC):
            raise ValueError("it does not begin with k8s")
        envelope = dict(_fields(data[len(_MAGIC) :]))
        named = dict(_fields(_bytes(envelope.get(1, b""))))
        version, kind = (_text(named.get(number, b"")) for number in (1, 2))
        name = f"{version}/{kind}"
        if name not in _MESSAGES or name in _PARTS:
            name = f"v1/{kind}" if kind == "DeleteOptions" else ""
        if not name:
            raise status.unsupported_media_type(("application/json",))
        return {"apiVersion": version, "kind": kind} | _message(_bytes(envelope.get(2, b"")), name, 0)
    except ValueError as error:
        raise status.bad_request(f"the object provided is unrecognized: protobuf: {error}") from None


def _message(data: bytes, name: str, depth: int) -> dict[str, Any]:
    if depth > _DEPTH:
        raise ValueError("nested too deeply")
    known = _MESSAGES[name]
    found: dict[str, Any] = {}
    for number, value in _fields(data):
        field = known.get(number)
        if field is None:
            continue
        if field.sort in ("map", "bytes map"):
            pair = dict(_fields(_bytes(value)))
            inner = pair.get(2, b"")
            shown = _text(inner) if field.sort == "map" else b64encode(_bytes(inner)).decode()
            found.setdefault(field.name, {})[_text(pair.get(1, b""))] = shown
        elif field.repeated:
            found.setdefault(field.name, []).append(_value(value, field.sort, depth))
        else:
            found[field.name] = _value(value, field.sort, depth)
    return found


def _value(value: int | bytes, sort: str, depth: int) -> Any:
    match sort:
        case "string":
            return _text(value)
        case "int" | "bool":
            if not isinstance(value, int):
                raise ValueError("a number has the wire type of a text")
            number = value - (1 << 64) if value >= 1 << 63 else value
            return bool(number) if sort == "bool" else number
        case "time":
            return _time(dict(_fields(_bytes(value))))
    return _message(_bytes(value), sort, depth + 1)


def _time(parts: Mapping[int, int | bytes]) -> str | None:
    """Return a time as JSON has it; None is Go's zero time, an empty message."""
    if not parts:
        return None
    seconds, nanos = parts.get(1, 0), parts.get(2, 0)
    if not isinstance(seconds, int) or not isinstance(nanos, int):
        raise ValueError("a time has the wire type of a text")
    seconds = seconds - (1 << 64) if seconds >= 1 << 63 else seconds
    try:
        moment = _EPOCH + timedelta(seconds=seconds, microseconds=nanos // 1000)
    except OverflowError:
        raise ValueError("a time is out of range") from None
    return None if moment.year == 1 else moment.isoformat()


def _fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield the fields of a message, each with its number. Raises: ValueError."""
    at = 0
    while at < len(data):
        tag, at = read_varint(data, at)
        sort, number = tag & 7, tag >> 3
        if sort == 0:
            value, at = read_varint(data, at)
            yield number, value
            continue
        length = {1: 8, 5: 4}.get(sort, -1)
        if sort == 2:
            length, at = read_varint(data, at)
        if length < 0 or at + length > len(data):
            raise ValueError("unexpected EOF" if sort in (1, 2, 5) else f"wire type {sort}")
        yield number, data[at : at + length]
        at += length


def read_varint(data: bytes | memoryview, at: int) -> tuple[int, int]:
    """Return the number at the place *at*, and the place after it. Raises: ValueError."""
    try:
        byte = data[at]
        if byte < 0x80:  # as most are
            return byte, at + 1
        value, shift = byte & 0x7F, 7
        while shift < 70:
            at += 1
            byte = data[at]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value & (1 << 64) - 1, at + 1
            shift += 7
    except IndexError:
        raise ValueError("unexpected EOF") from None
    raise ValueError("a number is too long")


def varint(number: int) -> bytes:
    """Encode a number of at least 0."""
    packed = bytearray()
    while number > 0x7F:
        packed.append(number & 0x7F | 0x80)
        number >>= 7
    packed.append(number)
    return bytes(packed)


def _bytes(value: int | bytes) -> bytes:
    if isinstance(value, int):
        raise ValueError("a message has the wire type of a number")
    return value


def _text(value: int | bytes) -> str:
    return _bytes(value).decode()  # UnicodeDecodeError is a ValueError
