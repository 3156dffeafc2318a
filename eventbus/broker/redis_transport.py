"""The transport over Redis: a pipeline of `publish` calls, and a check of the batches that Redis has of a producer."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from eventbus.broker.calls import PendingCalls
from eventbus.broker.connection.connect import is_cluster
from eventbus.broker.function_library import ANNOUNCE_EVERY_S, load, process_name
from eventbus.broker.functions import (
    announce_command,
    one_call,
    parse_once_reply,
    parse_replies,
    publish_command,
    publish_once_command,
)
from eventbus.broker.keys import bus_key
from eventbus.broker.redis_errors import redis_errors, translate
from eventbus.broker.transport import (
    PRODUCER_LIFE_MS,
    BusDescription,
    OnceRequest,
    PublishReply,
    PublishRequest,
    PublishStatus,
    nothing,
)
from eventbus.errors import EventBusError, FunctionsForbidden, FunctionsMissing
from eventbus.model.formats import BASELINE_CODECS, parse_numbers

if TYPE_CHECKING:
    from eventbus.broker.bus import Bus
    from eventbus.broker.connection.connect import Client

#: Batches of one partition on their way in one round trip.
IN_FLIGHT_BATCHES = 8
#: seconds until the build is announced again after an error
ANNOUNCE_AGAIN_S = 10.0


class RedisTransport:
    """A `Transport` to an opened bus: one client, one connection (a cluster: one a node). *client*: one to use."""

    def __init__(self, bus: Bus, client: Client | None = None) -> None:
        self._bus = bus
        self._client = client or bus.client(name="eventbus-outbox")

    def describe(self) -> BusDescription:
        return BusDescription(self._bus.partitions, IN_FLIGHT_BATCHES, self._bus.codecs, self._bus.id)

    def publish(
        self, requests: Sequence[PublishRequest], meanwhile: Callable[[], object] = nothing
    ) -> list[PublishReply | EventBusError]:
        """Send *requests* in one round trip; return the answer or error of each. Raises: BusUnavailable."""
        bound_bytes = self._bus.options.incoming_bytes
        calls = _by_call(requests)
        commands = [
            publish_command(self._bus.keys[batches[0].partition], batches, bound_bytes, self._bus.id)
            for batches in calls
        ]
        replies = self._publish(commands, meanwhile)
        answers: list[PublishReply | EventBusError] = []
        for batches, reply in zip(calls, replies, strict=True):
            count = len(batches)
            answers += [translate(reply)] * count if isinstance(reply, Exception) else parse_replies(reply, count)
        return self._make_missing(requests, answers)

    def publish_once(self, requests: Sequence[OnceRequest]) -> list[PublishReply | EventBusError]:
        """Send *requests* as `publish` does. DUP: some events were stored before, and the others are not stored yet."""
        bound_bytes = self._bus.options.incoming_bytes
        commands = [
            publish_once_command(self._bus.keys[request.partition], request, bound_bytes, self._bus.id)
            for request in requests
        ]
        replies = self._publish(commands, nothing)
        answers = [translate(each) if isinstance(each, Exception) else parse_once_reply(each) for each in replies]
        return self._make_missing(requests, answers)

    def last(self, producers: Sequence[tuple[int, str]]) -> list[int | None]:
        """Read the number of each producer's last stored batch, 0: none; None: it could not be read."""
        pipe: Any = self._client.pipeline(transaction=False)
        for partition, producer in producers:
            pipe.execute_command("HMGET", self._bus.keys[partition].producer + producer.encode(), "last")
        with redis_errors():
            replies = pipe.execute(raise_on_error=False)
        return [None if isinstance(reply, Exception) else int(reply[0] or 0) for reply in replies]

    def shorten_life(self, producers: Sequence[tuple[int, str]]) -> None:
        pipe: Any = self._client.pipeline(transaction=False)
        for partition, producer in producers:
            pipe.execute_command("PEXPIRE", self._bus.keys[partition].producer + producer.encode(), PRODUCER_LIFE_MS)
        with suppress(EventBusError), redis_errors():
            pipe.execute(raise_on_error=False)

    def close(self) -> None:
        self._client.close()

    def _publish(self, commands: Sequence[tuple[Any, ...]], meanwhile: Callable[[], object]) -> list[Any]:
        """Send *commands*, and the announcement of this build if it is due. Returns an answer or an error each."""
        more = self._announcement()
        replies = self._round_trip([*commands, *more], meanwhile)
        if more:
            self._announced(replies[len(commands) :])
        return replies[: len(commands)]

    def _announcement(self) -> list[tuple[Any, ...]]:
        """Return the commands that announce this build from time to time, and read the codecs for producers."""
        if time.monotonic() < self._bus.announce_at:
            return []
        announce = announce_command(self._bus.keys[0], "recorder", process_name())
        return [announce, ("HMGET", bus_key(self._bus.prefix), "codecs")]

    def _announced(self, replies: Sequence[Any]) -> None:
        """Take the answers. While the functions are missing, the build is announced with the next publish.

        After another error it is announced later: on a cluster the node of partition 0 may be away, and a call to it
        would delay the events of all other partitions.
        """
        announced, codecs = replies
        if not isinstance(codecs, Exception):
            self._bus.codecs = parse_numbers(codecs[0], BASELINE_CODECS)
        if not isinstance(announced, Exception):
            self._bus.announce_at = time.monotonic() + ANNOUNCE_EVERY_S
        elif not isinstance(translate(announced), FunctionsMissing):
            self._bus.announce_at = time.monotonic() + ANNOUNCE_AGAIN_S

    def _round_trip(self, commands: Sequence[tuple[Any, ...]], meanwhile: Callable[[], object]) -> list[Any]:
        """Send *commands*, call *meanwhile*, return an answer or an error each. A cluster's client does not wait so."""
        if is_cluster(self._client):
            pipe: Any = self._client.pipeline(transaction=False)
            for command in commands:
                pipe.execute_command(*command)
            with redis_errors():
                replies: list[Any] = pipe.execute(raise_on_error=False)
            return replies
        calls = PendingCalls(self._client, *commands)
        try:
            meanwhile()
        except BaseException:
            calls.abandon()
            raise
        return calls.answers()

    def _make_missing(
        self,
        requests: Sequence[PublishRequest] | Sequence[OnceRequest],
        answers: list[PublishReply | EventBusError],
    ) -> list[PublishReply | EventBusError]:
        """Create each missing partition, or check its bus; an error takes the place of the answer."""
        results: dict[int, PublishReply | EventBusError] = {}
        for i, answer in enumerate(answers):
            if isinstance(answer, FunctionsForbidden):
                continue
            if isinstance(answer, FunctionsMissing) or (
                isinstance(answer, PublishReply) and answer.status in (PublishStatus.MISSING, PublishStatus.OTHER)
            ):
                partition = requests[i].partition
                if partition not in results:
                    lacks_functions = isinstance(answer, FunctionsMissing)
                    results[partition] = self._load() if lacks_functions else self._make(partition)
                answers[i] = results[partition]
        return answers

    def _load(self) -> PublishReply | EventBusError:
        try:
            load(self._client)
        except EventBusError as error:
            return error
        return PublishReply(PublishStatus.MISSING)

    def _make(self, partition: int) -> PublishReply | EventBusError:
        try:
            # A producer has no right to open, but can continue with a bus that another process has created.
            if not self._bus.revalidate(self._client):
                self._bus.open_partition(self._client, partition)
        except EventBusError as error:
            return error
        return PublishReply(PublishStatus.MISSING)


def _by_call(requests: Sequence[PublishRequest]) -> list[list[PublishRequest]]:
    """Group consecutive batches of a producer: one call of `publish` appends them."""
    calls: list[list[PublishRequest]] = []
    for request in requests:
        if calls and one_call(calls[-1], request):
            calls[-1].append(request)
        else:
            calls.append([request])
    return calls
