"""The conditions that a type must meet to be a kind."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, ClassVar, NamedTuple

import msgspec
import pytest

from eventbus.model.event import ObjectMeta
from eventbus.model.frozen import FrozenDict, FrozenStruct
from eventbus.model.kinds import EVENT, LEASE, NODE, Kind, Kinds
from eventbus.store.storage import decode_object


class Loose(msgspec.Struct):
    size: int = 0


@dataclass
class Open:
    size: int = 0


@dataclass(frozen=True)
class Closed:
    arms: list[int]


class Point(NamedTuple):
    x: int
    y: int


class Arm(msgspec.Struct, frozen=True):
    length: float = 1.0
    next: Arm | None = None


class Base(msgspec.Struct, frozen=True, kw_only=True):
    kind: ClassVar[str] = "Robot"
    api_version: ClassVar[str] = "example.com/v1"
    metadata: ObjectMeta = ObjectMeta()


def robot(field: Any) -> type[Any]:
    """Robots with one field more."""
    return msgspec.defstruct("Robot", [("part", field)], bases=(Base,), frozen=True, kw_only=True)


def kind_of(shape: type[Any]) -> Kind[Any]:
    return Kind(name="Robot", plural="robots", namespaced=False, type=shape)


@pytest.mark.parametrize(
    "field",
    [
        *(dict[str, str], list[str], set[int], bytearray, Loose, Open, Closed, Any),
        *(tuple[list[int], ...], tuple[int, Loose], frozenset[Open], Loose | None, list[int] | str),
    ],
    ids=str,
)
def test_a_type_that_can_be_changed_anywhere_is_refused(field: Any) -> None:
    with pytest.raises(TypeError, match=r"Robot: its type must be frozen all the way down.*: .*(part|arms): "):
        kind_of(robot(field))


@pytest.mark.parametrize(
    "field",
    [str, datetime | None, tuple[int, ...], tuple[int, str], frozenset[str], FrozenDict, Arm, tuple[Arm, ...], Point],
    ids=str,
)
def test_frozen_types_are_kinds(field: Any) -> None:
    assert kind_of(robot(field)).plural == "robots"


@pytest.mark.parametrize("field", [dict[str, list[int]], list[dict[str, Arm]], Any, Sequence[int], set[str]], ids=str)
def test_a_struct_that_freezes_what_it_is_given_may_hold_any_container(field: Any) -> None:
    part = msgspec.defstruct("Part", [("inner", field)], bases=(FrozenStruct,), frozen=True)
    assert kind_of(robot(part)).plural == "robots"


@pytest.mark.parametrize("field", [bytearray, dict[str, Loose], list[Open]], ids=str)
def test_what_no_struct_can_freeze_is_refused(field: Any) -> None:
    part = msgspec.defstruct("Part", [("inner", field)], bases=(FrozenStruct,), frozen=True)
    with pytest.raises(TypeError, match=r"must be frozen all the way down.*: Part.inner"):
        kind_of(robot(part))


@pytest.mark.parametrize("plural", ["", "No_Label!/:{x}", "Robots", "a.b", "r" * 64])
def test_a_plural_is_a_dns_label(plural: str) -> None:
    with pytest.raises(ValueError, match="must be a DNS label"):
        Kind(name="Robot", plural=plural, namespaced=False, type=robot(str))


def test_a_frozen_mapping_comes_back_frozen() -> None:
    class Robot(Base, frozen=True, kw_only=True):
        tags: FrozenDict = FrozenDict()

    kind = kind_of(Robot)
    made = kind.decode({"tags": {"a": "b"}})
    body = msgspec.json.encode(made)
    stored = decode_object(kind, msgspec.msgpack.encode([1, "", "r", body]))
    assert stored is not None
    for found in (made, stored):
        assert type(found.tags) is FrozenDict
        assert found.tags == {"a": "b"}
    with pytest.raises(ValueError, match="Expected `str`"):
        kind.decode({"tags": {"a": 1}})


def test_kinds_are_found_by_name_plural_or_short_name_and_registered_once() -> None:
    kinds, kind = Kinds(), kind_of(robot(int))
    words = ("ev", "Events", "NO", "node", "lease", "robots")
    assert [kinds.named(word) for word in words] == [EVENT, EVENT, NODE, NODE, LEASE, None]
    assert kinds.register(kind) is kind
    with pytest.raises(ValueError, match="robots are of the kind Robot already"):
        kinds.register(Kind(name="Robot", plural="robots", namespaced=True, type=robot(int)))
    with pytest.raises(TypeError, match="its kind is Robot"):
        Kind(name="Shelf", plural="shelves", namespaced=True, type=robot(int))
    with pytest.raises(TypeError, match="status"):
        Kind(name="Robot", plural="robots", namespaced=True, type=robot(int), has_status=True)
