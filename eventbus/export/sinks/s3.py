"""Writes batches of events as objects of S3, or of a server with the same API: JSON Lines, compressed by gzip.

s3://BUCKET/PREFIX?region=eu-central-1          of AWS
s3+https://host:9000/BUCKET/PREFIX, s3+http://  of another server
    &every=60s                                  collect events for so long; a backlog is written without a pause

EVENTBUS_S3_ACCESS_KEY_ID, EVENTBUS_S3_SECRET_ACCESS_KEY, …_FILE    else AWS_… variables, or the role of the machine
EVENTBUS_S3_CA_FILE                                                 trusted CAs besides the system's
"""

from __future__ import annotations

import gzip
import re
from collections.abc import Callable, Sequence
from datetime import timedelta
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

import obstore
from obstore.exceptions import BaseError
from obstore.store import S3Store

from eventbus.errors import ConfigError, EventUnbuildable, SinkUnreachable
from eventbus.export.sinks.common import AppendsBatches, check_host, error_text, json_line, pieces, query_of, version_of
from eventbus.export.sinks.contract import SinkAnswer, SinkMode, SinkWrite
from eventbus.export.sinks.registry import SinkOptions

if TYPE_CHECKING:
    from obstore.store import ClientConfig, S3Config

DEFAULT_REGION: Final = "us-east-1"
DEFAULT_EVERY_S: Final = 60
MOST_EVERY_S: Final = 3600
#: Bytes of an object before compression; a larger event is an object alone.
MOST_BYTES: Final = 32 * 1024 * 1024
ACCESS_KEY, SECRET_KEY = "EVENTBUS_S3_ACCESS_KEY_ID", "EVENTBUS_S3_SECRET_ACCESS_KEY"

_BUCKET: Final = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]\Z")
_PREFIX: Final = re.compile(r"[A-Za-z0-9!_.*'()/=-]{0,256}\Z")
_REGION: Final = re.compile(r"[a-z0-9-]{1,64}\Z")
_SECONDS: Final = {"s": 1, "m": 60, "h": 3600}


def make_s3_sink(url: str, options: SinkOptions) -> S3Sink:
    """Make the sink of `s3://BUCKET/PREFIX` or `s3+https://host/BUCKET/PREFIX`. Raises: ConfigError."""
    parts = urlsplit(url)
    query = query_of(url, "region", "every")
    path = parts.path.strip("/")
    host = "" if parts.scheme == "s3" else parts.netloc
    bucket, prefix = (parts.netloc, path) if parts.scheme == "s3" else (path.partition("/")[0], path.partition("/")[2])
    if "@" in parts.netloc:
        raise ConfigError(f"the sink's URL must have no user and password: give {ACCESS_KEY} and {SECRET_KEY}(_FILE)")
    if not _BUCKET.match(bucket) or (parts.scheme != "s3" and not parts.hostname):
        raise ConfigError("the sink's URL must be s3://BUCKET/PREFIX or s3+https://host/BUCKET/PREFIX")
    if not _PREFIX.match(prefix) or {".", ".."} & {*prefix.split("/")}:
        raise ConfigError(f"the prefix {prefix!a} in the sink's URL: give letters, digits, and / ! _ . * ' ( ) = -")
    region = query.get("region", DEFAULT_REGION)
    if not _REGION.match(region):
        raise ConfigError(f"region={region!a} in the sink's URL is no name of a region")
    every = re.fullmatch(r"(\d{1,4})([smh])", query.get("every", f"{DEFAULT_EVERY_S}s"))
    every_s = int(every[1]) * _SECONDS[every[2]] if every else MOST_EVERY_S + 1
    if every_s > MOST_EVERY_S:
        raise ConfigError(f"every={query['every']!a} in the sink's URL: give a time of at most 1h, like 30s or 5m")
    config: S3Config = {"region": region}
    if host:
        config["endpoint"] = f"{parts.scheme.partition('+')[2]}://{host}"

    def open_store() -> S3Store:
        return S3Store(
            bucket,
            prefix=prefix or None,
            config={**config, **_credentials(options)},
            client_options=_client_options(options, with_tls=parts.scheme != "s3+http"),
            # The loop retries.
            retry_config={"max_retries": 0, "retry_timeout": timedelta(seconds=1)},
        )

    _credentials(options)  # report an unreadable secret at start
    return S3Sink(options.name, open_store, host=parts.hostname or "" if host else "", collect_s=float(every_s))


def _credentials(options: SinkOptions) -> S3Config:
    access, secret = options.ascii_secret(ACCESS_KEY), options.ascii_secret(SECRET_KEY)
    if bool(access) != bool(secret):
        raise ConfigError(f"give both {ACCESS_KEY} and {SECRET_KEY}(_FILE), or none of them")
    return {"access_key_id": access, "secret_access_key": secret} if access else {}


def _client_options(options: SinkOptions, *, with_tls: bool) -> ClientConfig:
    timeout = timedelta(seconds=options.timeout_s)
    given: ClientConfig = {"timeout": timeout, "connect_timeout": timeout, "allow_http": not with_tls}
    if path := options.environ.get("EVENTBUS_S3_CA_FILE"):
        try:
            given["root_certificate"] = Path(path).read_bytes()
        except OSError as error:
            raise ConfigError(f"EVENTBUS_S3_CA_FILE cannot be used: {error}") from error
    return given


class S3Sink(AppendsBatches):
    """Writes an object for each batch. Its name comes from its content, so a repeat of the batch changes nothing.

    Another batch has another name, also if some of its events are the same: no object is overwritten by other content.
    """

    mode = SinkMode.APPEND

    def __init__(self, name: str, open_store: Callable[[], S3Store], *, host: str, collect_s: float) -> None:
        self.name = name
        self.collect_s = collect_s
        self._open_store = open_store
        self._host = host
        self._store: S3Store | None = None

    def check(self) -> None:
        """Look up the host. Raises: ConfigError: it does not exist."""
        check_host(*filter(None, [self._host]))

    def write(self, writes: Sequence[SinkWrite]) -> Sequence[SinkAnswer]:
        """Write them as one object, or as several if they are too large for one."""
        answers: list[SinkAnswer] = [SinkUnreachable("not written yet")] * len(writes)
        lines: list[tuple[int, bytes]] = []
        for place, write in enumerate(writes):
            try:
                version_of(write.event)
                lines.append((place, json_line(write)))
            except EventUnbuildable as error:
                answers[place] = error
        for some in pieces(lines, MOST_BYTES):
            if not self._put(writes, some, answers):
                break
        return answers

    def close(self) -> None:
        self._store = None

    def _put(self, writes: Sequence[SinkWrite], some: Sequence[tuple[int, bytes]], answers: list[SinkAnswer]) -> bool:
        body = b"".join([line for _, line in some])
        name = object_name([writes[place] for place, _ in some], body)
        error: SinkUnreachable | None = None
        try:
            if self._store is None:
                self._store = self._open_store()
            obstore.put(self._store, name, gzip.compress(body, 6, mtime=0), use_multipart=False)
        except ConfigError as problem:
            error = SinkUnreachable(str(problem))
        except (BaseError, OSError, ValueError) as problem:
            # Only the first line: the others quote the request.
            error = SinkUnreachable(error_text(str(problem).partition("\n")[0]))
            self._store = None  # the next one reads the credentials again
        for place, _ in some:
            answers[place] = error or writes[place].event
        return error is None


def object_name(writes: Sequence[SinkWrite], body: bytes) -> str:
    """Return BUS/PARTITION/YYYY/MM/DD/FIRST-LAST-DIGEST.ndjson.gz, of the store's versions of the events in *body*."""
    versions = [version_of(write.event) for write in writes]
    first = min(writes, key=lambda write: version_of(write.event)).event
    day = f"{first.last_seen:%Y/%m/%d}" if first.last_seen is not None else "unknown"
    digest = blake2b(body, digest_size=6).hexdigest()
    return f"{writes[0].origin or 'bus'}/{day}/{min(versions):019d}-{max(versions):019d}-{digest}.ndjson.gz"
