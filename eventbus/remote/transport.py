"""The transport over HTTP: batches as frames of a POST, one request on its way at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Final

import msgspec

from eventbus.broker.frames import FRAMES_TYPE, MAX_FRAMES, pack_requests, unpack_answers
from eventbus.broker.publish_call import PublishReply
from eventbus.broker.transport import BusDescription, PublishRequest, nothing
from eventbus.decodable import decodable
from eventbus.errors import BusUnavailable, EventBusError
from eventbus.formats import BASELINE_CODECS
from eventbus.remote.address import ApiAddress
from eventbus.remote.connection import ApiConnection

#: Batches of one partition on their way in one round trip: more than over Redis, for a round trip costs more.
IN_FLIGHT_BATCHES: Final = 32
#: Of one POST, below the API's bound of 3 MiB.
MOST_BYTES: Final = 2 * 1024 * 1024

BUS_PATH: Final = "/eventbus/v1/bus"
RECORD_PATH: Final = "/eventbus/v1/record"
PRODUCERS_PATH: Final = "/eventbus/v1/producers"


class RemoteBus(msgspec.Struct, frozen=True, rename="camel"):
    """The bus behind an API, as the API describes it."""

    id: str
    partitions: int
    event_ttl_s: int = 0
    codecs: tuple[int, ...] = BASELINE_CODECS  #: that producers may use


class _Lasts(msgspec.Struct, frozen=True):
    """The last sequence numbers that the bus has, of each producer that was asked for."""

    last: list[int | None]


class HttpTransport:
    """A `Transport` through an API worker. Any of them will do for any request: the numbers are kept in Redis."""

    def __init__(self, connection: ApiConnection) -> None:
        self._connection = connection
        self._bus = read_bus(connection)

    def describe(self) -> BusDescription:
        return BusDescription(self._bus.partitions, IN_FLIGHT_BATCHES, self._bus.codecs)

    def publish(
        self, requests: Sequence[PublishRequest], meanwhile: Callable[[], object] = nothing
    ) -> list[PublishReply | EventBusError]:
        """Send *requests* in as few POSTs as their size allows; *meanwhile* is left out.

        Raises: EventBusError: the first POST failed.
        """
        answers: list[PublishReply | EventBusError] = []
        for some in _posts(requests):
            try:
                reply = self._connection.call(
                    "POST", RECORD_PATH, body=pack_requests(some), headers={"Content-Type": FRAMES_TYPE}
                )
                answers += unpack_answers(reply, len(some))
            except EventBusError as error:
                if not answers:
                    raise
                # What was answered counts; what was not is sent again.
                return answers + [error] * (len(requests) - len(answers))
        return answers

    def last(self, producers: Sequence[tuple[int, str]]) -> list[int | None]:
        return self._ask(producers)

    def shorten_life(self, producers: Sequence[tuple[int, str]]) -> None:
        """They are done, and need be remembered no longer than producers without a spool."""
        with suppress(EventBusError):
            self._ask(producers, shorten=True)

    def close(self) -> None:
        self._connection.close()

    def _ask(self, producers: Sequence[tuple[int, str]], *, shorten: bool = False) -> list[int | None]:
        body = _ENCODE({"producers": producers, "shorten_life": shorten})
        reply = self._connection.call("POST", PRODUCERS_PATH, body=body, headers={"Content-Type": "application/json"})
        try:
            found = _LASTS.decode(reply).last
        except msgspec.DecodeError as error:
            raise BusUnavailable(f"the answer is not the API's: {error}") from None
        if len(found) != len(producers):
            raise BusUnavailable(f"the answer is not the API's: {len(found)} numbers of {len(producers)} producers")
        return found


def open_http_transport(address: ApiAddress) -> HttpTransport:
    """Connect, and ask for what must be known of the bus. Raises: BusUnavailable, BusRefused, ConfigError."""
    connection = ApiConnection(address)
    try:
        return HttpTransport(connection)
    except BaseException:
        connection.close()
        raise


def read_bus(connection: ApiConnection) -> RemoteBus:
    """Ask what is behind the API. Raises: as `ApiConnection.call`."""
    reply = connection.call("GET", BUS_PATH)
    try:
        return _BUS.decode(reply)
    except msgspec.DecodeError as error:
        raise BusUnavailable(f"{connection.address} is no API of eventbus: {error}") from None


def _posts(requests: Sequence[PublishRequest]) -> Iterator[Sequence[PublishRequest]]:
    """As much as fits into one body, in order; every batch fits alone."""
    start = size = 0
    for i, request in enumerate(requests):
        if i > start and (size + len(request.body) > MOST_BYTES or i - start == MAX_FRAMES):
            yield requests[start:i]
            start, size = i, 0
        size += len(request.body) + 256
    yield requests[start:]


_ENCODE: Final = msgspec.json.Encoder().encode
_LASTS: Final = msgspec.json.Decoder(decodable(_Lasts))
_BUS: Final = msgspec.json.Decoder(decodable(RemoteBus))
