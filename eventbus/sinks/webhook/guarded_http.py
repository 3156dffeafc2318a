"""Sends one POST at a time to a host that may be hostile. The only module that knows the HTTP client.

The client's lower layer is used, because there a connection can be made by us: to the address that was checked, while
TLS and the Host header keep the name. It follows no redirect, keeps no cookie, and reads no proxy from the environment.
"""

from __future__ import annotations

import socket
import ssl
import threading
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any, Final

import httpcore2
import msgspec

from eventbus.errors import SinkUnreachable
from eventbus.sinks.webhook.ssrf import Guard

CONNECT_TIMEOUT_S: Final = 5.0
#: What is read of a reply: it serves only for a line in the log.
MAX_REPLY_BYTES: Final = 64 * 1024


class Reply(msgspec.Struct, frozen=True):
    """The answer to a POST. Header names are in lower case; the body may be cut."""

    status: int
    headers: dict[str, str]
    body: bytes


class GuardedClient:
    """Keeps one connection. *timeout_s* bounds a whole exchange: all addresses together, TLS, and an answer that drips.

    Only the look-up of the name cannot be interrupted; what follows it has the time that is left.
    """

    def __init__(self, guard: Guard, *, tls: ssl.SSLContext, timeout_s: float) -> None:
        self._backend = _GuardedBackend(guard)
        self._timeout_s = timeout_s
        self._pool = httpcore2.ConnectionPool(
            ssl_context=tls, max_connections=1, keepalive_expiry=30.0, network_backend=self._backend
        )

    def post(self, url: str, headers: Mapping[str, str], body: bytes) -> Reply:
        """Send *body* once. Raises: SinkUnreachable: no whole answer; it may have arrived all the same."""
        self._backend.begin(self._timeout_s)
        out_of_time = threading.Timer(self._timeout_s, self._backend.hang_up)
        out_of_time.daemon = True
        out_of_time.start()
        try:
            return self._post(url, headers, body)
        except httpcore2.LocalProtocolError:
            # Its text quotes the header that it does not like, and one of them is a password.
            raise SinkUnreachable("the request cannot be sent: a header breaks the rules of HTTP") from None
        except (httpcore2.TimeoutException, httpcore2.NetworkError, httpcore2.ProtocolError, OSError) as error:
            if self._backend.out_of_time() and not isinstance(error, httpcore2.ConnectTimeout):
                # We have hung up, which looks like the endpoint's doing.
                raise SinkUnreachable(f"no whole answer within {self._timeout_s:g} s") from error
            raise SinkUnreachable(f"{type(error).__name__}: {error}") from error
        finally:
            out_of_time.cancel()
            out_of_time.join()

    def close(self) -> None:
        self._pool.close()

    def _post(self, url: str, headers: Mapping[str, str], body: bytes) -> Reply:
        limits = {"connect": min(CONNECT_TIMEOUT_S, self._timeout_s)}
        limits |= dict.fromkeys(("read", "write", "pool"), self._timeout_s)
        with self._pool.stream(
            "POST", url, headers=list(headers.items()), content=body, extensions={"timeout": limits}
        ) as response:
            # Leaving with the rest unread closes the connection.
            received = _first_bytes(response.iter_stream(), MAX_REPLY_BYTES)
            names = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in response.headers}
            return Reply(response.status, names, received)


class _GuardedBackend(httpcore2.NetworkBackend):
    """Connects to checked addresses only."""

    def __init__(self, guard: Guard) -> None:
        self._guard = guard
        self._plain = httpcore2.SyncBackend()
        self._line: _Line | None = None
        self._deadline = 0.0

    def begin(self, timeout_s: float) -> None:
        """Begin an exchange that must be over in *timeout_s*."""
        self._deadline = time.monotonic() + timeout_s

    def out_of_time(self) -> bool:
        """Return True if the exchange should be over."""
        return self._left_s() <= 0

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
            left_s = self._left_s()
            if left_s <= 0:
                break
            try:
                line = self._plain.connect_tcp(
                    address, port, min(timeout or left_s, left_s), local_address, socket_options
                )
            except (httpcore2.ConnectError, httpcore2.ConnectTimeout) as error:
                failed = error
                continue
            self._line = _Line(line)
            if self._left_s() > 0:
                return self._line
            # Whoever hangs up at the deadline may have come too early to see this connection.
            self._line.close()
        raise failed or httpcore2.ConnectTimeout(f"{host} was not connected in time")

    def _left_s(self) -> float:
        return self._deadline - time.monotonic()

    def hang_up(self) -> None:
        """End the exchange that is under way, from another thread."""
        if self._line is not None:
            self._line.hang_up()


class _Line(httpcore2.NetworkStream):
    """A connection that can be cut from outside, before and after TLS has begun."""

    def __init__(self, stream: httpcore2.NetworkStream) -> None:
        self._stream = stream

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return self._stream.read(max_bytes, timeout)

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._stream.write(buffer, timeout)

    def close(self) -> None:
        self._stream.close()

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore2.NetworkStream:
        self._stream = self._stream.start_tls(ssl_context, server_hostname, timeout)
        return self

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)

    def hang_up(self) -> None:
        line: socket.socket | None = self._stream.get_extra_info("socket")
        if line is not None:
            with suppress(OSError):
                # Not the method of a TLS socket, which would pull its state from under the thread that reads.
                socket.socket.shutdown(line, socket.SHUT_RDWR)


def _first_bytes(chunks: Iterable[bytes], limit: int) -> bytes:
    received = bytearray()
    for chunk in chunks:
        received += chunk
        if len(received) >= limit:
            break
    return bytes(received[:limit])
