"""Lists and watches the events of a Kubernetes cluster, or of an API worker of another bus."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from queue import Empty, Full, Queue
from typing import Final, NamedTuple

import httpx2
import msgspec
from lightkube.config.client_adapter import Client, ConnectionParams
from lightkube.config.kubeconfig import SingleConfig

from eventbus.errors import EventBusError, Expired, InvalidEvent, SinkUnreachable, UnexpectedReply
from eventbus.export.sinks.kubernetes import translate
from eventbus.model.decodable import decodable
from eventbus.model.encoding.event_json import decode_core, from_events_v1, read_events_v1
from eventbus.model.encoding.json_read import load
from eventbus.model.event import Event
from eventbus.util.text import cut_bytes, printable

TIMEOUT_S: Final = 30.0
#: Events of one page of a list.
PAGE: Final = 500
#: Bytes of a page, and of a line of a watch: an object has at most 1.5 MiB in etcd.
MAX_PAGE: Final = 64 * 1024 * 1024
MAX_LINE: Final = 4 * 1024 * 1024
#: Bytes of any other answer.
MAX_ANSWER: Final = 64 * 1024
#: The server ends a watch after so many seconds. A connection without a byte for longer is dead.
WATCH_S: Final = 120
#: Seconds to wait for the end of a watch: a server that sends no answer holds its thread until a timeout.
CLOSE_S: Final = 5.0
#: Changes that are read ahead.
AHEAD: Final = 1000


def _decode_events_v1(data: bytes) -> Event:
    return read_events_v1(data) or from_events_v1(load(data))


#: The APIs that are tried, and the reader of each.
_APIS: Final[tuple[tuple[str, Callable[[bytes], Event]], ...]] = (
    ("apis/events.k8s.io/v1", _decode_events_v1),
    ("api/v1", decode_core),
)


class Change(NamedTuple):
    """A change in the cluster. *event*: None for a deletion or a bookmark, which only move the *version*."""

    version: str
    event: Event | InvalidEvent | None


class Page(NamedTuple):
    """A part of a list. *version*: of the whole list."""

    version: str
    events: list[Event | InvalidEvent]


class _Meta(msgspec.Struct, frozen=True, rename="camel"):
    resource_version: str = ""
    continue_: str = msgspec.field(default="", name="continue")


class _List(msgspec.Struct):
    metadata: _Meta
    items: list[msgspec.Raw] = []


class _Object(msgspec.Struct):
    metadata: _Meta = _Meta()
    code: int = 0
    message: str = ""


class _Line(msgspec.Struct):
    type: str
    object: msgspec.Raw


class _Bus(msgspec.Struct):
    id: str


_LIST: Final = msgspec.json.Decoder(decodable(_List)).decode
_OBJECT: Final = msgspec.json.Decoder(decodable(_Object)).decode
_LINE: Final = msgspec.json.Decoder(decodable(_Line)).decode
_BUS: Final = msgspec.json.Decoder(decodable(_Bus)).decode


class Cluster:
    """The events of one cluster; *namespace* "": of all.

    Calls raise SinkUnreachable, Throttled or UnexpectedReply if the cluster does not answer as expected.
    """

    def __init__(self, config: SingleConfig, *, namespace: str = "") -> None:
        self.server: str = config.cluster.server
        self._client = Client(config, ConnectionParams(timeout=httpx2.Timeout(TIMEOUT_S)))
        self._scope = f"namespaces/{namespace}/events" if namespace else "events"
        self._api: int | None = None

    def bus_id(self) -> str:
        """Return the id of the bus, if the server is an API worker of one; else ""."""
        status, body = self._get("eventbus/v1/bus", {}, MAX_ANSWER)
        if status != 200:
            return ""
        try:
            return _BUS(body).id
        except msgspec.MsgspecError:
            return ""

    def pages(self) -> Iterator[Page]:
        """List all events. Raises: Expired: it took too long; list again."""
        path, read = self._find_api()
        params = {"limit": str(PAGE)}
        while True:
            status, body = self._get(path, params, MAX_PAGE)
            if status == 410:
                raise Expired("the list has expired before its end")
            if status != 200:
                raise _refused(status, body)
            try:
                found = _LIST(body)
            except msgspec.MsgspecError as error:
                raise UnexpectedReply(f"the list of events cannot be read: {error}") from None
            yield Page(found.metadata.resource_version, [_event(bytes(item), read) for item in found.items])
            if not found.metadata.continue_:
                return
            params["continue"] = found.metadata.continue_

    def watch(self, version: str) -> Watch:
        """Watch the changes after *version*."""
        path, read = self._find_api()
        params = {
            "watch": "true",
            "resourceVersion": version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(WATCH_S),
        }
        timeout = httpx2.Timeout(TIMEOUT_S, read=WATCH_S + TIMEOUT_S)
        return Watch(self._client, self._client.build_request("GET", path, params=params, timeout=timeout), read)

    def close(self) -> None:
        self._client.close()

    def _find_api(self) -> tuple[str, Callable[[bytes], Event]]:
        """Return the path of the newest API that the cluster has, and the reader of its events."""
        if self._api is None:
            status, body = self._get(_APIS[0][0], {}, MAX_PAGE)
            if status not in (200, 403, 404):
                raise _refused(status, body)
            self._api = int(status == 404)
        root, read = _APIS[self._api]
        return f"{root}/{self._scope}", read

    def _get(self, path: str, params: Mapping[str, str], most: int) -> tuple[int, bytes]:
        try:
            with self._client.stream("GET", path, params=params) as response:
                return response.status_code, _read_whole(response, most)
        except EventBusError:
            raise
        except Exception as error:
            raise _error_of(error) from error


class Watch:
    """One watch, read ahead by a thread of its own."""

    def __init__(self, client: httpx2.Client, request: httpx2.Request, read: Callable[[bytes], Event]) -> None:
        self._client = client
        self._request = request
        self._read = read
        self._changes: Queue[Change | EventBusError | None] = Queue(AHEAD)
        self._response: httpx2.Response | None = None
        self._open = False
        self._ended = False
        self._error: EventBusError | None = None
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="eventbus-import-watch", daemon=True)
        self._thread.start()

    @property
    def is_open(self) -> bool:
        """Return True if the server has answered."""
        return self._open

    def take(self, most: int, timeout_s: float) -> list[Change] | None:
        """Return the next changes; [] after *timeout_s*; None: the server has ended the watch, open another one.

        Raises: Expired: the version is too old, list again.  SinkUnreachable, Throttled, UnexpectedReply.
        """
        changes: list[Change] = []
        with suppress(Empty):
            while not self._ended and len(changes) < most:
                change = self._changes.get_nowait() if changes else self._changes.get(timeout=timeout_s)
                if isinstance(change, Change):
                    changes.append(change)
                else:
                    self._ended, self._error = True, change
        if changes or not self._ended:
            return changes
        if self._error is not None:
            raise self._error
        return None

    def close(self) -> None:
        """End the watch, also in the middle of a read."""
        self._closed.set()
        response = self._response
        if response is not None and (stream := response.extensions.get("network_stream")) is not None:
            with suppress(OSError):
                stream.get_extra_info("socket").shutdown(socket.SHUT_RDWR)
        self._thread.join(CLOSE_S)

    def _run(self) -> None:
        last: EventBusError | None = None
        try:
            response = self._client.send(self._request, stream=True)
            self._response = response
            with contextlib.closing(response):
                if self._closed.is_set():  # `close` has not seen the response
                    return
                if response.status_code != 200:
                    raise _watch_error(response.status_code, _read_whole(response, MAX_ANSWER))
                self._open = True
                for line in _lines(response.iter_raw()):
                    if self._closed.is_set():
                        return
                    self._put(_change(line, self._read))
        except EventBusError as error:
            last = error
        except Exception as error:
            last = _error_of(error)
        self._put(last)

    def _put(self, found: Change | EventBusError | None) -> None:
        while not self._closed.is_set():
            with suppress(Full):
                self._changes.put(found, timeout=0.5)
                return


def _read_whole(response: httpx2.Response, most: int) -> bytes:
    """Return the body. Raises: UnexpectedReply: it has more than *most* bytes."""
    body = bytearray()
    for part in response.iter_bytes():
        body += part
        if len(body) > most:
            raise UnexpectedReply(f"the answer to {response.request.url.path} has more than {most} bytes")
    return bytes(body)


def _lines(parts: Iterator[bytes]) -> Iterator[bytes]:
    rest = b""
    for part in parts:
        *lines, rest = (rest + part).split(b"\n")
        yield from (line for line in lines if line.strip())
        if len(rest) > MAX_LINE:
            raise UnexpectedReply(f"a line of the watch has more than {MAX_LINE} bytes")


def _change(line: bytes, read: Callable[[bytes], Event]) -> Change:
    """Read a line of a watch. Raises: Expired, UnexpectedReply: it is an error."""
    try:
        found = _LINE(line)
        known = _OBJECT(found.object)
    except msgspec.MsgspecError as error:
        raise UnexpectedReply(f"a line of the watch cannot be read: {error}") from None
    if found.type == "ERROR":
        raise _watch_error(known.code, bytes(found.object))
    is_written = found.type in ("ADDED", "MODIFIED")
    return Change(known.metadata.resource_version, _event(bytes(found.object), read) if is_written else None)


def _event(data: bytes, read: Callable[[bytes], Event]) -> Event | InvalidEvent:
    try:
        return read(data)
    except InvalidEvent as error:
        return error


def _watch_error(code: int, body: bytes) -> EventBusError:
    return Expired("the version is too old") if code == 410 else _refused(code, body)


def _refused(code: int, body: bytes) -> EventBusError:
    try:
        message = _OBJECT(body).message
    except msgspec.MsgspecError:
        message = ""
    return SinkUnreachable(cut_bytes(printable(f"{code} {message}"), 300), status=code)


def _error_of(error: Exception) -> EventBusError:
    return translate(error, create=False) or UnexpectedReply(cut_bytes(printable(repr(error)), 300))
