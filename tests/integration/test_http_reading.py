"""Reading and writing with EVENTBUS_URL alone: the store, its watches and informers through an API worker."""

from __future__ import annotations

import json
import queue
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import msgspec
import pytest

from eventbus import (
    EVENT,
    NODE,
    AlreadyExists,
    BusRefused,
    BusUnavailable,
    Conflict,
    Event,
    Expired,
    InvalidObject,
    ListOptions,
    Node,
    NodeStatus,
    NotFound,
    ObjectMeta,
    ObjectStore,
    Settings,
    SharedInformerFactory,
    WatchEvent,
    WatchEventType,
)
from eventbus.broker.bus import Bus, open_bus
from eventbus.client import connection
from eventbus.errors import ClientWatchDecoding
from tests.builders import make_event
from tests.support.api_in_process import serving
from tests.support.ports import free_port
from tests.waiting import eventually


@pytest.fixture
def bus(embedded_url: str, prefix: str) -> Bus:
    return open_bus(embedded_url, Settings(prefix=prefix, worker_block_ms=100))


@pytest.fixture
def url(bus: Bus) -> Iterator[str]:
    with serving(bus) as found:
        yield found


@pytest.fixture
def store(url: str) -> Iterator[ObjectStore]:
    with ObjectStore.open(url) as found:
        yield found


def node(name: str, **labels: str) -> Node:
    return Node(metadata=ObjectMeta(name=name, labels=labels))


# -- the store -----------------------------------------------------------------------------------------------------


def test_a_status_is_written_by_itself(store: ObjectStore) -> None:
    nodes = store.objects(NODE)
    nodes.create(node("n1"))
    told = nodes.patch("n1", {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}, status=True)
    assert told == nodes.get("n1")
    assert told.status.conditions[0].type == "Ready"
    emptied = nodes.update_status(msgspec.structs.replace(told, status=NodeStatus()))
    assert emptied.status.conditions == ()


def test_a_list_comes_in_pages_and_by_selectors(store: ObjectStore) -> None:
    nodes = store.objects(NODE)
    for i in range(7):
        nodes.create(node(f"n{i}", even=str(i % 2 == 0).lower()))
    page = nodes.list(ListOptions(limit=3))
    rest = nodes.list(ListOptions(limit=10, continue_=page.continue_))
    assert [one.metadata.name for one in (*page.items, *rest.items)] == [f"n{i}" for i in range(7)]
    assert rest.continue_ == ""
    even = nodes.list(ListOptions(label_selector="even=true"))
    assert [one.metadata.name for one in even.items] == ["n0", "n2", "n4", "n6"]
    assert [one.metadata.name for one in nodes.list(ListOptions(field_selector="metadata.name=n3")).items] == ["n3"]
    with pytest.raises((InvalidObject, BusRefused)):
        nodes.list(ListOptions(label_selector="=x"))


def test_a_watch_ends_when_its_time_is_over_and_when_it_is_stopped(
    store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "TIMEOUT_S", 3600)
    nodes = store.objects(NODE)
    nodes.create(node("n0"))
    assert len(list(nodes.watch(ListOptions(timeout_s=1)))) == 1
    watch = nodes.watch()
    threading.Timer(0.05, watch.stop).start()
    assert [event.type for event in watch][:1] in ([], [WatchEventType.ADDED])


def test_a_version_ahead_of_the_store_is_told(store: ObjectStore) -> None:
    store.objects(NODE).create(node("n0"))
    with pytest.raises((Expired, BusUnavailable)):
        raise_told(store.objects(NODE).watch(ListOptions(resource_version="9999999999999999")))


def raise_told(watch: Iterable[WatchEvent[Any]]) -> None:
    """An API server refuses the watch, or begins it with an ERROR."""
    for event in watch:
        if event.error is not None:
            raise event.error


# -- informers -----------------------------------------------------------------------------------------------------


def test_an_informer_goes_on_with_a_worker_that_was_started_anew_and_misses_nothing(bus: Bus) -> None:
    told: queue.Queue[str] = queue.Queue()
    port = free_port()
    with serving(bus, port=port) as url:
        store = ObjectStore.open(url)
        factory = SharedInformerFactory(store)
        nodes = factory.nodes()
        nodes.add_event_handler(on_add=lambda one, *_: told.put(one.metadata.name))
        factory.start()
        factory.wait_for_cache_sync(60)
        store.objects(NODE).create(node("n0"))
        assert told.get(timeout=60) == "n0"
    with ObjectStore.open(bus.url, settings=Settings(prefix=bus.prefix)) as direct:
        direct.objects(NODE).create(node("n1"))
    with serving(bus, port=port):
        assert told.get(timeout=60) == "n1"
        factory.stop(30)
        store.close()
    assert told.empty()


# -- an API that misbehaves ----------------------------------------------------------------------------------------


class Scripted:
    """Answers lists with no items at *version*, and watches, in their order, with what *watches* says."""

    def __init__(self) -> None:
        self.watches: list[Callable[[BaseHTTPRequestHandler], None]] = []
        self.lists: list[Callable[[BaseHTTPRequestHandler], None]] = []
        self.asked: list[str] = []
        self.version = 7

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        is_watch = "watch=true" in handler.path
        self.asked.append("watch" if is_watch else "list")
        script = self.watches if is_watch else self.lists
        if script:
            script.pop(0)(handler)
        elif is_watch:
            chunks(bookmark("9"), ends=True, pause=True)(handler)
        else:
            listed = {"kind": "NodeList", "metadata": {"resourceVersion": str(self.version)}, "items": None}
            whole(200, listed)(handler)


def whole(code: int, body: Any, **headers: str) -> Callable[[BaseHTTPRequestHandler], None]:
    def answer(handler: BaseHTTPRequestHandler) -> None:
        data = json.dumps(body).encode()
        handler.send_response(code)
        for name, value in {"Content-Length": str(len(data)), **headers}.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.end_headers()
        handler.wfile.write(data)

    return answer


def status(code: int, reason: str, **details: Any) -> dict[str, Any]:
    return {"kind": "Status", "code": code, "reason": reason, "message": f"{reason}!", "details": details}


def chunks(
    *lines: bytes, ends: bool, pause: bool = False, headers: Sequence[tuple[str, str]] = ()
) -> Callable[[BaseHTTPRequestHandler], None]:
    """A chunked answer; with *ends* in good order, else the line breaks. *pause*: first wait for the client to go."""

    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        for name, value in (("Transfer-Encoding", "chunked"), *headers):
            handler.send_header(name, value)
        handler.end_headers()
        for line in lines:
            handler.wfile.write(b"%x\r\n%s\r\n" % (len(line), line))
        handler.wfile.flush()
        if pause:
            handler.rfile.read(1)
        if ends:
            handler.wfile.write(b"0\r\n\r\n")
        else:
            handler.close_connection = True

    return answer


def line(kind: str, found: Any) -> bytes:
    return json.dumps({"type": kind, "object": found}).encode() + b"\n"


def bookmark(version: str) -> bytes:
    return line("BOOKMARK", {"kind": "Node", "metadata": {"resourceVersion": version}})


def added(name: str, version: str) -> bytes:
    return line("ADDED", {"kind": "Node", "metadata": {"name": name, "resourceVersion": version}})


@contextmanager
def scripted() -> Iterator[tuple[Scripted, str]]:
    script = Scripted()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            script.answer(self)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = False
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield script, f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def told_by(*lines: bytes, ends: bool = True) -> list[Any]:
    """What a watch tells of an answer of these lines."""
    with scripted() as (script, url), ObjectStore.open(url) as store:
        script.watches = [chunks(*lines, ends=ends)]
        return list(store.objects(NODE).watch())


def test_lines_may_be_cut_anywhere_on_the_way() -> None:
    whole_line = added("n1", "8")
    for cut in range(1, len(whole_line), 17):
        [event] = told_by(whole_line[:cut], whole_line[cut:])
        assert event.object.metadata.name == "n1"


@pytest.mark.parametrize(
    "broken",
    [
        b'{"type": "ADDED", "obj\n',
        b"\xff\xfe\n",
        b"[]\n",
        b'{"type": "NEW", "object": {}}\n',
        b"[" * 100_000 + b"\n",
        line("ADDED", {"metadata": {"name": 7}}),
        line("BOOKMARK", {"metadata": 1}),
        b'{"type": "ADDED"',
    ],
)
def test_a_broken_frame_is_one_error_of_its_own_kind_and_the_last_thing_told(broken: bytes) -> None:
    told = told_by(added("n1", "8"), broken, added("n2", "9"))
    assert [event.type for event in told] == ["ADDED", "ERROR"]
    assert isinstance(told[1].error, ClientWatchDecoding)
    assert "unable to decode an event from the watch stream" in str(told[1].error)


def test_a_watch_that_breaks_in_the_middle_raises_and_does_not_end_in_silence() -> None:
    with scripted() as (script, url), ObjectStore.open(url) as store:
        script.watches = [chunks(added("n1", "8"), b'{"type": "AD', ends=False)]
        watch = iter(store.objects(NODE).watch())
        assert next(watch).type is WatchEventType.ADDED
        with pytest.raises(BusUnavailable):
            next(watch)


@pytest.mark.parametrize("headers", [[], [("Connection", "close")]], ids=["kept", "the last one"])
def test_a_watch_with_bookmarks_that_is_silent_for_longer_than_a_minute_and_some_raises(
    headers: Sequence[tuple[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "SILENT_S", 1.0)
    monkeypatch.setattr(connection, "TIMEOUT_S", 3600)
    with scripted() as (script, url), ObjectStore.open(url) as store:
        script.watches = [chunks(added("n1", "8"), ends=True, pause=True, headers=headers)]
        watch = iter(store.objects(NODE).watch(ListOptions(allow_bookmarks=True)))
        assert next(watch).type is WatchEventType.ADDED
        with pytest.raises(BusUnavailable, match="timed out"):
            next(watch)


def test_what_the_api_ends_a_watch_with_is_told_as_its_error() -> None:
    [event] = told_by(line("ERROR", status(410, "Expired")))
    assert isinstance(event.error, Expired)


@pytest.mark.parametrize(
    ("code", "reason", "error"),
    [
        (401, "Unauthorized", BusRefused),
        (403, "Forbidden", BusRefused),
        (404, "NotFound", NotFound),
        (409, "Conflict", Conflict),
        (409, "AlreadyExists", AlreadyExists),
        (410, "Expired", Expired),
        (422, "Invalid", InvalidObject),
        (429, "TooManyRequests", BusUnavailable),
        (503, "ServiceUnavailable", BusUnavailable),
    ],
)
def test_a_status_is_the_error_that_it_would_be_over_redis(code: int, reason: str, error: type[Exception]) -> None:
    with scripted() as (script, url), ObjectStore.open(url) as store:
        script.lists = [whole(code, status(code, reason))]
        with pytest.raises(error, match=f"{reason}!"):
            store.objects(NODE).list()


def test_a_list_of_a_version_that_nothing_has_yet_is_expired_as_over_redis() -> None:
    with scripted() as (script, url), ObjectStore.open(url) as store:
        script.lists = [whole(504, status(504, "Timeout", causes=[{"reason": "ResourceVersionTooLarge"}]))]
        with pytest.raises(Expired):
            store.objects(NODE).list()
        script.lists = [whole(504, status(504, "Timeout"))]
        with pytest.raises(BusUnavailable):
            store.objects(NODE).list()


def test_a_pause_that_is_asked_for_is_known() -> None:
    with scripted() as (script, url), ObjectStore.open(url) as store:
        script.lists = [whole(429, status(429, "TooManyRequests"), Retry_After="17")]
        with pytest.raises(BusUnavailable) as caught:
            store.objects(NODE).list()
        assert caught.value.retry_after_s == 17
        script.lists = [whole(503, status(503, "", retryAfterSeconds=5))]
        with pytest.raises(BusUnavailable) as caught:
            store.objects(NODE).list()
        assert caught.value.retry_after_s == 5


def test_what_is_no_api_of_ours_is_named() -> None:
    with scripted() as (script, url), ObjectStore.open(url) as store:
        script.lists = [whole(404, "not here"), whole(200, ["no list"])]
        with pytest.raises(BusRefused, match="correct EVENTBUS_URL"):
            store.objects(NODE).list()
        with pytest.raises(BusUnavailable, match="did not answer with a Node"):
            store.objects(NODE).list()


def asked_by_an_informer(script: Scripted, url: str, enough: int) -> Sequence[str]:
    """What an informer of nodes asks for, until it has asked so often."""
    with ObjectStore.open(url) as store, SharedInformerFactory(store) as factory:
        factory.nodes()
        factory.start()
        eventually(lambda: len(script.asked) >= enough)
    return script.asked[:enough]


def test_an_informer_lists_again_after_a_410_and_after_a_broken_frame() -> None:
    with scripted() as (script, url):
        script.watches = [chunks(b"{broken\n", ends=True), whole(410, status(410, "Expired"))]
        assert asked_by_an_informer(script, url, 6) == ["list", "watch"] * 3


def test_an_informer_watches_on_without_a_list_when_the_line_broke() -> None:
    with scripted() as (script, url):
        script.watches = [chunks(added("n1", "8"), ends=False)]
        assert asked_by_an_informer(script, url, 3) == ["list", "watch", "watch"]


def test_an_informer_watches_on_without_a_list_when_an_api_worker_stands_still(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "SILENT_S", 1.0)
    with scripted() as (script, url):
        script.watches = [chunks(added("n1", "8"), ends=True, pause=True)]
        assert asked_by_an_informer(script, url, 3) == ["list", "watch", "watch"]


def test_an_informer_waits_as_long_as_it_is_asked_to() -> None:
    waits: list[float] = []
    with scripted() as (script, url):
        script.lists = [whole(429, status(429, "TooManyRequests"), Retry_After="3600")]
        with ObjectStore.open(url) as store:
            factory = SharedInformerFactory(store, on_error=lambda error: waits.append(_asked(error)))
            factory.nodes()
            factory.start()
            eventually(lambda: waits == [3600.0])
            factory.stop(30)
        assert script.asked == ["list"]


def _asked(error: Exception) -> float:
    assert isinstance(error, BusUnavailable)
    return error.retry_after_s or 0.0


def test_the_same_events_come_over_http_and_over_redis(bus: Bus, store: ObjectStore) -> None:
    written = store.objects(EVENT).create(make_event(metadata=ObjectMeta(name="e1", namespace="default")))
    with ObjectStore.open(bus.url, settings=Settings(prefix=bus.prefix)) as direct:
        found, [listed] = direct.get("default", "e1"), direct.list("default").items
    # Versions on the wire are those of the API, which joins those of all partitions.
    assert without_version(found) == without_version(listed) == without_version(written)
    assert store.list("default").items == (written,)


def without_version(event: Event) -> Event:
    return msgspec.structs.replace(event, metadata=msgspec.structs.replace(event.metadata, resource_version=""))
