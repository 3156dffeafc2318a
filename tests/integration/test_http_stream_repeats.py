"""A raw stream that breaks between two bookmarks tells some events again; whoever reads through it hears each once."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

import pytest

from eventbus import BusUnavailable, Settings
from eventbus.client import connection
from eventbus.client.address import parse_api_url
from eventbus.client.watch import RemoteStream


def event(uid: str) -> bytes:
    core = {"metadata": {"name": uid, "namespace": "default", "uid": uid}, "involvedObject": {}}
    return json.dumps({"type": "EVENT", "object": core}).encode() + b"\n"


def bookmark(position: str) -> bytes:
    return json.dumps({"type": "BOOKMARK", "position": position}).encode() + b"\n"


class Handler(BaseHTTPRequestHandler):
    """Begins at position 0; a stream from there breaks behind b, one from 1 ends in good order."""

    protocol_version = "HTTP/1.1"
    lines = ([bookmark("0"), event("a"), bookmark("1"), event("b"), event("c")], [event("b"), event("c"), event("d")])
    asked: list[str]
    stands_still = False

    def do_GET(self) -> None:
        where = urlsplit(self.path)
        if where.path.endswith("/position"):
            body = b'{"position": "0"}'
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)
            return
        [position] = parse_qs(where.query)["position"]
        self.asked.append(position)
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for line in self.lines[int(position)]:
            self.wfile.write(b"%x\r\n%s\r\n" % (len(line), line))
        self.wfile.flush()
        if self.stands_still:
            self.rfile.read(1)  # until its client is gone
        elif position == "1":
            self.wfile.write(b"0\r\n\r\n")
        self.close_connection = True

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def stream() -> Iterator[RemoteStream]:
    Handler.asked = []
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = False
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    made = RemoteStream(parse_api_url(f"http://127.0.0.1:{server.server_port}", Settings()))
    yield made
    made.close()
    server.shutdown()
    server.server_close()
    thread.join()


def test_each_event_is_heard_once_across_a_line_that_broke(stream: RemoteStream) -> None:
    first = stream.read()
    heard = [next(first).metadata.uid for _ in range(3)]
    with pytest.raises(BusUnavailable):
        next(first)
    heard += [one.metadata.uid for one in stream.read()]
    assert heard == ["a", "b", "c", "d"]
    assert Handler.asked == ["0", "1"]


def test_a_stream_that_was_closed_before_it_was_read_is_not_opened_again(stream: RemoteStream) -> None:
    """As by a watcher that is stopped as soon as it was started: its thread would read for ever."""
    stream.close()
    with pytest.raises(BusUnavailable, match="the connection was ended"):
        next(stream.read())
    assert Handler.asked == []


def test_a_stream_on_which_nothing_comes_for_long_breaks(stream: RemoteStream, monkeypatch: pytest.MonkeyPatch) -> None:
    """As of an API worker that was stopped: keepalive does not find it."""
    monkeypatch.setattr(connection, "SILENT_S", 0.3)
    monkeypatch.setattr(Handler, "stands_still", True)
    heard = stream.read()
    assert [next(heard).metadata.uid for _ in range(3)] == ["a", "b", "c"]
    with pytest.raises(BusUnavailable, match="timed out"):
        next(heard)
