"""Records an event exactly once, though several processes may record it: the producer is the occurrence.

A recorder's producer is the process. Here its name is a digest of the identity of the occurrence. Redis accepts the
first batch of a producer once: the second one is a duplicate. It remembers a producer for two hours.
"""

from __future__ import annotations

import socket
from collections import deque
from hashlib import blake2b

from eventbus.broker.keys import partition_of
from eventbus.broker.transport import PublishRequest, PublishStatus, Transport
from eventbus.errors import BusFull, BusUnavailable, EventBusError, InvalidEvent
from eventbus.model.encoding.wire import pack_batch
from eventbus.model.event import ObjectReference
from eventbus.record.packing import Pending, pack
from eventbus.util.clock import Clock
from eventbus.util.log import log

#: Occurrences that wait for Redis; if there are more, the oldest is dropped, counted and logged.
MOST_WAITING = 10_000


class OccurrenceRecorder:
    """Records occurrences by their identity, in order, on behalf of *component*. One thread.

    Occurrences that Redis has not accepted wait for the next `flush`. *recorded* counts those that this process has
    recorded, *known* those that another process had recorded before, *dropped* those beyond MOST_WAITING.
    """

    def __init__(self, transport: Transport, *, clock: Clock, component: str, host: str = "") -> None:
        """Record over *transport*, which `close` closes. *host* is the source's; "": this one."""
        self.recorded = self.known = self.dropped = 0
        self._clock = clock
        self._source = (component, host or socket.gethostname())
        self._transport = transport
        self._partitions = transport.describe().partitions
        self._waiting: deque[PublishRequest] = deque()

    @property
    def waiting(self) -> int:
        """Return how many occurrences Redis has not accepted yet."""
        return len(self._waiting)

    def record(
        self, identity: str, about: ObjectReference, event_type: str, reason: str, message: str, at_ns: int = 0
    ) -> None:
        """Record that *reason* happened to *about* at *at_ns* (0: now), once for all callers with one *identity*.

        Returns at once if Redis is away. An invalid event is logged and dropped.
        """
        producer = blake2b(identity.encode(), digest_size=8).hexdigest()
        try:
            packed = pack(Pending(self._source, about, event_type, reason, message, at_ns or self._clock.time_ns()))
        except InvalidEvent as error:
            self.dropped += 1
            log.error("not recorded: %s", error)
            return
        body = pack_batch(producer, 1, [packed])
        self._waiting.append(PublishRequest(partition_of(about, self._partitions), producer, 1, 1, body, "", 0, ()))
        if len(self._waiting) > MOST_WAITING:
            self._waiting.popleft()
            self.dropped += 1
            log.error("an event was dropped: %d wait for Redis already", MOST_WAITING)

    def flush(self) -> None:
        """Send the waiting occurrences.

        Raises: BusUnavailable, BusFull, BusRefused: some were not accepted; call again.
        """
        while self._waiting:
            if self._publish(self._waiting[0]) is PublishStatus.DUP:
                self.known += 1
            else:
                self.recorded += 1
            self._waiting.popleft()

    def close(self) -> None:
        """Close the connection."""
        self._transport.close()

    def _publish(self, request: PublishRequest) -> PublishStatus:
        """Publish; return OK, LOST or DUP. The transport makes a missing stream, and the second try succeeds."""
        for _ in range(2):
            [answer] = self._transport.publish([request])
            if isinstance(answer, EventBusError):
                raise answer
            if answer.status is PublishStatus.FULL:
                raise BusFull("the stream is full: start sink workers, or see `eventbus doctor`")
            if answer.status is not PublishStatus.MISSING:
                return answer.status
        raise BusUnavailable("the stream was created again just now; try again")
