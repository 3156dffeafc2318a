"""Settings of one process and options of the whole bus: frozen, with unit, default and reason.

`Settings` come from the environment (`EVENTBUS_<FIELD>`), read once at the start of a program. `Options` are shared:
they live in Redis with a version, because workers that correlate in one state must agree on the rules.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping
from enum import StrEnum
from typing import Any, get_type_hints

import msgspec

from eventbus.errors import ConfigError

MIB = 1024 * 1024


class FullBuffer(StrEnum):
    """The policy of a recorder when the outbox is full."""

    DROP = "drop"  #: the newest event is dropped and counted
    WAIT = "wait"  #: the caller waits for room, at most *buffer_wait_s*; never for the network itself


class SpoolWhen(StrEnum):
    """The moment at which a batch is written to the spool."""

    LATE = "late"  #: when Redis has not acknowledged it within 100 ms
    ALWAYS = "always"  #: before it is sent


class LogFormat(StrEnum):
    """The format of the log on standard error."""

    TEXT = "text"
    JSON = "json"  #: an object a line


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings that each process chooses for itself."""

    redis_url: str = ""  #: empty: the embedded server; `none`: no bus, events are only logged
    redis_password: str = ""  #: password for redis_url; keeps it out of the URL
    redis_password_file: str = ""  #: file with the password, read once at start; overrides redis_password
    state_dir: str = ""  #: folder of the embedded server; empty: the user's state directory
    prefix: str = "eb"  #: first part of every key, [a-z0-9-]{1,32}
    partitions: int = 0  #: used when the bus is created, ignored later; 0: 1, or 64 on a cluster
    buffer_events: int = 10_000  #: most waiting events in one process
    buffer_bytes: int = 16 * MIB  #: the same in bytes
    buffer_full: FullBuffer = FullBuffer.DROP
    buffer_wait_s: float = 5.0  #: longest wait of a caller with `wait`
    ring_bytes: int = 8 * MIB  #: memory for sent batches; they are sent again if Redis loses them
    spool: str = ""  #: folder for unacknowledged events, which then survive the process; empty: none
    spool_when: SpoolWhen = SpoolWhen.LATE
    spool_bytes: int = 64 * MIB  #: limit on disk for one process; other events are only in memory
    flush_s: float = 5.0  #: longest flush at exit
    worker_block_ms: int = 1_000  #: longest blocking read; an idle worker needs as long to notice a stop
    drain_s: float = 10.0  #: longest drain of a worker after SIGTERM
    url: str = ""  #: of an API worker, http(s)://host or http+unix:/path; used instead of Redis
    token: str = ""  #: token for the API
    token_file: str = ""  #: file with the token, read at each connection; overrides token
    ca_file: str = ""  #: trusted CAs for the API instead of the system's
    client_cert: str = ""  #: PEM file: client certificate for the API instead of a token
    client_key: str = ""  #: its key, if it is in a separate file
    log_level: str = ""  #: debug, info, warning or error; empty: info for workers, warning for commands
    log_format: LogFormat = LogFormat.TEXT  #: of the log on standard error; a JSON log has one object a line

    def __post_init__(self) -> None:
        for field, (least, most) in _BOUNDS.items():
            if not least <= getattr(self, field) <= most:
                given = getattr(self, field)
                raise ConfigError(f"EVENTBUS_{field.upper()} must be between {least} and {most}, not {given}")
        if self.log_level.lower() not in LOG_LEVELS:
            raise ConfigError(f"EVENTBUS_LOG_LEVEL={self.log_level!r} is not one of {', '.join(LOG_LEVELS[1:])}")

    @classmethod
    def from_environ(cls, environ: Mapping[str, str]) -> Settings:
        """Read every `EVENTBUS_<FIELD>`; an unknown one is left alone (other tools may share the prefix).

        Raises: ConfigError: a value that cannot be used; names the variable.
        """
        values: dict[str, Any] = {}
        for field in cls.__struct_fields__:
            variable = f"EVENTBUS_{field.upper()}"
            if variable in environ:
                values[field] = _parse(variable, environ[variable], get_type_hints(cls)[field])
        return cls(**values)

    @property
    def password(self) -> str | None:
        """Return the password for Redis, or None."""
        if self.redis_password_file:
            return read_secret("EVENTBUS_REDIS_PASSWORD_FILE", self.redis_password_file)
        return self.redis_password or None


LOG_LEVELS = ("", "debug", "info", "warning", "error")

#: A first open that is wrong about its partitions would be wrong for ever; a block of 0 would last for ever.
_BOUNDS = {
    "partitions": (0, 1024),
    "buffer_events": (1, 10_000_000),
    "buffer_bytes": (16_384, 10**11),
    "ring_bytes": (0, 10**11),
    "spool_bytes": (16_384, 10**11),
    "buffer_wait_s": (0, 86_400),
    "flush_s": (0, 86_400),
    "drain_s": (0, 86_400),
    "worker_block_ms": (1, 60_000),
}


class SpamKey(StrEnum):
    """The choice of events that share one token bucket."""

    OBJECT = "object"  #: source and object: client-go before 0.32
    OBJECT_TYPE = "object+type"  #: client-go since 0.32
    OBJECT_TYPE_REASON = "object+type+reason"


class AggregateKey(StrEnum):
    """The choice of events that count as similar."""

    REASON = "reason"  #: client-go's EventAggregatorByReasonFunc
    REASON_FIELD_PATH = "reason+fieldPath"  #: keeps the containers of one pod apart


class Options(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The options of the whole bus: how it correlates, and how long it keeps data.

    Defaults are client-go's where it has them."""

    burst: int = 25  #: tokens of a full bucket; 0 suppresses all events that are not exempt
    qps: float = 1 / 300  #: tokens a second; rounded to float32, as in client-go; 0: no refill
    max_events: int = 10  #: number of distinct messages from which similar events are aggregated
    max_interval_s: int = 600  #: a longer pause empties the set of similar events
    aggregate_key: AggregateKey = AggregateKey.REASON
    aggregate_message: str = "(combined from similar events): "  #: prefix of the message of an aggregate
    spam_key: SpamKey = SpamKey.OBJECT_TYPE
    exempt_namespaces: tuple[str, ...] = ()  #: never suppressed as spam; they use no token
    exempt_types: tuple[str, ...] = ()  #: the same for these types
    exempt_reasons: tuple[str, ...] = ()  #: the same for these reasons
    report_suppressed: bool = True  #: write EventsSuppressed events
    event_ttl_s: int = 3_600  #: lifetime of an event after its last write, like Kubernetes' --event-ttl
    record_ttl_s: int = 8 * 86_400  #: the running count is kept for this time after the last event
    max_stored: int = 100_000  #: stored events in a partition
    max_records: int = 400_000  #: stored events and kept counts together, in a partition
    incoming_bytes: int = 256 * MIB  #: queued bytes in a partition, compressed; beyond it, publish answers FULL
    changes_bytes: int = 64 * MIB  #: history of changes for watches, in a partition
    refresh_s: int = 10  #: shortest time between two refreshes of a suppressed event's count in a watch
    occurrences_s: int = 21_600  #: counts by minute are kept for this time; 0: none
    dead_bytes: int = 64 * MIB  #: dead letters in a partition
    hold_s: int = 86_400  #: a WAIT group without a live worker blocks the stream for this time

    def __post_init__(self) -> None:
        for field, least in _LEAST.items():
            if getattr(self, field) < least:
                raise ConfigError(f"option {field} must be at least {least}, not {getattr(self, field)}")
        for field, most in _MOST.items():
            if getattr(self, field) > most:
                raise ConfigError(f"option {field} must be at most {most}, not {getattr(self, field)}")
        # Round before the check, because the rounded value is stored and checked again when it is read.
        rate = float32(self.qps)
        if not 0 <= rate < math.inf:
            raise ConfigError(f"option qps must be a number of at least 0, not {self.qps}")
        msgspec.structs.force_setattr(self, "qps", rate)


_LEAST = dict(burst=0, max_events=1, max_interval_s=1, event_ttl_s=1, record_ttl_s=60, max_stored=100)
_LEAST |= dict(max_records=100, incoming_bytes=MIB, changes_bytes=MIB, dead_bytes=65_536, hold_s=1)
_LEAST |= dict(refresh_s=1, occurrences_s=0)
_TEN_YEARS_S = 10 * 366 * 86_400
#: One record holds all max_events. The longest interval is the longest that a Go Duration holds, in nanoseconds.
_MOST = dict(max_events=1_000, burst=2**31 - 1, max_interval_s=2**63 // 10**9, event_ttl_s=_TEN_YEARS_S)
_MOST |= dict(record_ttl_s=_TEN_YEARS_S, hold_s=_TEN_YEARS_S)
_MOST |= dict(refresh_s=86_400, occurrences_s=14 * 86_400)


def float32(number: float) -> float:
    """Return *number* as client-go's float32 holds it, widened again; infinite if it is too large for one."""
    try:
        widened: float = struct.unpack("<f", struct.pack("<f", number))[0]
    except OverflowError:
        return math.copysign(math.inf, number)
    return widened


def read_secret(variable: str, path: str) -> str:
    """Read the file at *path*, which *variable* names. White space around its text is its editor's, and taken off.

    Raises: ConfigError: it cannot be read, or is no UTF-8. None of its text is in the error, which goes into logs.
    """
    try:
        with open(path, encoding="utf-8") as file:
            return file.read().strip()
    except OSError as error:
        raise ConfigError(f"{variable} cannot be read: {path}: {error.strerror or error}") from error
    except UnicodeDecodeError:  # its message quotes a byte of the secret
        raise ConfigError(f"{variable} cannot be read: {path} is not UTF-8") from None


def _parse(variable: str, text: str, kind: Any) -> Any:
    try:
        if kind is str:
            return text
        if issubclass(kind, StrEnum):
            return kind(text.lower())
        return kind(text)
    except ValueError as error:
        choices = f" (one of {', '.join(kind)})" if isinstance(kind, type) and issubclass(kind, StrEnum) else ""
        raise ConfigError(f"{variable}={text!r} is not a valid {kind.__name__}{choices}") from error
