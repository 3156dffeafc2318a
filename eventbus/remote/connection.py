"""One connection to an API worker: requests one after the other, or one reply that goes on and on."""

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

from eventbus.errors import BusRefused, BusUnavailable
from eventbus.remote.address import ApiAddress
from eventbus.remote.status import error_of_reply

#: To connect, and for each answer: a little more than the API itself gives Redis.
TIMEOUT_S = 10.0
#: A stream with signs of life has one a minute at least. Silent for longer than this, its API worker stands still.
SILENT_S = 150.0
#: A peer that is gone without a word is noticed after the first and four more of these, seconds.
_KEEPALIVE = {"TCP_KEEPIDLE": 30, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 4}
#: What a server that speaks TLS does to a request in the clear: it hangs up, or answers with an alert of TLS.
_NOT_HTTP = (ConnectionResetError, http.client.BadStatusLine)
#: Longest reply that is read at once.
MAX_REPLY_BYTES = 256 * 1024 * 1024


class Reply(msgspec.Struct, frozen=True):
    """A whole answer."""

    status: int
    headers: Mapping[str, str]  #: by their names in lower case
    body: bytes


class ApiConnection:
    """Opened by the first request, and again by one that finds it closed. One thread; only `close` from any other.

    Every problem of the network becomes BusUnavailable; a certificate that will not do becomes BusRefused.
    """

    def __init__(self, address: ApiAddress) -> None:
        self.address = address
        self._tls: ssl.SSLContext | None = None
        self._line: http.client.HTTPConnection | None = None
        #: The line's: http.client forgets it where a reply, which may never end, says that it will be the last.
        self._sock: socket.socket | None = None
        self._pid = os.getpid()
        self._answered = False  #: True if and only if an answer has come over this line
        self._user = 0  #: the thread that is in the middle of using the line; 0: none is
        self._ended = False
        self._token = ""

    def request(
        self, method: str, path: str, *, body: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> Reply:
        """Send one request and read its answer, whatever its status.

        Raises: BusUnavailable: no answer; what was asked for may have been done.  BusRefused, ConfigError.
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
        """As `request`, of which only a 2xx will do. Raises: besides, what the API's Status means."""
        reply = self.request(method, path, body=body, headers=headers)
        if 200 <= reply.status < 300:
            return reply.body
        if reply.status == 401:
            self.close()  # the next one reads the token anew
        raise error_of_reply(reply.status, reply.headers, reply.body, where=str(self.address))

    def open_stream(self, path: str, *, beats: bool = False) -> Iterator[bytes]:
        """GET what does not end. Returns: its bytes as they come; each blocks until there are some.

        With *beats* the API gives a sign of life each minute, and one that is silent for SILENT_S stands still. Else
        nothing may come for hours, and only keepalive finds who is gone.
        Raises: as `call`. The iterator: BusUnavailable: the line broke or was silent; it ends where the API ended it.
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
        """Hang up; a call that waits in another thread ends with an error. Idempotent."""
        line, sock = self._line, self._sock
        if line is None:
            return
        if self._pid != os.getpid():
            self._user = 0  # a fork's child: the line is its parent's, who goes on using it
        elif sock is not None:
            with suppress(OSError):
                # Not the TLS object's own: it would forget its state under the feet of the thread that reads.
                socket.socket.shutdown(sock, socket.SHUT_RDWR)
        if self._user in (0, threading.get_ident()):
            self._line = self._sock = None
            with suppress(OSError):
                line.close()
        # Else whoever is using it finds it broken, and closes the rest: http.client is not made for two threads.

    def end(self) -> None:
        """Hang up for good: a request that is about to connect ends with an error, too. Idempotent."""
        self._ended = True
        self.close()

    def __del__(self) -> None:
        # A child after fork drops what was its parent's, and nobody there is left to close it.
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
        if self._ended:  # looked at behind the line, as `end` sets it before: one of the two hangs up
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
        line.auto_open = 0  # or a line that another thread has closed would come to life again, unknown to anybody
        line.connect()
        if not address.socket:
            _keep_alive(line.sock)
        return line

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Translate, and hang up: what is left of a broken exchange must not be taken for the next answer."""
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
                said = "what listens there speaks no TLS: take http:// in EVENTBUS_URL, or another port"
            elif isinstance(error, _NOT_HTTP) and not self._answered and self.address.url.startswith("http://"):
                said += "; if it speaks TLS, take https:// in EVENTBUS_URL"
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
    """Nobody has asked anything: if there is something to read, then it is the end of the line."""
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
