"""One connection to an API worker: for successive requests, or for one streamed response."""

from __future__ import annotations

import http.client
import os
import select
import socket
import ssl
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress

import msgspec

from eventbus.client.address import ApiAddress
from eventbus.client.status import error_of_reply
from eventbus.errors import BusRefused, BusUnavailable

#: Timeout to connect and for each response: a little more than the API's own timeout for Redis.
TIMEOUT_S = 10.0
#: A stream with bookmarks has one a minute. After this silence its API worker counts as stalled.
SILENT_S = 150.0
#: TCP keepalive, seconds: a peer that vanished is noticed after five intervals.
_KEEPALIVE = {"TCP_KEEPIDLE": 30, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 4}
#: A TLS server's answers to a plain request: it closes the connection or sends a TLS alert.
_NOT_HTTP = (ConnectionResetError, http.client.BadStatusLine)
#: Longest response that is read whole.
MAX_REPLY_BYTES = 256 * 1024 * 1024


class Reply(msgspec.Struct, frozen=True):
    """A whole response."""

    status: int
    headers: Mapping[str, str]  #: by lower-case names
    body: bytes


class ApiConnection:
    """A connection that each request opens if it is closed. One thread; `close` and `end` from any.

    Network errors become BusUnavailable, and rejected certificates BusRefused.
    """

    def __init__(self, address: ApiAddress) -> None:
        self.address = address
        self._tls: ssl.SSLContext | None = None
        self._line: http.client.HTTPConnection | None = None
        #: Kept here because http.client drops its socket when a response announces that the connection closes.
        self._sock: socket.socket | None = None
        self._pid = os.getpid()
        self._answered = False  #: True after a response came over this connection
        self._user = 0  #: the thread that uses the connection now; 0: none
        self._ended = False
        self._token = ""

    def request(
        self, method: str, path: str, *, body: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> Reply:
        """Send one request and return its response, with any status.

        Raises: BusUnavailable: no response; the request may have taken effect.  BusRefused, ConfigError.
        """
        with self._errors():
            response = self._ask(method, path, body, headers)
            data = response.read(MAX_REPLY_BYTES)
            if response.will_close:
                self.close()
            return Reply(response.status, _lower(response.headers), data)

    def call(
        self, method: str, path: str, *, body: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> bytes:
        """Send one request and return its body. Raises: as `request`, and the error of a Status that is not 2xx."""
        reply = self.request(method, path, body=body, headers=headers)
        if 200 <= reply.status < 300:
            return reply.body
        if reply.status == 401:
            self.close()  # the next request reads the token again
        raise error_of_reply(reply.status, reply.headers, reply.body, where=str(self.address))

    def open_stream(self, path: str, *, beats: bool = False) -> Iterator[bytes]:
        """GET an endless response and return an iterator of its bytes, which blocks until some arrive.

        With *beats* the API sends a bookmark each minute, and a silence of SILENT_S is an error. Without, nothing may
        arrive for hours, and only TCP keepalive finds a vanished peer.
        Raises: as `call`. The iterator: BusUnavailable: the connection broke or was silent. It ends when the API ends.
        """
        with self._errors():
            response = self._ask("GET", path, None, None)
            if response.status != 200:
                raise error_of_reply(
                    response.status, _lower(response.headers), response.read(MAX_REPLY_BYTES), where=str(self.address)
                )
            assert self._sock is not None
            self._sock.settimeout(SILENT_S if beats else None)
        return self._pieces(response)

    def close(self) -> None:
        """Close the connection. A request that waits in another thread fails. Idempotent."""
        line, sock = self._line, self._sock
        if line is None:
            return
        if self._pid != os.getpid():
            self._user = 0  # in a forked child the connection belongs to the parent, which still uses it
        elif sock is not None:
            with suppress(OSError):
                # Not SSLSocket.shutdown, which drops the TLS state while another thread may read.
                socket.socket.shutdown(sock, socket.SHUT_RDWR)
        if self._user in (0, threading.get_ident()):
            self._line = self._sock = None
            with suppress(OSError):
                line.close()
        # A thread that uses it gets an error and closes it: http.client is not thread-safe.

    def end(self) -> None:
        """Close for good: a request that is about to connect fails too. Idempotent."""
        self._ended = True
        self.close()

    def __del__(self) -> None:
        # A forked child drops the parent's socket without closing the connection.
        with suppress(Exception):
            self.close()

    def _pieces(self, response: http.client.HTTPResponse) -> Iterator[bytes]:
        with self._errors():
            while piece := response.read1(65_536):
                yield piece

    def _ask(
        self, method: str, path: str, body: bytes | None, headers: Mapping[str, str] | None
    ) -> http.client.HTTPResponse:
        if self._line is not None and (self._pid != os.getpid() or _is_closed(self._line)):
            self.close()
        if self._line is None:
            line = self._connect()
            self._line, self._sock, self._pid = line, line.sock, os.getpid()
        if (
            self._ended
        ):  # Checked after connecting, because `end` sets it before it closes: one of the two closes the socket.
            raise BusUnavailable(f"{self.address}: the connection was ended")
        every = {"User-Agent": "eventbus", "Accept": "application/json", **(headers or {})}
        if self._token:
            every["Authorization"] = f"Bearer {self._token}"
        line = self._line
        line.request(method, self.address.base + path, body, every)
        response = line.getresponse()
        self._answered = True
        return response

    def _connect(self) -> http.client.HTTPConnection:
        address = self.address
        self._token = address.token()
        self._answered = False
        line: http.client.HTTPConnection
        if address.socket:
            line = _UnixConnection(address.socket, TIMEOUT_S)
        elif address.tls:
            self._tls = self._tls or address.tls_context()
            line = http.client.HTTPSConnection(address.host, address.port, timeout=TIMEOUT_S, context=self._tls)
        else:
            line = http.client.HTTPConnection(address.host, address.port, timeout=TIMEOUT_S)
        line.auto_open = 0  # else http.client would reopen a connection that another thread has closed
        line.connect()
        if not address.socket:
            _keep_alive(line.sock)
        return line

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Translate the error and close: the rest of a broken response must not be read as the next one."""
        self._user = threading.get_ident()
        try:
            yield
        except ssl.SSLCertVerificationError as error:
            self.close()
            cure = "set EVENTBUS_CA_FILE to its authority's certificate, or use a name that stands in its own"
            raise BusRefused(f"{self.address}: {error.verify_message or error.reason}: {cure}") from error
        except (OSError, http.client.HTTPException, ValueError) as error:
            self.close()
            said = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
            if isinstance(error, ssl.SSLError) and error.reason == "WRONG_VERSION_NUMBER":
                said = "the server does not speak TLS: use http:// in EVENTBUS_URL, or another port"
            elif isinstance(error, _NOT_HTTP) and not self._answered and self.address.url.startswith("http://"):
                said += "; if it speaks TLS, use https:// in EVENTBUS_URL"
            raise BusUnavailable(f"{self.address} does not answer: {said or type(error).__name__}") from error
        except BaseException:
            self.close()
            raise
        finally:
            self._user = 0


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: str, timeout_s: float) -> None:
        super().__init__("localhost", timeout=timeout_s)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        try:
            self.sock.settimeout(self.timeout)
            self.sock.connect(self._path)
        except BaseException:
            self.sock.close()
            raise


def _lower(headers: http.client.HTTPMessage) -> dict[str, str]:
    return {name.lower(): value for name, value in headers.items()}


def _is_closed(line: http.client.HTTPConnection) -> bool:
    """Return True if an idle connection is readable, which means that the server closed it."""
    if line.sock is None:
        return True
    poll = select.poll()
    poll.register(line.sock, select.POLLIN)
    return bool(poll.poll(0))


def _keep_alive(sock: socket.socket) -> None:
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEEPALIVE.items():
        if hasattr(socket, name):  # not on every system
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
