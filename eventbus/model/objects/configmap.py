"""ConfigMap of core/v1: settings that pods take as files and variables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

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


__all__ = ["ConfigMap"]
