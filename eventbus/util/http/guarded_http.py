"""Sends requests to a host that may be hostile. The only module that uses the HTTP client.

The client's lower layer is used, because there a connection can be made by us: to the address that was checked, while
TLS and the Host header keep the name. It follows no redirect, keeps no cookie, and reads no proxy from the environment.
"""

from __future__ import annotations

import socket
import ssl
import threading
import time
from collections.abc import Iterable, Mapping
from typing import Any, Final

import httpcore2
import msgspec

from eventbus.errors import EventRejected, SinkError, SinkUnreachable, Throttled, UnexpectedReply
from eventbus.util.http.retry_after import retry_after_s
from eventbus.util.http.ssrf import Guard
from eventbus.util.text import cut_bytes, printable

CONNECT_TIMEOUT_S: Final = 5.0
#: The maximum size of a reply that is read. Replies are only logged.
MAX_REPLY_BYTES: Final = 64 * 1024


#: The endpoint is wrong, moved or closed, or it rejects the credentials. Every event fails until an operator fixes it,
#: so none becomes a dead letter. 415: it does not accept CloudEvents in this mode.
_UNREACHABLE: Final = frozenset({401, 403, 404, 405, 407, 408, 410, 415, 421, 502, 503, 504})


class Reply(msgspec.Struct, frozen=True):
    """The answer to a request. Header names are in lower case; the body may be cut."""

    status: int
    headers: dict[str, str]
    body: bytes


class GuardedClient:
    """A pool of *connections*, for as many threads at once.

    *timeout_s* limits a whole exchange: the attempts at all addresses, TLS, and a reply that arrives byte by byte. Only
    the DNS lookup cannot be interrupted; the remaining time is left for the steps after it. With a *proxy*, a URL, the
    guard checks the address of the proxy alone.
    """

    def __init__(
        self, guard: Guard, *, tls: ssl.SSLContext, timeout_s: float, connections: int = 1, proxy: str = ""
    ) -> None:
        self._backend = _GuardedBackend(guard)
        self._timeout_s = timeout_s
        options: Any = {"ssl_context": tls, "max_connections": connections, "keepalive_expiry": 30.0}
        options["network_backend"] = self._backend
        self._pool = httpcore2.HTTPProxy(proxy, **options) if proxy else httpcore2.ConnectionPool(**options)

    def post(self, url: str, headers: Mapping[str, str], body: bytes) -> Reply:
        """Send *body* once. Raises: SinkUnreachable: no whole answer; it may have arrived all the same."""
        return self.send("POST", url, headers, body, MAX_REPLY_BYTES)

    def get(self, url: str, headers: Mapping[str, str], most_bytes: int) -> Reply:
        """Request *url* once; the body is cut after *most_bytes*. Raises: SinkUnreachable: no complete answer."""
        return self.send("GET", url, headers, b"", most_bytes)

    def close(self) -> None:
        self._pool.close()

    def send(self, method: str, url: str, headers: Mapping[str, str], body: bytes, most_bytes: int) -> Reply:
        """Send a request once; the reply is cut after *most_bytes*. Raises: SinkUnreachable: no whole answer."""
        self._backend.deadline.begin(self._timeout_s)
        try:
            return self._exchange(method, url, headers, body, most_bytes)
        except httpcore2.LocalProtocolError:
            # Its text quotes the header that it does not like, and one of them is a password.
            raise SinkUnreachable("the request cannot be sent: a header breaks the rules of HTTP") from None
        except (httpcore2.ReadTimeout, httpcore2.WriteTimeout) as error:
            raise SinkUnreachable(f"no whole answer within {self._timeout_s:g} s") from error
        except (httpcore2.TimeoutException, httpcore2.NetworkError, httpcore2.ProtocolError, OSError) as error:
            raise SinkUnreachable(f"{type(error).__name__}: {error}") from error

    def _exchange(self, method: str, url: str, headers: Mapping[str, str], body: bytes, most_bytes: int) -> Reply:
        limits = {"connect": min(CONNECT_TIMEOUT_S, self._timeout_s)}  # the deadline limits all other steps
        with self._pool.stream(
            method, url, headers=list(headers.items()), content=body, extensions={"timeout": limits}
        ) as response:
            # Leaving with the rest unread closes the connection.
            received = _first_bytes(response.iter_stream(), most_bytes)
            names = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in response.headers}
            return Reply(response.status, names, received)


def error_of(reply: Reply, server: str = "the webhook") -> SinkError | None:
    """Return the error that an answer of *server* means; None: it was accepted, now or before."""
    status = reply.status
    if 200 <= status < 300 or status == 409:
        return None
    body = cut_bytes(printable(reply.body[:200].decode("utf-8", "replace")), 200)
    text = f"{server} answered {status}{f': {body}' if body else ''}"
    pause_s = retry_after_s(reply.headers.get("retry-after"))
    if status == 429 or (status == 503 and pause_s is not None):
        return Throttled(text, pause_s)
    if status in _UNREACHABLE:
        return SinkUnreachable(text, status=status)
    if 300 <= status < 400:
        return SinkUnreachable(f"{text}; redirects are not followed", status=status)
    return EventRejected(text) if 400 <= status < 500 else UnexpectedReply(text, status=status)


class _Deadline(threading.local):
    """The end of the exchange that this thread has under way."""

    def begin(self, timeout_s: float) -> None:
        self._at = time.monotonic() + timeout_s

    @property
    def left_s(self) -> float:
        return self._at - time.monotonic()


class _GuardedBackend(httpcore2.NetworkBackend):
    """Connects to checked addresses only."""

    def __init__(self, guard: Guard) -> None:
        self._guard = guard
        self._plain = httpcore2.SyncBackend()
        self.deadline = _Deadline()

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore2.NetworkStream:
        failed: Exception | None = None
        for address in self._guard.resolve(host, port):
            left_s = self.deadline.left_s
            if left_s <= 0:
                break
            try:
                line = self._plain.connect_tcp(
                    address, port, min(timeout or left_s, left_s), local_address, socket_options
                )
            except (httpcore2.ConnectError, httpcore2.ConnectTimeout) as error:
                failed = error
                continue
            return _Line(line, self.deadline)
        raise failed or httpcore2.ConnectTimeout(f"{host} was not connected in time")


class _Line(httpcore2.NetworkStream):
    """A connection on which no call lasts beyond the deadline: an endpoint that drips gains no time by any byte."""

    def __init__(self, stream: httpcore2.NetworkStream, deadline: _Deadline) -> None:
        self._stream = stream
        self._deadline = deadline

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return self._stream.read(max_bytes, self._left_s(httpcore2.ReadTimeout))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        # Not the stream's own `write`: it restarts its timeout with each piece that the endpoint accepts.
        line: socket.socket = self._stream.get_extra_info("socket")
        view = memoryview(buffer)
        while view:
            line.settimeout(self._left_s(httpcore2.WriteTimeout))
            try:
                view = view[line.send(view) :]
            except TimeoutError as error:
                raise httpcore2.WriteTimeout(str(error)) from error
            except OSError as error:
                raise httpcore2.WriteError(str(error)) from error

    def close(self) -> None:
        self._stream.close()

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore2.NetworkStream:
        left_s = self._left_s(httpcore2.ConnectTimeout)
        self._stream = self._stream.start_tls(ssl_context, server_hostname, min(timeout or left_s, left_s))
        return self

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)

    def _left_s(self, over: type[httpcore2.TimeoutException]) -> float:
        left_s = self._deadline.left_s
        if left_s <= 0:
            raise over("the exchange has had its time")
        return left_s


def _first_bytes(chunks: Iterable[bytes], limit: int) -> bytes:
    received = bytearray()
    for chunk in chunks:
        received += chunk
        if len(received) >= limit:
            break
    return bytes(received[:limit])
