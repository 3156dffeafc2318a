"""Helpers of several sinks: single writes, events that every system can store, their columns, options, certificates."""

from __future__ import annotations

import re
import socket
import ssl
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

import msgspec

from eventbus.errors import ConfigError, EventUnbuildable, InvalidEvent
from eventbus.export.sinks.contract import EventPatch, SinkAnswer, SinkWrite, Verb
from eventbus.export.sinks.registry import SinkOptions
from eventbus.model.decodable import decodable
from eventbus.model.encoding.event_json import encode_core, to_core
from eventbus.model.event import Event
from eventbus.util.text import cut_bytes, printable, repair

#: The type and the default source of an event as a CloudEvent.
CLOUD_EVENT_TYPE: Final = "io.eventbus.event.v1"
CLOUD_EVENT_SOURCE: Final = "/eventbus"
#: Of the addresses of a cluster.
MOST_SERVERS: Final = 16

#: The start of every `json_line`.
LINE_START: Final = b'{"deliveryId":'

#: Versions are compared as 64 bit integers, in PostgreSQL too.
_MAX_VERSION: Final = 2**63 - 1


class AppendsBatches(ABC):
    """The single writes of a `BatchSink`: each is a batch of one."""

    @abstractmethod
    def write(self, writes: Sequence[SinkWrite]) -> Sequence[SinkAnswer]: ...

    def create(self, event: Event) -> Event:
        """Write it alone. Returns: *event*. Raises: as `EventSink`."""
        (answer,) = self.write([SinkWrite.of(Verb.CREATE, event)])
        if isinstance(answer, Exception):
            raise answer
        return answer

    def update(self, event: Event) -> Event:
        return self.create(event)

    def patch(self, event: Event, patch: EventPatch) -> Event:
        return self.create(event)


def storable_core(event: Event) -> dict[str, Any]:
    """Return the plain dict of *event*'s core/v1 JSON, with NUL and lone surrogates replaced by U+FFFD."""
    _, core = storable(event)
    return core


def storable(event: Event) -> tuple[Event, dict[str, Any]]:
    """Return *event* with NUL and lone surrogates replaced by U+FFFD, and the plain dict of its core/v1 JSON."""
    try:
        return event, to_core(event)
    except InvalidEvent:
        event = repaired(event)
    try:
        return event, to_core(event)
    except InvalidEvent as error:
        raise EventUnbuildable(f"no core/v1 object can be made of it: {error}") from error


def core_json(event: Event) -> bytes:
    """Return *event*'s core/v1 JSON, with NUL and lone surrogates replaced by U+FFFD. Raises: EventUnbuildable."""
    try:
        return encode_core(event)
    except InvalidEvent:
        return msgspec.json.encode(storable_core(event))


def json_line(write: SinkWrite) -> bytes:
    """Return a line of JSON Lines with the delivery id and the core/v1 event. Raises: EventUnbuildable."""
    return b'%s%s,"event":%s}\n' % (LINE_START, msgspec.json.encode(write.delivery_id), core_json(write.event))


def repaired(event: Event) -> Event:
    """Return *event* with NUL and lone surrogates replaced by U+FFFD. Raises: EventUnbuildable."""
    try:
        return msgspec.convert(_repaired(msgspec.to_builtins(event, builtin_types=(bytes,))), decodable(Event))
    except (msgspec.ValidationError, TypeError, OverflowError) as error:
        raise EventUnbuildable(f"no event can be made of it: {error}") from error


def row_of(event: Event) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the columns of *event* in stores for search, and its core/v1 object. Raises: EventUnbuildable."""
    version, (event, core) = version_of(event), storable(event)
    about, meta, source = event.involved_object, event.metadata, event.source
    return {
        "namespace": meta.namespace,
        "name": meta.name,
        "uid": meta.uid,
        "version": version,
        "object_kind": about.kind,
        "object_name": about.name,
        "object_uid": about.uid,
        "type": event.type,
        "reason": event.reason,
        "message": event.message,
        "component": source.component or event.reporting_component,
        "host": source.host,
        "count": event.times_seen,
        "first_seen": event.first_timestamp or event.event_time or meta.creation_timestamp,
        "last_seen": event.last_seen or datetime.now(UTC),
    }, core


def pieces(
    parts: Sequence[tuple[int, bytes]], most_bytes: int, most_parts: int = sys.maxsize
) -> Iterator[list[tuple[int, bytes]]]:
    """Cut *parts*, each with its place, into pieces for one request each. A larger part is a piece alone."""
    some: list[tuple[int, bytes]] = []
    size = 0
    for part in parts:
        if some and (len(some) == most_parts or size + len(part[1]) > most_bytes):
            yield some
            some, size = [], 0
        some.append(part)
        size += len(part[1])
    if some:
        yield some


def version_of(event: Event) -> int:
    """Return the store's version of *event*. Raises: EventUnbuildable: it is not a decimal below 2^63."""
    text = event.metadata.resource_version
    if text.isascii() and text.isdecimal() and (version := int(text)) <= _MAX_VERSION:
        return version
    raise EventUnbuildable(f"its resourceVersion {text[:40]!r} is not a decimal below 2^63")


def _repaired(value: Any) -> Any:
    if isinstance(value, str):
        return repair(value)
    if isinstance(value, dict):
        return {repair(key): _repaired(item) for key, item in value.items()}
    return value


#: The resolver's word that there is no such name; others say that it could not ask.
_NO_SUCH_NAME: Final = frozenset(
    code for word in ("EAI_NONAME", "EAI_NODATA") if (code := getattr(socket, word, None)) is not None
)


def check_host(*hosts: str) -> None:
    """Look up *hosts*; one known host is enough. Blocks as the system's resolver does.

    Raises: ConfigError: none of the names exists."""
    for host in hosts:
        try:
            socket.getaddrinfo(host, None)
        except socket.gaierror as error:
            if error.errno not in _NO_SUCH_NAME:
                return
        except (OSError, UnicodeError):
            return
        else:
            return
    if hosts:
        cure = "correct the sink's URL, or add the name to the name server or /etc/hosts"
        raise ConfigError(f"the sink's host {' or '.join(hosts)} is unknown: {cure}", cure=cure)


def servers_of(parts: SplitResult, default_port: int) -> list[str]:
    """Return `host:port` of each server in the URL. Raises: ConfigError."""
    hosts = parts.netloc.rpartition("@")[2].split(",")
    if len(hosts) > MOST_SERVERS:
        raise ConfigError(f"the sink's URL has {len(hosts)} servers; at most {MOST_SERVERS}")
    servers = []
    for host in hosts:
        try:
            one = urlsplit(f"//{host}")
            name, port = one.hostname, one.port or default_port
        except ValueError:
            name = None
        if not name or "@" in host:
            example = f"{parts.scheme}://host:{default_port}"
            raise ConfigError(f"the sink's URL must name its servers as {example}, several with commas")
        servers.append(f"[{name}]:{port}" if ":" in name else f"{name}:{port}")
    return servers


def credentials_of(parts: SplitResult, options: SinkOptions, variable: str) -> tuple[str, str]:
    """Return the user of the URL, "" if it has none, and the password: of the URL, or of *variable* or its file.

    Raises: ConfigError: a user without a password, or a password in the URL without a user."""
    user, password = unquote(parts.username or ""), unquote(parts.password or "")
    if password and not user:
        raise ConfigError("the sink's URL has a password without a user, so it would not be used: give both")
    password = password or options.secret(variable)
    if user and not password:
        raise ConfigError(f"the user in the sink's URL needs {variable}(_FILE)")
    return user, password


def error_text(error: object) -> str:
    """Return the text of an error of a client library, in one line, for messages and `status`."""
    return cut_bytes(printable(" ".join(str(error).split()) or type(error).__name__), 300)


def query_of(url: str, *known: str) -> dict[str, str]:
    """Return the options in the query of *url*. Raises: ConfigError: one is not *known*, or is there twice."""
    pairs = parse_qsl(urlsplit(url).query, keep_blank_values=True)
    for name, _ in pairs:
        if name not in known:
            raise ConfigError(f"the sink's URL has no option {name!a}: it may have {', '.join(known) or 'none'}")
    if len(dict(pairs)) < len(pairs):
        raise ConfigError("the sink's URL has an option twice")
    return dict(pairs)


def retention_days(text: str) -> int:
    """Return the days of `retention=90d` in a sink's URL. Raises: ConfigError."""
    days = re.fullmatch(r"([1-9]\d{0,3})d", text)
    if days is None:
        raise ConfigError(f"retention={text!a} in the sink's URL: give whole days, like retention=90d")
    return int(days[1])


def tls_context(environ: Mapping[str, str], prefix: str, scheme: str) -> ssl.SSLContext | None:
    """Return the context for the certificates of <prefix>_CA_FILE, _CERT_FILE and _KEY_FILE; None: *scheme* has no TLS.

    Raises: ConfigError: a file cannot be used, or is given for a URL without TLS."""
    files = {name: environ.get(f"{prefix}_{name}_FILE") or None for name in ("CA", "CERT", "KEY")}
    given = [f"{prefix}_{name}_FILE" for name, path in files.items() if path]
    if not scheme.endswith("+tls"):
        if given:
            raise ConfigError(f"{given[0]} is set, but {scheme}:// does not use TLS: use {scheme}+tls://, or unset it")
        return None
    if files["KEY"] and not files["CERT"]:
        raise ConfigError(f"{prefix}_KEY_FILE needs {prefix}_CERT_FILE")
    try:
        context = ssl.create_default_context(cafile=files["CA"])
        if files["CERT"]:
            context.load_cert_chain(files["CERT"], files["KEY"])
    except OSError as error:
        raise ConfigError(f"{' or '.join(given)} cannot be used: {error}") from error
    return context
