"""Bounds how fast events are written, by the API server's own configuration: admission plugin EventRateLimit.

Limits hold for this worker alone, as they do for each API server. Source: `plugin/pkg/admission/eventratelimit`.
Departures: writes through events.k8s.io are bounded, too, and a refusal says when to come again.
"""

from __future__ import annotations

import threading
from collections import Counter, OrderedDict
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import Final

import msgspec

from eventbus.api import status
from eventbus.clock import Clock, SystemClock
from eventbus.errors import ConfigError
from eventbus.event import Event

_VERSION: Final = "eventratelimit.admission.k8s.io/v1alpha1"
_CACHE: Final = 4096
#: Nanoseconds in a second.
_NS: Final = 1_000_000_000


class LimitType(StrEnum):
    """What has a bucket of its own."""

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
        found = msgspec.convert(yaml.safe_load(path.read_text("utf-8")), _Configuration)
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


class EventRateLimit:
    """Token buckets by what each limit names. Thread-safe."""

    def __init__(self, limits: Sequence[Limit], *, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._limits = [(limit, _Buckets(limit)) for limit in limits]
        self.refused: Counter[str] = Counter()  #: by type

    def admit(self, user: str, event: Event) -> None:
        """Take a token of every bucket, also where one has none. Raises: Refusal: 429; the last refusal is told."""
        now_ns = int(self._clock.monotonic() * _NS)
        refused: tuple[Limit, str, float] | None = None
        with self._lock:
            for limit, buckets in self._limits:
                key = _key(limit.type, user, event)
                wait_s = buckets.take(key, now_ns)
                if wait_s > 0:
                    refused = limit, key, wait_s
                    self.refused[limit.type] += 1
        if refused is not None:
            limit, key, wait_s = refused
            raise status.too_many(f"limit reached on type {limit.type} for key {key[:200]}", wait_s)


class _Buckets:
    def __init__(self, limit: Limit) -> None:
        self._limit = limit
        self._most = 1 if limit.type is LimitType.SERVER else limit.cache_size or _CACHE
        self._found: OrderedDict[str, tuple[float, int]] = OrderedDict()  # tokens, and when they were counted

    def take(self, key: str, now_ns: int) -> float:
        """0 where there was a token, else the seconds until there is one."""
        tokens, counted = self._found.pop(key, (float(self._limit.burst), now_ns))
        tokens = min(float(self._limit.burst), tokens + (now_ns - counted) / _NS * self._limit.qps)
        taken = tokens >= 1
        self._found[key] = (tokens - 1 if taken else tokens, now_ns)
        if len(self._found) > self._most:
            self._found.popitem(last=False)
        return 0.0 if taken else (1 - tokens) / self._limit.qps


def _key(sort: LimitType, user: str, event: Event) -> str:
    match sort:
        case LimitType.SERVER:
            return ""
        case LimitType.NAMESPACE:
            return event.metadata.namespace
        case LimitType.USER:
            return user
    reference, source = event.involved_object, event.source
    return "".join(
        (
            source.component,
            source.host,
            reference.kind,
            reference.namespace,
            reference.name,
            reference.uid,
            reference.api_version,
        )
    )


__all__ = ["EventRateLimit", "Limit", "LimitType", "read_limits"]
