"""How objects of any kind lie in Redis: as put.lua packs them; events, as `stored` reads them. What a change says."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar, cast

import msgpack
import msgspec

from eventbus.errors import PoisonBatch
from eventbus.kinds import EVENT, Kind
from eventbus.list_watch import HasMetadata
from eventbus.objects.frozen import decode_frozen
from eventbus.store.stored import decode_stored

T = TypeVar("T", bound=HasMetadata)


class Was(msgspec.Struct, frozen=True):
    """What selectors saw of an object before a change."""

    labels: Mapping[str, str]
    fields: Mapping[str, str]


def decode_object(kind: Kind[T], packed: bytes | None) -> T | None:
    """The object with its version; None: there is none, or only an event's counts are left.

    Raises: PoisonBatch: the value is not ours.
    """
    if packed is None:
        return None
    if kind.type is EVENT.type:
        return cast("T | None", decode_stored(packed))
    try:
        version, _, _, body = msgpack.unpackb(packed, raw=True)
        return with_metadata(
            msgspec.json.decode(body, type=kind.type, dec_hook=decode_frozen), resource_version=str(int(version))
        )
    except (ValueError, TypeError) as error:  # msgspec's and msgpack's are ValueErrors
        raise PoisonBatch("unreadable") from error


def encode_body(found: HasMetadata) -> bytes:
    """The body that `put` stores: the object's fields as JSON, without its version."""
    return msgspec.json.encode(with_metadata(found, resource_version=""))


def with_metadata(found: T, **changes: Any) -> T:
    """*found* with other metadata."""
    return replaced(found, metadata=msgspec.structs.replace(found.metadata, **changes))


def replaced(found: T, **changes: Any) -> T:
    """*found* with other fields."""
    changed: T = msgspec.structs.replace(cast("Any", found), **changes)
    return changed


def encode_was(kind: Kind[T], former: T, new: T) -> bytes:
    """What a change of *former* to *new* says of the former: nothing where no selector could tell them apart."""
    fields = {name: get(former) for name, get in kind.fields.items() if get(former) != get(new)}
    if not fields and former.metadata.labels == new.metadata.labels:
        return b""
    packed: bytes = msgpack.packb([dict(former.metadata.labels), fields])
    return packed


def decode_was(packed: bytes | None) -> Was | None:
    """None: as the object now is. Raises: PoisonBatch: the value is not ours."""
    if not packed:
        return None
    try:
        return Was(*msgspec.msgpack.decode(packed, type=tuple[dict[str, str], dict[str, str]]))
    except ValueError as error:
        raise PoisonBatch("unreadable") from error


__all__ = ["Was", "decode_object", "decode_was", "encode_body", "encode_was", "replaced", "with_metadata"]
