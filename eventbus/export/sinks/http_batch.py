"""Writes batches of events over HTTP. A `BatchFormat` for each system makes the requests and reads the answers.

EVENTBUS_EXPORT_HEADERS, …_FILE  more headers, a line each: `Authorization: Bearer …`; read again for each request
EVENTBUS_WEBHOOK_CA_FILE, EVENTBUS_WEBHOOK_ALLOW_HOSTS  as for webhooks
"""

from __future__ import annotations

import gzip
import re
import ssl
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Final, Protocol, runtime_checkable
from urllib.parse import urlsplit, urlunsplit

import msgspec

from eventbus.errors import (
    ConfigError,
    EventRejected,
    EventUnbuildable,
    NotSent,
    SinkError,
    SinkUnreachable,
    Throttled,
    UnexpectedReply,
)
from eventbus.export.sinks.common import AppendsBatches, check_host, pieces, version_of
from eventbus.export.sinks.contract import SinkAnswer, SinkMode, SinkWrite
from eventbus.export.sinks.registry import SinkOptions
from eventbus.model.event import Event
from eventbus.util.http.guarded_http import GuardedClient, Reply, error_of
from eventbus.util.http.ssrf import Guard

HEADERS: Final = "EVENTBUS_EXPORT_HEADERS"
CA_FILE: Final = "EVENTBUS_WEBHOOK_CA_FILE"

#: The upper limit of a request's timeout, also if --timeout is longer: a server may be hostile.
LONGEST_S: Final = 10.0
#: Bytes of a request that are compressed; smaller ones gain nothing.
GZIP_BYTES: Final = 1024
#: Of an answer with events of the system.
MOST_ANSWER_BYTES: Final = 16 * 1024 * 1024
#: Events of such an answer, or of a request to remove events.
PAGE_EVENTS: Final = 250
#: Of the headers that an operator gives.
MOST_HEADERS: Final = 32

_HEADER: Final = re.compile(r"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([ -~]*)")
#: They belong to the request, and another value would break it.
_OURS: Final = frozenset({"content-length", "content-encoding", "transfer-encoding", "content-type", "host"})


class Request(msgspec.Struct, frozen=True):
    """One request. Header names are in lower case."""

    url: str
    body: bytes
    headers: Mapping[str, str]
    method: str = "POST"


class Verdict(msgspec.Struct, frozen=True):
    """The meaning of a reply. *error*: of the whole request. *each*: of its events, in order; (): all are written.

    *rejected*: events that the system has rejected without saying which of them. *culprit*: the place of the event that
    *error* is about; None: unknown.
    """

    error: SinkError | None = None
    each: Sequence[SinkError | None] = ()
    rejected: int = 0
    culprit: int | None = None


class BatchFormat(Protocol):
    """The requests and replies of one system. No I/O."""

    most_events: int  #: of one request
    most_bytes: int  #: of one request before compression; a larger event is sent alone
    most_reply_bytes: int  #: of a reply that is read

    @property
    def opening(self) -> Sequence[Request]:
        """Return the requests that prepare the system, such as those for its tables. They may be repeated."""
        ...

    def encode(self, write: SinkWrite) -> bytes:
        """Return the part of a request that is this write's. Raises: EventUnbuildable. Not called while it runs."""
        ...

    def request(self, parts: Sequence[bytes]) -> Request:
        """Return the request with *parts*. The same parts make the same request."""
        ...

    def judge(self, reply: Reply, events: int) -> Verdict:
        """Return the meaning of the *reply* to a request with so many events."""
        ...


#: Sends a request that writes nothing new. Raises: EventRejected: it is not allowed; SinkUnreachable, Throttled.
Ask = Callable[[Request], Reply]


@runtime_checkable
class DeletingFormat(BatchFormat, Protocol):
    """A format of a system that can find and remove events: see `DeletingSink`."""

    def held(self, ask: Ask, origin: str, *, after: int, until: int, since: datetime, most: int) -> Sequence[Event]:
        """Return events with *origin* as `DeletingSink.held`. At most `PAGE_EVENTS`, of the lowest versions."""
        ...

    def delete(self, ask: Ask, events: Sequence[Event]) -> int:
        """Remove *events*, at most `PAGE_EVENTS`. Return how many the system had."""
        ...


class HttpBatchSink(AppendsBatches):
    """Sends as many events in one request as its format allows.

    Meaning of the replies, unless the format has another: see `error_of`. A request that the system rejects is halved
    until the event is found that it rejects; so is one that is too large (413).

    Args: sign: returns the headers of a request that are made of secrets; called for each request.
    """

    mode = SinkMode.APPEND
    ordered = True

    def __init__(
        self,
        name: str,
        batch_format: BatchFormat,
        *,
        client: GuardedClient,
        sign: Callable[[Request], dict[str, str]],
    ) -> None:
        self.name = name
        self._format = batch_format
        self._client = client
        self._sign = sign
        self._rejected = 0

    def __repr__(self) -> str:
        # Not the URL: the path of many a webhook is its password.
        return f"<{type(self).__name__} {self.name}>"

    def check(self) -> None:
        """Look up the host. Raises: ConfigError: the host does not exist."""
        check_host(urlsplit(self._format.request([]).url).hostname or "")

    def open(self) -> None:
        """Prepare the system. Raises: SinkUnreachable: it refused; Throttled."""
        for request in self._format.opening:
            error = error_of(self._send(request), "the server")
            if isinstance(error, Throttled | SinkUnreachable):
                raise error
            if error is not None:  # until an operator mends it, no event can be written
                raise SinkUnreachable(f"{request.method} {urlsplit(request.url).path}: {error}")

    def write(self, writes: Sequence[SinkWrite]) -> Sequence[SinkAnswer]:
        """Send them in order. After a request without an answer, the remaining writes are NotSent."""
        answers: list[SinkAnswer] = [NotSent("not sent yet")] * len(writes)
        parts: list[tuple[int, bytes]] = []
        for place, write in enumerate(writes):
            try:
                parts.append((place, self._format.encode(write)))
            except EventUnbuildable as unbuildable:
                answers[place] = unbuildable
        requests = deque(pieces(parts, self._format.most_bytes, self._format.most_events))
        accepted = rejected_alone = 0
        goes_on = True
        while requests and goes_on:
            some = requests.popleft()
            verdict = self._exchange([part for _, part in some])
            error = verdict.error
            if isinstance(error, EventRejected | UnexpectedReply) and len(some) > 1:
                if verdict.culprit is None and not accepted and rejected_alone > 1:
                    # It rejects everything: halves would be rejected, too, and double the number of requests.
                    requests.extendleft([part] for part in reversed(some))
                    continue
                middle = after = len(some) // 2
                if verdict.culprit is not None:
                    middle, after = verdict.culprit, verdict.culprit + 1
                    answers[some[middle][0]] = error
                requests.extendleft(part for part in (some[after:], some[:middle]) if part)
                continue
            accepted += error is None
            rejected_alone += error is not None
            self._rejected += verdict.rejected
            each = [error] * len(some) if error else verdict.each or [None] * len(some)
            for (place, _), problem in zip(some, each, strict=True):
                answers[place] = problem or writes[place].event
            goes_on = not any(isinstance(problem, SinkUnreachable | Throttled) for problem in each)
        return answers

    def take_rejected(self) -> int:
        """Return how many events the system has rejected without saying which, since the last call."""
        rejected, self._rejected = self._rejected, 0
        return rejected

    def close(self) -> None:
        self._client.close()

    def _exchange(self, parts: Sequence[bytes]) -> Verdict:
        try:
            return self._format.judge(self._send(self._format.request(parts)), len(parts))
        except (SinkUnreachable, Throttled) as error:
            return Verdict(error)

    def _send(self, request: Request, most_bytes: int = 0) -> Reply:
        try:
            headers = {"user-agent": "eventbus", **request.headers, **self._sign(request)}
        except ConfigError as error:  # a file of a secret has changed, and may change again
            raise SinkUnreachable(str(error)) from error
        most_bytes = most_bytes or self._format.most_reply_bytes
        return self._client.send(request.method, request.url, headers, request.body, most_bytes)


class DeletingHttpSink(HttpBatchSink):
    """A sink of a system that can find and remove events."""

    def __init__(
        self,
        name: str,
        batch_format: DeletingFormat,
        *,
        client: GuardedClient,
        sign: Callable[[Request], dict[str, str]],
    ) -> None:
        super().__init__(name, batch_format, client=client, sign=sign)
        self._deleting = batch_format

    def held(self, origin: str, *, after: int, until: int, since: datetime, most: int) -> Sequence[Event]:
        """Find the events of *origin* in a range of versions, seen since then. Raises: as `DeletingSink`."""
        found: list[Event] = []
        while len(found) < most:
            page = self._deleting.held(self._ask, origin, after=after, until=until, since=since, most=most)
            found += page
            if len(page) < PAGE_EVENTS:
                break
            after = max(map(version_of, page))
        return found[:most]

    def delete(self, events: Sequence[Event]) -> int:
        """Remove the changes of events that have these uids, counts and versions. Raises: as `DeletingSink`."""
        pages = (events[start : start + PAGE_EVENTS] for start in range(0, len(events), PAGE_EVENTS))
        return sum(self._deleting.delete(self._ask, page) for page in pages)

    def _ask(self, request: Request) -> Reply:
        reply = self._send(request, MOST_ANSWER_BYTES)
        error = error_of(reply, "the server")
        if isinstance(error, UnexpectedReply) or reply.status in (403, 404, 405, 409):
            # Not an outage: events are written all the same.
            raise EventRejected(str(error or reply.status))
        if error is not None:
            raise error
        return reply


def open_http_sink(url: str, options: SinkOptions, make_format: Callable[[str], BatchFormat]) -> HttpBatchSink:
    """Make the sink of a URL like `otlps://host/path` or `elasticsearch+https://host/index`.

    *make_format* is called with the URL as `http://…` or `https://…`. Raises: ConfigError.
    """
    url = http_url(url)
    client = guarded_client(url, options)
    bus = {"eventbus-bus": options.bus_id} if options.bus_id else {}
    given_headers(options)  # report an invalid one at start
    batch_format = make_format(url)

    def sign(_request: Request) -> dict[str, str]:
        return given_headers(options) | bus

    if isinstance(batch_format, DeletingFormat):
        return DeletingHttpSink(options.name, batch_format, client=client, sign=sign)
    return HttpBatchSink(options.name, batch_format, client=client, sign=sign)


def http_url(url: str) -> str:
    """Return *url* with the scheme http or https: that of `otlp`, `otlps`, `loki+https`."""
    parts = urlsplit(url)
    plain, tls = parts.scheme.endswith(("+http", "otlp")), parts.scheme.endswith(("+https", "otlps"))
    assert plain or tls, parts.scheme
    return urlunsplit(parts._replace(scheme="https" if tls else "http"))


def guarded_client(url: str, options: SinkOptions, *, connections: int = 1) -> GuardedClient:
    """Return a client for *url* with the guard and certificates of the environment. Raises: ConfigError."""
    guard = Guard.from_environ(options.environ)
    parts = guard.check_url(url)
    try:
        tls = ssl.create_default_context(cafile=options.environ.get(CA_FILE) or None)
    except OSError as error:
        raise ConfigError(f"{CA_FILE} cannot be used: {error}") from error
    guard.check_name(parts.hostname or "", parts.port or 443)
    return GuardedClient(guard, tls=tls, timeout_s=min(options.timeout_s, LONGEST_S), connections=connections)


def given_headers(options: SinkOptions) -> dict[str, str]:
    """Return the headers of EVENTBUS_EXPORT_HEADERS or of its file. Raises: ConfigError, without their values."""
    lines = [line.strip() for line in options.secret(HEADERS).splitlines() if line.strip()]
    if len(lines) > MOST_HEADERS:
        raise ConfigError(f"{HEADERS} has {len(lines)} headers; at most {MOST_HEADERS}")
    headers = {}
    for number, line in enumerate(lines, start=1):
        header = _HEADER.fullmatch(line)
        if header is None:
            raise ConfigError(f"{HEADERS}, line {number}: must be `Name: value`, in printable ASCII")
        if header[1].lower() in _OURS:
            raise ConfigError(f"{HEADERS}, line {number}: {header[1]} is set by eventbus")
        headers[header[1].lower()] = header[2]
    return headers


def compressed(url: str, body: bytes, content_type: str, headers: Mapping[str, str] | None = None) -> Request:
    """Return a POST of *body*, compressed by gzip if it is large."""
    more = {"content-type": content_type, **(headers or {})}
    if len(body) < GZIP_BYTES:
        return Request(url, body, more)
    # The lowest level: of events, the highest makes 10 % less of them and takes three times as long.
    return Request(url, gzip.compress(body, 1, mtime=0), more | {"content-encoding": "gzip"})
