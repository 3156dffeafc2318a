"""Watches, and the raw stream, through an API worker: endless responses of JSON lines."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import Any, Final, Generic, TypeVar
from urllib.parse import urlencode

import msgspec

from eventbus.client.address import ApiAddress
from eventbus.client.connection import ApiConnection
from eventbus.client.status import Status, error_of_status
from eventbus.errors import BusUnavailable, ClientWatchDecoding, EventBusError, InvalidEvent, InvalidObject
from eventbus.model.decodable import decodable
from eventbus.model.encoding.event_json import from_core
from eventbus.model.event import Event
from eventbus.model.kinds import Kind
from eventbus.model.list_watch import HasMetadata, WatchEvent, WatchEventType

T = TypeVar("T", bound=HasMetadata)

#: The annotation of the bookmark that follows the initial objects of a watch.
INITIAL_EVENTS_END: Final = "k8s.io/initial-events-end"
#: Longer than any object with all its metadata.
MAX_LINE_BYTES: Final = 16 * 1024 * 1024


class Line(msgspec.Struct, frozen=True):
    """One line: a type and its object."""

    type: WatchEventType
    object: dict[str, Any]


class RemoteWatch(Generic[T]):
    """Implements `eventbus.model.list_watch.Watch`. The constructor opens it and raises the API's refusal.

    A line that cannot be decoded becomes one ERROR event, ClientWatchDecoding, which ends the iteration: list again.
    So does a Status of the API; a 410 becomes Expired. A broken connection raises BusUnavailable: watch again from the
    last position. With *bookmarks* a long silence does too.
    """

    def __init__(self, *, connection: ApiConnection, path: str, kind: Kind[T], bookmarks: bool) -> None:
        self._connection = connection
        self._kind = kind
        self._stopped = threading.Event()
        self._pieces = connection.open_stream(path, beats=bookmarks)

    def __iter__(self) -> Iterator[WatchEvent[T]]:
        """See `Watch`."""
        try:
            for line in split_lines(self._pieces):
                event = self._read(line)
                if self._stopped.is_set():
                    return
                yield event
                if event.type is WatchEventType.ERROR:
                    return
        except ValueError as error:  # LineTooLong
            yield WatchEvent.failed(_undecodable(error))
        except BusUnavailable:
            if not self._stopped.is_set():
                raise
        finally:
            self._connection.close()

    def stop(self) -> None:
        """See `Watch`."""
        self._stopped.set()
        self._connection.close()

    def _read(self, line: bytes) -> WatchEvent[T]:
        try:
            said = _LINE(line)
            if said.type is WatchEventType.ERROR:
                return WatchEvent.failed(self._error(said.object))
            if said.type is WatchEventType.BOOKMARK:
                return _bookmark(said.object)
            return WatchEvent(said.type, self._kind.decode(said.object))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, InvalidEvent, InvalidObject) as error:
            return WatchEvent.failed(_undecodable(error))

    def _error(self, plain: dict[str, Any]) -> EventBusError:
        status = msgspec.convert(plain, decodable(Status))
        return error_of_status(status.code or 500, status, where=str(self._connection.address))


def _bookmark(plain: dict[str, Any]) -> WatchEvent[Any]:
    metadata = msgspec.convert(plain.get("metadata") or {}, decodable(_BookmarkMeta))
    ends = (metadata.annotations or {}).get(INITIAL_EVENTS_END) == "true"
    return WatchEvent(WatchEventType.BOOKMARK, position=metadata.resource_version, initial_events_end=ends)


class _BookmarkMeta(msgspec.Struct, frozen=True, rename="camel"):
    resource_version: str
    annotations: dict[str, str] | None = None


def _undecodable(error: Exception) -> ClientWatchDecoding:
    return ClientWatchDecoding(f"unable to decode an event from the watch stream: {error}")


_LINE: Final = msgspec.json.Decoder(decodable(Line)).decode


STREAM_PATH = "/eventbus/v1/stream"


class _StreamLine(msgspec.Struct, frozen=True):
    """A line of the stream: EVENT *object*, BOOKMARK *position*, MISSED *count*, ERROR *message*."""

    type: str
    object: dict[str, Any] | None = None
    position: str = ""
    count: int = 0
    message: str = ""


class _StreamPosition(msgspec.Struct, frozen=True):
    """The start position of a stream, which is opaque."""

    position: str


class RemoteStream:
    """Events recorded from now on, or from *since*. One thread reads; `close` may be called from any.

    The constructor requests the start position, so that no later event is missed.
    """

    def __init__(self, address: ApiAddress, *, since: datetime | None = None) -> None:
        self._connection = ApiConnection(address)
        self.missed = 0
        self._told: set[str] = set()  # uids since the last bookmark, which a reconnection repeats
        self._closed = False
        self._position = ""
        self._position = self._position_now(since)

    def read(self) -> Iterator[Event]:
        """Yield events, in order for each object. A new iteration goes on after the last event yielded.

        Raises: BusUnavailable: the connection broke: iterate again.  BusRefused.
        """
        path = f"{STREAM_PATH}?{urlencode({'position': self._position})}"
        pieces = self._connection.open_stream(path, beats=True)
        try:
            for line in split_lines(pieces):
                event = self._take(line)
                if event is not None:
                    yield event
        except LineTooLong as error:
            raise BusUnavailable(f"the stream cannot be read: {error}") from None
        finally:
            if not self._closed:
                self._connection.close()

    def close(self) -> None:
        """End the current read and all later ones. Idempotent."""
        self._closed = True
        self._connection.end()

    def _take(self, line: bytes) -> Event | None:
        try:
            said = _STREAM_LINE(line)
            if said.type == "BOOKMARK":
                self._position = said.position
                self._told.clear()
            elif said.type == "MISSED":
                self.missed += said.count
            elif said.type == "ERROR":
                raise BusUnavailable(said.message)
            elif said.type == "EVENT" and said.object is not None:
                return self._unless_told(from_core(said.object))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, InvalidEvent) as error:
            raise BusUnavailable(f"the stream cannot be read: {error}") from None
        return None

    def _unless_told(self, event: Event) -> Event | None:
        uid = event.metadata.uid
        if uid in self._told:
            return None
        self._told.add(uid)
        return event

    def _position_now(self, since: datetime | None) -> str:
        query = "" if since is None else "?" + urlencode({"since": since.astimezone(UTC).isoformat()})
        try:
            return _POSITION(self._connection.call("GET", f"{STREAM_PATH}/position{query}")).position
        except msgspec.DecodeError as error:
            raise BusUnavailable(f"the answer is not the API's: {error}") from None
        except EventBusError:
            self._connection.close()
            raise


_STREAM_LINE: Final = msgspec.json.Decoder(decodable(_StreamLine)).decode
_POSITION: Final = msgspec.json.Decoder(decodable(_StreamPosition)).decode


class LineTooLong(ValueError):
    """A line exceeds `MAX_LINE_BYTES`: the response is not a stream of JSON lines."""


def split_lines(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Yield each line without its end, also an unfinished last one; empty lines are skipped.

    Raises: LineTooLong.
    """
    rest = bytearray()
    for piece in pieces:
        rest += piece
        if b"\n" not in piece:
            if len(rest) > MAX_LINE_BYTES:
                raise LineTooLong(f"a line of more than {MAX_LINE_BYTES} bytes")
            continue
        *lines, last = bytes(rest).split(b"\n")
        rest = bytearray(last)
        yield from (line for line in lines if line.strip())
    if rest.strip():
        yield bytes(rest)
