"""The transport over HTTP: batches are frames of a POST, with one request in flight."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Final

import msgspec

from eventbus.broker.frames import FRAMES_TYPE, MAX_FRAMES, pack_requests, unpack_answers
from eventbus.broker.transport import BusDescription, PublishReply, PublishRequest, nothing
from eventbus.client.address import ApiAddress
from eventbus.client.connection import ApiConnection
from eventbus.errors import BusRefused, BusUnavailable, ConfigError, EventBusError
from eventbus.model.decodable import decodable
from eventbus.model.formats import BASELINE_CODECS

#: Batches of one partition in flight: more than over Redis, because a round trip costs more.
IN_FLIGHT_BATCHES: Final = 32
#: Most bytes of one POST, below the API's bound of 3 MiB.
MOST_BYTES: Final = 2 * 1024 * 1024

BUS_PATH: Final = "/eventbus/v1/bus"
RECORD_PATH: Final = "/eventbus/v1/record"
PRODUCERS_PATH: Final = "/eventbus/v1/producers"


class RemoteBus(msgspec.Struct, frozen=True, rename="camel"):
    """The API's description of its bus."""

    id: str
    partitions: int
    event_ttl_s: int = 0
    codecs: tuple[int, ...] = BASELINE_CODECS  #: the codecs that producers may use


class LastNumbers(msgspec.Struct, frozen=True):
    """The last sequence number of each requested producer; 0: unknown."""

    last: list[int | None]


class HttpTransport:
    """A `Transport` through API workers. Any worker can take any request, because sequence numbers are in Redis."""

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
                # Keep the answers; the other requests are sent again.
                return answers + [error] * (len(requests) - len(answers))
        return answers

    def last(self, producers: Sequence[tuple[int, str]]) -> list[int | None]:
        return self._ask(producers)

    def shorten_life(self, producers: Sequence[tuple[int, str]]) -> None:
        """Do nothing: finished producers expire like producers without a spool."""
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
    """Connect and fetch the description of the bus. Raises: BusUnavailable, BusRefused, ConfigError."""
    connection = ApiConnection(address)
    try:
        return HttpTransport(connection)
    except BaseException:
        connection.close()
        raise


def read_bus(connection: ApiConnection) -> RemoteBus:
    """Fetch the API's description of its bus. Raises: as `ApiConnection.call`."""
    reply = connection.call("GET", BUS_PATH)
    try:
        return _BUS.decode(reply)
    except msgspec.DecodeError as error:
        raise BusUnavailable(f"{connection.address} is no API of eventbus: {error}") from None


def check_known(address: ApiAddress) -> None:
    """Check that the address is TLS, that we have credentials, and that the API refuses anonymous requests.

    Raises: ConfigError: one of these fails; the message has the cure.  BusUnavailable.
    """
    ours = address.settings
    if not address.tls:
        raise ConfigError(f"{address} is not https: others on the network could change the pods that run here")
    if not (ours.token or ours.token_file or ours.client_cert):
        raise ConfigError(f"no credentials for {address}: set EVENTBUS_TOKEN_FILE or EVENTBUS_CLIENT_CERT")
    nobody = msgspec.structs.replace(ours, token="", token_file="", client_cert="", client_key="")
    stranger = ApiConnection(msgspec.structs.replace(address, settings=nobody))
    try:
        stranger.call("GET", BUS_PATH)
    except BusRefused:
        return
    finally:
        stranger.close()
    raise ConfigError(f"{address} accepts anonymous requests: start the API worker with --token-file or --client-ca")


def _posts(requests: Sequence[PublishRequest]) -> Iterator[Sequence[PublishRequest]]:
    """Split *requests*, in order, into parts that fit into one body."""
    start = size = 0
    for i, request in enumerate(requests):
        if i > start and (size + len(request.body) > MOST_BYTES or i - start == MAX_FRAMES):
            yield requests[start:i]
            start, size = i, 0
        size += len(request.body) + 256
    yield requests[start:]


_ENCODE: Final = msgspec.json.Encoder().encode
_LASTS: Final = msgspec.json.Decoder(decodable(LastNumbers))
_BUS: Final = msgspec.json.Decoder(decodable(RemoteBus))
