"""Watches through an API worker: an endless response of JSON lines, one a change."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from typing import Any, Final, Generic, TypeVar

import msgspec

from eventbus.client.connection import ApiConnection
from eventbus.client.status import Status, error_of_status
from eventbus.errors import BusUnavailable, ClientWatchDecoding, EventBusError, InvalidEvent, InvalidObject
from eventbus.model.decodable import decodable
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
