"""Publishes events to a stream of NATS JetStream: a message for each change of an event.

nats://host:4222/STREAM, nats+tls://…    STREAM: EVENTBUS unless given; several servers of a cluster with commas
    ?subject=events.{namespace}.{kind}.{name}    of a message; also {type} and {reason}
    &create=false                                do not make the stream if it is missing
    &retention=90d                               of a stream that is made here

EVENTBUS_NATS_PASSWORD, …_FILE   of the user in the URL
EVENTBUS_NATS_TOKEN, …_FILE      instead of a user
EVENTBUS_NATS_CREDS_FILE         a .creds file: JWT and nkey
EVENTBUS_NATS_CA_FILE            trusted CAs instead of the system's
EVENTBUS_NATS_CERT_FILE, EVENTBUS_NATS_KEY_FILE  the client's certificate
"""

from __future__ import annotations

import asyncio
import re
import ssl
import threading
from collections.abc import Callable, Coroutine, Sequence
from hashlib import blake2b
from typing import Any, Final, TypeVar
from urllib.parse import SplitResult, quote, urlsplit

import msgspec
import nats.errors
import nats.js.errors
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.js.api import StreamConfig

from eventbus.errors import (
    ConfigError,
    EventRejected,
    EventUnbuildable,
    SinkError,
    SinkUnreachable,
    UnexpectedReply,
)
from eventbus.export.sinks.common import (
    AppendsBatches,
    check_host,
    core_json,
    credentials_of,
    error_text,
    query_of,
    retention_days,
    servers_of,
    tls_context,
)
from eventbus.export.sinks.contract import SinkAnswer, SinkMode, SinkWrite
from eventbus.export.sinks.registry import SinkOptions
from eventbus.model.decodable import decodable
from eventbus.model.event import Event
from eventbus.util.text import cut_bytes, printable

DEFAULT_PORT: Final = 4222
DEFAULT_STREAM: Final = "EVENTBUS"
DEFAULT_SUBJECT: Final = "events.{namespace}.{kind}.{name}"
#: The header by which JetStream recognizes a repeat.
MESSAGE_ID: Final = "Nats-Msg-Id"
#: Bytes of one token of a subject, after it is escaped.
MOST_TOKEN_BYTES: Final = 128
#: Of a connection and of each request that prepares it, also if --timeout is longer.
CONNECT_TIMEOUT_S: Final = 10.0

#: "expected stream does not match": another stream has the subject.
_OTHER_STREAM: Final = 10060
_STREAM: Final = re.compile(r"[A-Za-z0-9_-]{1,64}\Z")
_LITERAL: Final = re.compile(r"[A-Za-z0-9_-]{1,64}\Z")
_PLAIN: Final = re.compile(r"[!-~]+\Z")
_FIELDS: Final[dict[str, Callable[[Event], str]]] = {
    "namespace": lambda event: event.involved_object.namespace,
    "kind": lambda event: event.involved_object.kind,
    "name": lambda event: event.involved_object.name,
    "type": lambda event: event.type,
    "reason": lambda event: event.reason,
}

_T = TypeVar("_T")


def make_nats_sink(url: str, options: SinkOptions) -> NatsSink:
    """Make the sink of `nats://host/STREAM`. Raises: ConfigError."""
    parts = urlsplit(url)
    query = query_of(url, "subject", "create", "retention")
    stream = parts.path.strip("/") or DEFAULT_STREAM
    if not _STREAM.match(stream):
        raise ConfigError(f"the stream {stream!a} in the sink's URL: give letters, digits, - and _")
    if query.get("create", "true") not in ("true", "false"):
        raise ConfigError(f"create={query['create']!a} in the sink's URL: give create=true or create=false")
    subject = Subject(query.get("subject", DEFAULT_SUBJECT))
    target = None
    if query.get("create", "true") == "true":
        days = retention_days(query["retention"]) if "retention" in query else 0
        target = StreamConfig(name=stream, subjects=[subject.pattern], max_age=days * 86_400)
    elif "retention" in query:
        raise ConfigError("retention= in the sink's URL is of a stream that is made: leave out create=false")

    def login() -> dict[str, Any]:
        return _login(parts, options)

    login()  # report an unreadable secret at start
    return NatsSink(
        options.name,
        servers_of(parts, DEFAULT_PORT),
        stream,
        subject,
        create=target,
        login=login,
        tls=tls_context(options.environ, "EVENTBUS_NATS", parts.scheme),
        timeout_s=options.timeout_s,
    )


class Subject:
    """A template of subjects, such as `events.{namespace}.{kind}.{name}`. Raises: ConfigError: it is none."""

    def __init__(self, template: str) -> None:
        self._tokens: list[str | Callable[[Event], str]] = []
        pattern = []
        for token in template.split("."):
            field = _FIELDS.get(token[1:-1]) if token[:1] + token[-1:] == "{}" else None
            if field is None and not _LITERAL.match(token):
                known = ", ".join(f"{{{name}}}" for name in _FIELDS)
                raise ConfigError(
                    f"subject={template!a} in the sink's URL: give tokens of letters, digits, - and _, or {known}"
                )
            self._tokens.append(field or token)
            pattern.append("*" if field else token)
        self.pattern = ".".join(pattern)  #: the subjects of the stream

    def of(self, event: Event) -> str:
        """Return the subject of *event*."""
        return ".".join([token if isinstance(token, str) else _token(token(event)) for token in self._tokens])


def _token(text: str) -> str:
    """Return *text* as one token: percent-encoded, `-` if it is empty, and with a digest if it is too long."""
    if _LITERAL.match(text):
        return text
    escaped = quote(text, safe="", errors="replace").replace(".", "%2E").replace("~", "%7E") or "-"
    if len(escaped) <= MOST_TOKEN_BYTES:
        return escaped
    return f"{escaped[: MOST_TOKEN_BYTES - 17]}~{blake2b(text.encode('utf-8', 'replace'), digest_size=8).hexdigest()}"


def _login(parts: SplitResult, options: SinkOptions) -> dict[str, Any]:
    """Return the arguments of `Client.connect` for the user. The files may change. Raises: ConfigError."""
    user, password = credentials_of(parts, options, "EVENTBUS_NATS_PASSWORD")
    token, creds = options.secret("EVENTBUS_NATS_TOKEN"), options.environ.get("EVENTBUS_NATS_CREDS_FILE")
    if sum(map(bool, (user, token, creds))) > 1:
        raise ConfigError("give one of: a user in the sink's URL, EVENTBUS_NATS_TOKEN, EVENTBUS_NATS_CREDS_FILE")
    words = {"user": user, "password": password} if user else {}
    words |= {"token": token} if token else {}
    return words | ({"user_credentials": creds} if creds else {})


class NatsSink(AppendsBatches):
    """Publishes a batch at once, and waits for the acknowledgement of each message.

    Each message has the delivery id as `Nats-Msg-Id`: JetStream drops a repeat within the window of the stream. The
    client runs in an event loop of its own, in a thread that lives from the first call to `close`, because it must
    answer the pings of the server at any time. It does not reconnect by itself: the next write does.
    """

    mode = SinkMode.APPEND

    def __init__(
        self,
        name: str,
        servers: Sequence[str],
        stream: str,
        subject: Subject,
        *,
        create: StreamConfig | None,
        login: Callable[[], dict[str, Any]],
        tls: ssl.SSLContext | None,
        timeout_s: float,
    ) -> None:
        self.name = name
        self._servers = servers
        self._stream = stream
        self._subject = subject
        self._create = create
        self._login = login
        self._tls = tls
        self._timeout_s = timeout_s
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._connection: _Connection | None = None

    def check(self) -> None:
        """Look up the hosts. Raises: ConfigError: none of them exists."""
        check_host(*(urlsplit(f"//{server}").hostname or "" for server in self._servers))

    def open(self) -> None:
        """Connect, and make the stream if it is missing. Raises: SinkUnreachable."""
        self._run(self._connected())

    def write(self, writes: Sequence[SinkWrite]) -> Sequence[SinkAnswer]:
        """Publish them in order, and wait for all acknowledgements."""
        return self._run(self._publish(writes))

    def close(self) -> None:
        """Close the connection, and end the thread."""
        loop, thread = self._loop, self._thread
        if loop is None or thread is None:
            return
        self._run(self._disconnect())
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
        self._loop = self._thread = None

    def _run(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Run *work* in the event loop, and wait for it."""
        if self._loop is None:
            loop = asyncio.new_event_loop()
            thread = threading.Thread(target=loop.run_forever, name="eventbus-nats", daemon=True)
            try:
                thread.start()
            except RuntimeError as error:  # the process may not start another thread
                loop.close()
                work.close()
                raise SinkUnreachable(str(error)) from error
            self._loop, self._thread = loop, thread
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    # -- in the event loop --

    async def _publish(self, writes: Sequence[SinkWrite]) -> Sequence[SinkAnswer]:
        connection = await self._connected()
        batch = _Batch(len(writes))
        messages = []
        for place, write in enumerate(writes):
            try:
                messages.append((place, self._subject.of(write.event), core_json(write.event), write.delivery_id))
            except EventUnbuildable as error:
                batch.answer(place, error)
        await connection.publish(batch, messages, self._timeout_s)
        if any(isinstance(answer, SinkUnreachable) for answer in batch.answers):
            await self._disconnect()  # late acknowledgements are not for the next batch
        return [write.event if answer is None else answer for write, answer in zip(writes, batch.answers, strict=True)]

    async def _connected(self) -> _Connection:
        if self._connection is not None and self._connection.is_open:
            return self._connection
        await self._disconnect()
        connection = _Connection(self._stream, f"eventbus {self.name}", require_tls=self._tls is not None)
        try:
            timeout_s = min(self._timeout_s, CONNECT_TIMEOUT_S)
            await connection.open(self._servers, self._login, self._tls, self._create, timeout_s)
        except SinkUnreachable:
            await connection.close()
            raise
        self._connection = connection
        return connection

    async def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()


class _Batch:
    """The answers to the messages of one call. None: acknowledged."""

    def __init__(self, size: int) -> None:
        self.answers: list[SinkError | None] = [SinkUnreachable("NATS has not acknowledged the message in time")] * size
        self.done = asyncio.Event()
        self._left = size
        self._answered = [False] * size

    def answer(self, place: int, answer: SinkError | None) -> None:
        """Note the answer to a message."""
        if place < len(self._answered) and not self._answered[place]:
            self._answered[place] = True
            self.answers[place] = answer
            self._left -= 1
        if not self._left:
            self.done.set()

    def fail(self, error: SinkUnreachable) -> None:
        """Note that the messages without an answer will have none."""
        for place, answered in enumerate(self._answered):
            if not answered:
                self.answer(place, error)
        self.done.set()


class _Client(Client):
    """A client that sends no password and no event in plain text if TLS is asked for.

    The library starts TLS only if the server says that it requires it, and an attacker between them can leave that out.
    """

    def __init__(self, *, require_tls: bool) -> None:
        super().__init__()
        self._require_tls = require_tls

    def _connect_command(self) -> bytes:
        if self._require_tls and not self._server_info.get("tls_required"):
            raise nats.errors.Error("the server does not offer TLS: use nats:// if it should be reached without")
        return super()._connect_command()


class _Connection:
    """A connection, and the acknowledgements that arrive on it.

    `JetStreamContext.publish_async` makes a future and an inbox for each message. Here one subscription receives the
    acknowledgements of a batch; the last token of a subject is the place in the batch: 8 µs a message, not 18.
    """

    def __init__(self, stream: str, name: str, *, require_tls: bool) -> None:
        self._client = _Client(require_tls=require_tls)
        self._stream = stream
        self._name = name
        self._inbox = ""
        self._batch: _Batch | None = None
        self._number = 0  # of the batch
        self._problem = ""  # the last error of the server or the connection

    @property
    def is_open(self) -> bool:
        return bool(self._client.is_connected)

    async def open(
        self,
        servers: Sequence[str],
        login: Callable[[], dict[str, Any]],
        tls: ssl.SSLContext | None,
        create: StreamConfig | None,
        timeout_s: float,
    ) -> None:
        """Connect, and check or make the stream. Raises: SinkUnreachable."""
        try:
            await self._client.connect(
                [f"{'tls' if tls else 'nats'}://{server}" for server in servers],
                allow_reconnect=False,
                max_reconnect_attempts=1,  # else a server that refuses is tried 60 times
                reconnect_time_wait=0,
                connect_timeout=timeout_s,  # type: ignore[arg-type]
                error_cb=self._on_error,
                closed_cb=self._on_closed,
                name=self._name,
                tls=tls,
                **login(),
            )
            self._inbox = self._client.new_inbox()
            await self._client.subscribe(
                f"{self._inbox}.*.*", cb=self._on_ack, pending_msgs_limit=0, pending_bytes_limit=0
            )
            await self._find_stream(create, timeout_s)
        except SinkUnreachable:
            raise
        except (nats.errors.Error, OSError, TimeoutError, ValueError, ConfigError) as error:
            raise SinkUnreachable(f"{','.join(servers)}: {self._problem or _text_of(error)}") from error

    async def _find_stream(self, create: StreamConfig | None, timeout_s: float) -> None:
        context = self._client.jetstream(timeout=timeout_s)
        try:
            await context.stream_info(self._stream)
        except nats.js.errors.NotFoundError:
            if create is None:
                raise SinkUnreachable(
                    f"there is no stream {self._stream}: make it, or leave out create=false"
                ) from None
        except nats.js.errors.ServiceUnavailableError as error:
            raise SinkUnreachable("JetStream is not enabled for this account of the server") from error
        else:
            return
        try:
            await context.add_stream(create)
        except nats.js.errors.APIError as error:
            raise SinkUnreachable(f"the stream {self._stream} cannot be made: {_text_of(error)}") from error

    async def publish(self, batch: _Batch, messages: Sequence[tuple[int, str, bytes, str]], timeout_s: float) -> None:
        """Publish *messages*, each with its place in *batch*, and wait for their acknowledgements."""
        self._batch = batch
        self._number += 1
        prefix, expected = f"{self._inbox}.{self._number}.", {"Nats-Expected-Stream": self._stream}
        try:
            async with asyncio.timeout(timeout_s):
                for place, subject, body, delivery_id in messages:
                    try:
                        message_id = delivery_id if _PLAIN.match(delivery_id) else quote(delivery_id, errors="replace")
                        headers = {MESSAGE_ID: message_id, **expected}
                        await self._client.publish(subject, body, f"{prefix}{place}", headers)
                    except nats.errors.MaxPayloadError:
                        batch.answer(place, EventRejected(f"{len(body)} bytes are too many for this server"))
                if messages:
                    await batch.done.wait()
        except TimeoutError:
            batch.fail(SinkUnreachable(self._problem or "NATS has not acknowledged the messages in time"))
        except (nats.errors.Error, OSError) as error:
            batch.fail(SinkUnreachable(self._problem or _text_of(error)))

    async def close(self) -> None:
        try:
            async with asyncio.timeout(1):
                await self._client.close()
        except (nats.errors.Error, OSError, TimeoutError):
            pass  # it is broken already

    async def _on_ack(self, message: Msg) -> None:
        _, number, place = message.subject.rsplit(".", 2)
        if self._batch is not None and int(number) == self._number:
            self._batch.answer(int(place), self._error_of(message))

    def _error_of(self, message: Msg) -> SinkError | None:
        if message.headers and message.headers.get("Status") == "503":
            return SinkUnreachable(f"the stream {self._stream} has not the subject of the message, or is away")
        try:
            error = _ACK(message.data).error
        except msgspec.DecodeError:
            return UnexpectedReply("the acknowledgement is not JSON of JetStream")
        if error is None:
            return None
        text = f"{error.code}: {cut_bytes(printable(error.description), 200)}"
        if error.err_code == _OTHER_STREAM or error.code >= 500:
            return SinkUnreachable(text)
        return EventRejected(text) if error.code == 400 else UnexpectedReply(text)

    async def _on_error(self, error: Exception) -> None:
        self._problem = _text_of(error)

    async def _on_closed(self) -> None:
        if self._batch is not None:
            self._batch.fail(SinkUnreachable(self._problem or "the connection has ended"))


class _AckError(msgspec.Struct):
    code: int = 500
    err_code: int = 0
    description: str = ""


class _Ack(msgspec.Struct):
    error: _AckError | None = None


_ACK: Final = msgspec.json.Decoder(decodable(_Ack)).decode


def _text_of(error: Exception) -> str:
    return error_text(str(error).removeprefix("nats: ") or type(error).__name__)
