"""A kind as rich as a Pod: what is in its JSON comes back bit for bit, whatever its maps and keys are called."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, ClassVar

import msgspec

from eventbus.model.event import Instant, ObjectMeta
from eventbus.model.frozen import EMPTY, FrozenDict, FrozenStruct
from eventbus.model.kinds import Kind
from eventbus.store.storage import decode_object, encode_body


class Part(FrozenStruct, frozen=True, rename="camel", omit_defaults=True, kw_only=True):
    """The base of what follows."""


class Resources(Part, frozen=True, rename="camel", omit_defaults=True, kw_only=True):
    limits: Mapping[str, str] = EMPTY
    requests: Mapping[str, int | str] = EMPTY
    claims: Mapping[str, Mapping[str, tuple[Mapping[str, str], ...]]] = EMPTY


class EmptyDir(Part, frozen=True, rename="camel", omit_defaults=True, kw_only=True):
    medium: str = ""


class Volume(Part, frozen=True, rename="camel", omit_defaults=True, kw_only=True):
    name: str = ""
    empty_dir: EmptyDir | None = None


class Container(Part, frozen=True, rename="camel", omit_defaults=True, kw_only=True):
    name: str = ""
    args: tuple[str, ...] = ()
    resources: Resources = Resources()
    labels: tuple[str, ...] = ()  # a key that is a map elsewhere
    started_at: Instant | None = None


class PodSpec(Part, frozen=True, rename="camel", omit_defaults=True, kw_only=True):
    containers: tuple[Container, ...] = ()
    volumes: tuple[Volume, ...] = ()
    node_selector: Mapping[str, str] = EMPTY
    opaque: Any = None
    overhead: Mapping[str, Any] = EMPTY
    weight: float | None = None
    template: ObjectMeta | None = None


class Pod(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, kw_only=True):
    kind: ClassVar[str] = "Pod"
    api_version: ClassVar[str] = "v1"

    metadata: ObjectMeta = ObjectMeta()
    spec: PodSpec = PodSpec()


POD: Kind[Pod] = Kind(name="Pod", plural="pods", namespaced=True, type=Pod)
RICH = {
    "kind": "Pod",
    "apiVersion": "v1",
    "metadata": {
        "name": "web-0",
        "namespace": "shop",
        "labels": {"at": "2024-01-01T12:00:00.123456789Z", "ключ": "ü\U0001f600"},
        "annotations": {"eventTime": "2024-01-01T12:00:00.123456789Z", "empty": ""},
        "ownerReferences": [{"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "web", "uid": "u"}],
        "managedFields": [{"fieldsV1": {"f:metadata": {"f:labels": {".": {}, "f:x": None}}}}],
    },
    "spec": {
        "containers": [
            {
                "name": "app",
                "args": ["", "-v", "\u2028"],
                "resources": {
                    "limits": {"cpu": "1", "memory": ""},
                    "requests": {"cpu": 2, "memory": "1Gi"},
                    "claims": {"gpu": {"labels": [{"a": "b", "capacity": ""}, {}], "none": []}, "empty": {}},
                },
                "labels": ["a", "b"],
            }
        ],
        "volumes": [{"name": "tmp", "emptyDir": {}}],
        "nodeSelector": {"annotations": "x", "spec": ""},
        "opaque": {
            "labels": {"nested": {"deep": [1, 2.5, None, "", {}, [], True, {"labels": None}]}, "null": None},
            "big": 2**53 + 1,
            "time": "2024-01-01T12:00:00.123456789Z",
        },
        "overhead": {"": {"": None}, "list": [[], [[]]], "no": False},
        "weight": 0.1,
        "template": {"labels": {"a": ""}},
    },
}


def test_json_is_stored_and_given_back_bit_for_bit() -> None:
    made = POD.decode(RICH)
    stored = decode_object(POD, msgspec.msgpack.encode([7, "shop", "web-0", encode_body(made)]))
    assert stored is not None
    metadata = {**RICH["metadata"], "resourceVersion": "7"}  # type: ignore[dict-item]
    assert json.loads(json.dumps(POD.encode(stored))) == {**RICH, "metadata": metadata}
    assert msgspec.structs.replace(stored, metadata=made.metadata) == made


def test_what_was_read_is_frozen_at_any_depth() -> None:
    made = POD.decode(RICH)
    assert isinstance(hash(made), int)
    opaque: Any = made.spec.opaque
    assert type(opaque) is type(opaque["labels"]["nested"]) is FrozenDict
    assert type(opaque["labels"]["nested"]["deep"]) is tuple
    assert type(made.spec.containers[0].resources.claims["gpu"]["labels"][0]) is FrozenDict


def test_null_is_what_go_makes_of_it_by_the_type_of_its_place() -> None:
    made = POD.decode(
        {
            "metadata": {"labels": {"a": None}, "managedFields": None},
            "spec": {
                "containers": [None, {"args": ["a", None], "labels": None, "resources": {"limits": {"cpu": None}}}],
                "volumes": [{"emptyDir": None}],
                "overhead": {"kept": None},
            },
        }
    )
    assert made.metadata == ObjectMeta(labels={"a": ""})
    limited = Container(args=("a", ""), resources=Resources(limits={"cpu": ""}))
    assert made.spec == PodSpec(
        containers=(Container(), limited), volumes=(Volume(),), overhead=FrozenDict({"kept": None})
    )


def test_only_what_is_typed_as_a_time_is_cut_to_microseconds() -> None:
    fine = "2024-01-01T12:00:00.123456999Z"
    made = POD.decode({"spec": {"containers": [{"name": fine, "startedAt": fine}]}})
    assert made.spec.containers[0] == Container(name=fine, started_at=datetime(2024, 1, 1, 12, 0, 0, 123456, UTC))
