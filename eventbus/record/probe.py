"""The question whether Redis has lost what it acknowledged: the ring brings it back, though nobody records."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

from eventbus.broker.keys import Keys
from eventbus.broker.redis_errors import redis_errors
from eventbus.errors import EventBusError
from eventbus.record.producer import Producer

if TYPE_CHECKING:
    from eventbus.broker.connection import Client

log = logging.getLogger("eventbus")

#: Longer than this nobody who only wants to be sure waits for the answer.
ANSWER_S = 1.0


class Probe:
    """Asks, for the flusher, and tells others whether a question is *under_way*: an object of its own for each."""

    def __init__(self) -> None:
        self.under_way: object | None = None

    def ask(self, client: Client, partitions: Sequence[tuple[Keys, Producer]]) -> None:
        """One round trip for all these idle producers; what Redis lost of theirs waits again."""
        pipe = client.pipeline(transaction=False)
        for keys, producer in partitions:
            producer.doubt.asked()
            pipe.execute_command("HMGET", keys.producer + producer.id.encode(), "last")
        self.under_way = object()
        try:
            with redis_errors():
                replies = pipe.execute(raise_on_error=False)
        except EventBusError:
            return  # nobody waits for it; who records next will say that Redis is away
        finally:
            self.under_way = None
        for (_, producer), reply in zip(partitions, replies, strict=True):
            if not isinstance(reply, Exception) and not producer.found(int(reply[0] or 0)):
                log.warning("Redis has lost what it had acknowledged; what the ring holds of it is sent again")
