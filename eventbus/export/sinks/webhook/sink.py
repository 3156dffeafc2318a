"""Posts events to an HTTPS endpoint as signed CloudEvents 1.0, each with a delivery id for deduplication.

EVENTBUS_WEBHOOK_MODE            structured (default), binary, or batch
EVENTBUS_WEBHOOK_SECRET, …_FILE  signs: X-Eventbus-Signature: sha256=<hex HMAC of "<X-Eventbus-Timestamp>.<body>">
EVENTBUS_WEBHOOK_TOKEN, …_FILE   Authorization: Bearer
EVENTBUS_EXPORT_HEADERS, …_FILE  more headers, a line each
EVENTBUS_WEBHOOK_CA_FILE         trust these authorities instead of the system's
EVENTBUS_WEBHOOK_ALLOW_HOSTS     names that may be in our own network, on any port and without TLS, with commas
EVENTBUS_WEBHOOK_SOURCE          the CloudEvents' source (default /eventbus)
EVENTBUS_WEBHOOK_REQUESTS        requests under way at once, 1 to 64 (default 8), one at a time an object; not for batch
"""

from __future__ import annotations

import hashlib
import hmac
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from enum import StrEnum
from functools import partial
from hashlib import blake2b
from typing import Any, Final
from urllib.parse import urlsplit

from cloudevents.core.bindings.http import HTTPMessage, to_binary, to_structured
from cloudevents.core.exceptions import BaseCloudEventException
from cloudevents.core.formats.json import JSONFormat
from cloudevents.core.v1.event import CloudEvent

from eventbus.errors import (
    ConfigError,
    EventBusError,
    EventUnbuildable,
    NotSent,
    SinkUnreachable,
    Throttled,
    UnexpectedReply,
)
from eventbus.export.sinks.common import CLOUD_EVENT_SOURCE, CLOUD_EVENT_TYPE, AppendsBatches, check_host, storable_core
from eventbus.export.sinks.contract import SinkAnswer, SinkMode, SinkWrite, delivery_id, object_of
from eventbus.export.sinks.http_batch import HttpBatchSink, Request, Verdict, given_headers, guarded_client
from eventbus.export.sinks.registry import SinkOptions
from eventbus.model.event import Event
from eventbus.util.http.guarded_http import MAX_REPLY_BYTES, GuardedClient, Reply, error_of
from eventbus.util.log import log

SECRET, TOKEN = "EVENTBUS_WEBHOOK_SECRET", "EVENTBUS_WEBHOOK_TOKEN"

#: Of one request in batch mode.
BATCH_EVENTS: Final = 100
BATCH_BYTES: Final = 512 * 1024
#: Requests under way at once, of one sink: by default, and at the most.
REQUESTS: Final = 8
MOST_REQUESTS: Final = 64
#: No request of a `write` begins later than this. So little is repeated after a death, and a stop is not kept waiting.
WRITE_S: Final = 1.0


class Mode(StrEnum):
    """The form of a CloudEvent in HTTP."""

    STRUCTURED = "structured"
    BINARY = "binary"
    BATCH = "batch"


def secret_headers(options: SinkOptions, request: Request) -> dict[str, str]:
    """Return the headers that authenticate *request*. The secrets are read again, because a file may change.

    Raises: ConfigError: a secret cannot be read.
    """
    signing_key, token = options.ascii_secret(SECRET), options.ascii_secret(TOKEN)
    headers = given_headers(options)
    if options.bus_id:
        headers["eventbus-bus"] = options.bus_id
    if token:
        headers["authorization"] = f"Bearer {token}"
    if signing_key:
        timestamp = str(int(time.time()))
        headers["x-eventbus-timestamp"] = timestamp
        headers["x-eventbus-signature"] = f"sha256={signature(signing_key, timestamp, request.body)}"
    return headers


def make_webhook_sink(url: str, options: SinkOptions) -> WebhookSink | HttpBatchSink:
    """Make the sink of `https://…`. Raises: ConfigError."""
    environ = options.environ
    mode = _mode(environ.get("EVENTBUS_WEBHOOK_MODE", ""))
    sign = partial(secret_headers, options)
    sign(Request(url, b"", {}))  # report an invalid secret at start
    requests = _requests(environ.get("EVENTBUS_WEBHOOK_REQUESTS", ""))
    client = guarded_client(url, options, connections=requests)
    source = environ.get("EVENTBUS_WEBHOOK_SOURCE", "") or CLOUD_EVENT_SOURCE
    if mode is Mode.BATCH:
        return HttpBatchSink(options.name, CloudEventBatches(url, source), client=client, sign=sign)
    build = partial(binary if mode is Mode.BINARY else structured, url, source)
    return WebhookSink(options.name, url, client=client, sign=sign, build=build, requests=requests)


class WebhookSink(AppendsBatches):
    """One POST for each write. The endpoint deduplicates by Idempotency-Key, which is also the CloudEvent's id.

    Several requests are sent at once, but only one at a time for each object. So a slow endpoint does not reduce
    throughput, and the events of one object arrive in order.

    Meaning of the answers: 2xx written; 409 written before; 429, and 503 with Retry-After, Throttled; 500 and unknown
    5xx UnexpectedReply; answers that concern every event (no such page, no permission, moved) SinkUnreachable; other
    4xx EventRejected.
    """

    mode = SinkMode.APPEND
    ordered = True

    def __init__(
        self,
        name: str,
        url: str,
        *,
        client: GuardedClient,
        sign: Callable[[Request], dict[str, str]],
        build: Callable[[Event], Request],
        requests: int,
    ) -> None:
        self.name = name
        self._requests = requests
        self._threads: ThreadPoolExecutor | None = None
        self._away = False  #: the last call has found that the endpoint does not answer
        self._url = url
        self._client = client
        self._sign = sign
        self._build = build

    def __repr__(self) -> str:
        # Not the URL: the path of many a webhook is its password.
        return f"<{type(self).__name__} {self.name}>"

    def check(self) -> None:
        """Look up the host. Raises: ConfigError: the host does not exist."""
        check_host(urlsplit(self._url).hostname or "")

    def create(self, event: Event) -> Event:
        """Send it. Returns: *event*; the endpoint has nothing to say. Raises: as `EventSink`."""
        request = self._build(event)
        try:
            headers = {"user-agent": "eventbus", **request.headers, **self._sign(request)}
        except ConfigError as error:
            raise SinkUnreachable(str(error)) from error
        refused = error_of(self._client.post(self._url, headers, request.body))
        if refused is not None:
            raise refused
        return event

    def write(self, writes: Sequence[SinkWrite]) -> Sequence[SinkAnswer]:
        """Send all of them, several at once; those of one object one after the other.

        After a failure that may pass, later ones of its object are NotSent; after an outage, all that are left.
        """
        objects: dict[tuple[str, str, str], list[int]] = {}
        for place, write in enumerate(writes):
            objects.setdefault(object_of(write.event), []).append(place)
        call = _Call(writes, self._answer, list(objects.values()))
        if self._away and not call.probe():
            return call.answers
        threads = min(self._requests, len(objects))
        if threads > 1 and self._threads is None:
            self._threads = ThreadPoolExecutor(self._requests - 1, thread_name_prefix="eventbus-webhook")
        helpers = []
        for _ in range(threads - 1):
            try:
                assert self._threads is not None
                helpers.append(self._threads.submit(call.work))
            except RuntimeError:  # the process may not start another thread: fewer requests at once
                break
        call.work()
        for helper in helpers:
            if not helper.cancel():  # it has begun
                helper.result()
        self._away = call.away
        return call.answers

    def close(self) -> None:
        if self._threads is not None:
            self._threads.shutdown()
        self._client.close()

    def _answer(self, event: Event) -> SinkAnswer:
        try:
            return self.create(event)
        except EventBusError as error:
            return error
        except OSError as error:
            return SinkUnreachable(f"{type(error).__name__}: {error}")
        except Exception as error:
            log.warning("sink %s raised an unexpected error", self.name, exc_info=True)
            return UnexpectedReply(f"{type(error).__name__}: {error}")


class _Call:
    """One call of `WebhookSink.write`. Each of several threads takes an object, and sends its writes in order."""

    def __init__(
        self, writes: Sequence[SinkWrite], answer: Callable[[Event], SinkAnswer], objects: Sequence[list[int]]
    ) -> None:
        self.answers: list[SinkAnswer] = [NotSent("not sent yet")] * len(writes)
        self.away = False
        self._writes = writes
        self._answer = answer
        self._objects = deque(objects)
        self._until = time.monotonic() + WRITE_S

    def probe(self) -> bool:
        """Send only the first write. Return False if the endpoint still does not answer."""
        first = self._objects[0]
        goes_on = self._send(first.pop(0))
        if not goes_on:
            self._objects.popleft()
        return not self.away

    def work(self) -> None:
        """Send until nothing is left, the time is over, or the endpoint does not answer. Any number of threads."""
        while True:
            try:
                places = self._objects.popleft()
            except IndexError:
                return
            for place in places:
                if self.away or time.monotonic() >= self._until:
                    return
                if not self._send(place):
                    break

    def _send(self, place: int) -> bool:
        """Send one write. Return False if later writes about its object have to wait."""
        answer = self.answers[place] = self._answer(self._writes[place].event)
        if isinstance(answer, SinkUnreachable | Throttled):
            self.away = True
        return not isinstance(answer, SinkUnreachable | Throttled | UnexpectedReply)


class CloudEventBatches:
    """The `BatchFormat` of CloudEvents in JSON.

    Idempotency-Key identifies the whole batch; the endpoint deduplicates by each event's id.
    """

    most_events = BATCH_EVENTS
    most_bytes = BATCH_BYTES
    most_reply_bytes = MAX_REPLY_BYTES
    opening: Sequence[Request] = ()

    def __init__(self, url: str, source: str) -> None:
        self._url = url
        self._source = source

    def encode(self, write: SinkWrite) -> bytes:
        return structured(self._url, self._source, write.event).body

    def request(self, parts: Sequence[bytes]) -> Request:
        return batch(self._url, parts)

    def judge(self, reply: Reply, events: int) -> Verdict:
        return Verdict(error_of(reply))


def signature(key: str, timestamp: str, body: bytes) -> str:
    """Return the hex HMAC-SHA256 of `<timestamp>.<body>`; the timestamp is in seconds since 1970."""
    return hmac.new(key.encode(), f"{timestamp}.".encode() + body, hashlib.sha256).hexdigest()


def _mode(text: str) -> Mode:
    try:
        return Mode(text or Mode.STRUCTURED)
    except ValueError:
        raise ConfigError(f"EVENTBUS_WEBHOOK_MODE is {text!r}, and must be one of {', '.join(Mode)}") from None


def _requests(text: str) -> int:
    if not text:
        return REQUESTS
    if text.isascii() and text.isdecimal() and 1 <= int(text) <= MOST_REQUESTS:
        return int(text)
    raise ConfigError(f"EVENTBUS_WEBHOOK_REQUESTS is {text!r}, and must be a whole number from 1 to {MOST_REQUESTS}")


BATCH_TYPE: Final = "application/cloudevents-batch+json; charset=utf-8"

_FORMAT: Final = JSONFormat()


def structured(url: str, source: str, event: Event) -> Request:
    """Return a request with the whole CloudEvent as JSON. Raises: EventUnbuildable."""
    return _request(url, event, to_structured(_cloud_event(event, source), _FORMAT))


def binary(url: str, source: str, event: Event) -> Request:
    """Return a request with the core/v1 Event as body, the attributes as ce- headers. Raises: EventUnbuildable."""
    return _request(url, event, to_binary(_cloud_event(event, source), _FORMAT))


def batch(url: str, bodies: Sequence[bytes]) -> Request:
    """Return a request with all *bodies*, which are of `structured`.

    The SDK has no batches yet; an array of its JSON is one."""
    body = b"[" + b",".join(bodies) + b"]"
    key = blake2b(body, digest_size=16).hexdigest()
    return Request(url, body, {"content-type": BATCH_TYPE, "idempotency-key": key})


def _request(url: str, event: Event, made: HTTPMessage) -> Request:
    return Request(url, made.body, {**made.headers, "idempotency-key": delivery_id(event)})


def _cloud_event(event: Event, source: str) -> CloudEvent:
    core = storable_core(event)
    about = core["involvedObject"]
    attributes: dict[str, Any] = {
        "id": delivery_id(event),
        "source": source,
        "type": CLOUD_EVENT_TYPE,
        "specversion": "1.0",
        "datacontenttype": "application/json",
        "subject": "/".join(about[key] for key in ("namespace", "kind", "name") if about.get(key)),
        "time": event.last_seen,
        "eventtype": core.get("type"),
        "reason": core.get("reason"),
        "sequence": event.metadata.resource_version,
    }
    try:
        return CloudEvent({key: value for key, value in attributes.items() if value}, core)
    except (BaseCloudEventException, ValueError, TypeError) as error:
        raise EventUnbuildable(f"no CloudEvent can be made of it: {error}") from error
