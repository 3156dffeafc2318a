"""ConfigMap and Secret of core/v1: settings and confidential values that pods take as files and variables."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping
from typing import ClassVar

import msgspec

from eventbus.model.event import ObjectMeta
from eventbus.model.frozen import EMPTY, FrozenStruct


class ConfigMap(FrozenStruct, frozen=True, rename="camel", kw_only=True, omit_defaults=True):
    """One core/v1 ConfigMap, in a namespace. *binary_data* is base64. Source: k8s.io/api core/v1 types.go."""

    kind: ClassVar[str] = "ConfigMap"
    api_version: ClassVar[str] = "v1"

    metadata: ObjectMeta = ObjectMeta()
    immutable: bool | None = None
    data: Mapping[str, str] = EMPTY
    binary_data: Mapping[str, str] = EMPTY


OPAQUE = "Opaque"


class Secret(FrozenStruct, frozen=True, rename="camel", kw_only=True, omit_defaults=True):
    """A core/v1 Secret, in a namespace. *data* is base64; the plain values of *string_data* are added to it.

    Its repr shows no values, so that none gets into a log. Source: k8s.io/api core/v1 types.go.
    """

    kind: ClassVar[str] = "Secret"
    api_version: ClassVar[str] = "v1"

    metadata: ObjectMeta = ObjectMeta()
    immutable: bool | None = None
    data: Mapping[str, str] = EMPTY
    string_data: Mapping[str, str] = EMPTY
    type: str = msgspec.field(default_factory=lambda: OPAQUE)

    def __post_init__(self) -> None:
        if not self.type:  # sent as an empty string by kubectl
            msgspec.structs.force_setattr(self, "type", OPAQUE)
        if self.string_data:
            plain = {key: b64encode(value.encode()).decode() for key, value in self.string_data.items()}
            msgspec.structs.force_setattr(self, "data", {**self.data, **plain})
            msgspec.structs.force_setattr(self, "string_data", EMPTY)
        super().__post_init__()

    def __repr__(self) -> str:
        keys = sorted(self.data)
        return f"Secret({self.metadata.namespace}/{self.metadata.name}, keys={keys})"
