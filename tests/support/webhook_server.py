"""A real HTTP(S) endpoint for webhooks: keeps what it got, and answers what the test orders."""

from __future__ import annotations

import ssl
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass(frozen=True)
class Delivery:
    """One request; header names are in lower case."""

    path: str
    headers: dict[str, str]
    body: bytes
    method: str = "POST"


@dataclass(frozen=True)
class Answer:
    """The answer to a request. *status* 0: the server hangs up. *drip_s*: a byte every so many seconds, without end."""

    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    drip_s: float = 0.0


class Endpoint:
    """`deliveries` may be read, and `answers` filled, from any thread; without an answer in wait it is 200.

    *refuse_if*: a body that holds this is answered with 422.
    """

    def __init__(self) -> None:
        self.deliveries: list[Delivery] = []
        self.answers: deque[Answer] = deque()
        self.server_names: list[str] = []
        self.refuse_if: bytes | None = None
        self.connections = 0
        self.closing = threading.Event()

    def answer(self, delivery: Delivery) -> Answer:
        self.deliveries.append(delivery)
        if self.answers:
            return self.answers.popleft()
        if self.refuse_if is not None and self.refuse_if in delivery.body:
            return Answer(422, body=b"cannot take this")
        return Answer()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    endpoint: Endpoint

    def setup(self) -> None:
        super().setup()
        self.endpoint.connections += 1

    def do_POST(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(length)
        if len(body) < length:  # the line broke in the middle of it
            self.close_connection = True
            return
        headers = {name.lower(): value for name, value in self.headers.items()}
        answer = self.endpoint.answer(Delivery(self.path, headers, body, self.command))
        if not answer.status:
            self.close_connection = True
            return
        with suppress(OSError):
            self._send(answer)

    do_PUT = do_GET = do_POST

    def log_message(self, *_args: object) -> None:
        pass

    def _send(self, answer: Answer) -> None:
        self.send_response(answer.status)
        for name, value in answer.headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", "1000000" if answer.drip_s else str(len(answer.body)))
        self.end_headers()
        self.wfile.write(answer.body)
        while answer.drip_s and not self.endpoint.closing.is_set():
            self.wfile.write(b".")
            time.sleep(answer.drip_s)


@contextmanager
def receiving(endpoint: Endpoint, *, tls: ssl.SSLContext | None = None) -> Iterator[int]:
    """Serve *endpoint* on 127.0.0.1. Yields: its port."""
    handler = type("Handler", (_Handler,), {"endpoint": endpoint})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        server.daemon_threads = True
        if tls is not None:
            tls.sni_callback = lambda _socket, name, _context: endpoint.server_names.append(name)
            server.socket = tls.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, name="webhook-server")
        thread.start()
        try:
            yield server.server_address[1]
        finally:
            endpoint.closing.set()
            server.shutdown()
            thread.join()
