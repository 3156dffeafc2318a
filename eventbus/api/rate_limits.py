"""The limits of EventRateLimit, out of the API server's own configuration file."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Final

import msgspec

from eventbus.decodable import decodable
from eventbus.errors import ConfigError

_VERSION: Final = "eventratelimit.admission.k8s.io/v1alpha1"


class LimitType(StrEnum):
    """A scope that has a bucket of its own."""

    SERVER = "Server"
    NAMESPACE = "Namespace"
    USER = "User"
    SOURCE_AND_OBJECT = "SourceAndObject"


class Limit(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """*qps* tokens a second, *burst* at most; *cache_size* buckets, the one that was used longest ago is forgotten."""

    type: LimitType
    qps: int
    burst: int
    cache_size: int = 0


class _Configuration(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    limits: list[Limit]
    api_version: str = ""
    kind: str = ""


def read_limits(path: Path) -> list[Limit]:
    """The limits of a configuration file, YAML or JSON. Raises: ConfigError."""
    import yaml

    try:
        found = msgspec.convert(yaml.safe_load(path.read_text("utf-8")), decodable(_Configuration))
    except (OSError, UnicodeDecodeError, yaml.YAMLError, msgspec.ValidationError) as error:
        raise ConfigError(f"--event-rate-limit {path}: {error}") from error
    if (found.api_version, found.kind) != (_VERSION, "Configuration"):
        raise ConfigError(f"--event-rate-limit {path}: must be apiVersion {_VERSION}, kind Configuration")
    if not found.limits:
        raise ConfigError(f"--event-rate-limit {path}: limits must not be empty")
    for limit in found.limits:
        if limit.qps <= 0 or limit.burst <= 0 or limit.cache_size < 0:
            raise ConfigError(f"--event-rate-limit {path}: {limit.type}: qps and burst are positive whole numbers")
    return found.limits


__all__ = ["Limit", "LimitType", "read_limits"]
