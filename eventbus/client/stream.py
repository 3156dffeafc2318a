"""Reads the raw stream through an API worker: each event of the bus once, across reconnections."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlencode

import msgspec

from eventbus.client.address import ApiAddress
from eventbus.client.connection import ApiConnection
from eventbus.client.watch import LineTooLong, split_lines
from eventbus.errors import BusUnavailable, EventBusError, InvalidEvent
from eventbus.model.decodable import decodable
from eventbus.model.encoding.event_json import from_core
from eventbus.model.event import Event

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
            said = _LINE(line)
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


_LINE = msgspec.json.Decoder(decodable(_StreamLine)).decode
_POSITION = msgspec.json.Decoder(decodable(_StreamPosition)).decode
