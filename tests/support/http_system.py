"""A system behind HTTP that can be down, slow, and lose its replies; and the sink for it, for `--to http-system:`.

The server runs in the test's process, the sink in the workers'. Rows are guarded by the store's version.
"""

from __future__ import annotations

import http.client
import json
import threading
import time
from collections import Counter
from collections.abc import Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self
from urllib.parse import parse_qs, urlsplit

from eventbus.errors import SinkUnreachable, UnexpectedReply
from eventbus.export.sinks import EventPatch, SinkAnswer, SinkMode, SinkOptions, SinkWrite, Verb
from eventbus.model.encoding.event_json import to_core
from eventbus.model.event import Event


class HttpSystem:
    """The server. What it holds may be read at any time; faults may be switched at any time."""

    def __init__(self) -> None:
        self.rows: dict[str, dict[str, Any]] = {}
        self.deliveries: Counter[str] = Counter()
        self.down = False  #: answers 503
        self.cut_every = 0  #: so many requests are applied and then cut off
        self.slow_s = 0.0
        self.requests = 0
        self._lock = threading.Lock()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, name="http-system", daemon=True)

    @property
    def sink_url(self) -> str:
        return f"http-system:?port={self._server.server_address[1]}"

    def counts(self) -> dict[str, int]:
        """Name → count of what it holds."""
        with self._lock:
            return {name: row["count"] for name, row in self.rows.items()}

    def apply(self, writes: Sequence[dict[str, Any]]) -> bool:
        """Keep what is newer; False: the reply is to be lost."""
        with self._lock:
            self.requests += 1
            for write in writes:
                event = write["event"]
                name, version = event["metadata"]["name"], int(event["metadata"]["resourceVersion"])
                self.deliveries[write["id"]] += 1
                held = self.rows.get(name)
                if held is None or int(held["metadata"]["resourceVersion"]) < version:
                    self.rows[name] = event
            return not self.cut_every or self.requests % self.cut_every != 0

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_exc: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


def _handler(system: HttpSystem) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            time.sleep(system.slow_s)
            if system.down:
                self._answer(503)
            elif system.apply(json.loads(body)):
                self._answer(200)
            else:
                self.close_connection = True

        def _answer(self, code: int) -> None:
            self.send_response(code)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:
            pass

    return Handler


class HttpSink:
    """The sink, made in the workers. *url* says the port."""

    mode = SinkMode.UPSERT

    def __init__(self, url: str, options: SinkOptions) -> None:
        self.name = options.name
        port = int(parse_qs(urlsplit(url).query)["port"][0])
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=options.timeout_s)

    def create(self, event: Event) -> Event:
        return self._one(Verb.CREATE, event)

    def update(self, event: Event) -> Event:
        return self._one(Verb.UPDATE, event)

    def patch(self, event: Event, patch: EventPatch) -> Event:
        return self._one(Verb.PATCH, event, patch)

    def write(self, writes: Sequence[SinkWrite]) -> Sequence[SinkAnswer]:
        body = json.dumps([{"id": write.delivery_id, "event": to_core(write.event)} for write in writes])
        try:
            self._connection.request("POST", "/", body)
            reply = self._connection.getresponse()
            reply.read()
        except (OSError, http.client.HTTPException) as error:
            self._connection.close()
            raise SinkUnreachable(f"{type(error).__name__}: {error}") from error
        if reply.status == 503:
            raise SinkUnreachable("503")
        if reply.status != 200:
            raise UnexpectedReply(str(reply.status))
        return [write.event for write in writes]

    def close(self) -> None:
        self._connection.close()

    def _one(self, verb: Verb, event: Event, patch: EventPatch | None = None) -> Event:
        answer = self.write([SinkWrite.of(verb, event, patch)])[0]
        assert isinstance(answer, Event)
        return answer
