"""What the strict stand-ins of stores share: faults that a test orders, authorization, gzip, and the size of a body."""

from __future__ import annotations

import threading
import zlib
from abc import abstractmethod
from dataclasses import replace
from typing import Final

from tests.support.webhook_server import Answer, Delivery, Endpoint

RETRY_AFTER_S: Final = 7


class StrictService(Endpoint):
    """A service that takes items in requests. `answers`, filled by a test, come before the service's own.

    *authorization*: what the header of a request must be. *max_bytes*: of a body after gzip.
    *throttled*: so many requests are answered with 429. *lost_replies*: so many requests are carried out without an
    answer. *hanging*: so many requests are carried out, and never answered. *refused_text*: an item with this text is
    an invalid one.
    """

    def __init__(self, *, authorization: str = "", max_bytes: int = 20 << 20) -> None:
        super().__init__()
        self.lock = threading.Lock()  #: of the stored items
        self.authorization = authorization
        self.max_bytes = max_bytes
        self.throttled = 0
        self.lost_replies = 0
        self.hanging = 0
        self.refused_text = ""
        self.refusals: list[Answer] = []  # the service's own, apart from size and rate

    def answer(self, delivery: Delivery) -> Answer:
        writes = self.is_write(delivery)
        if self.answers and writes:
            return super().answer(delivery)
        self.deliveries.append(delivery)
        with self.lock:
            answer = self._checked(delivery)
        if answer.status >= 400 and answer.status not in (413, 429):
            self.refusals.append(answer)
        if self.lost_replies and writes and answer.status < 300:
            self.lost_replies -= 1
            return Answer(0)
        if self.hanging and writes and answer.status < 300:
            self.hanging -= 1
            self.closing.wait()
        return answer

    def is_write(self, _delivery: Delivery) -> bool:
        """Whether a request has items. The faults concern only these."""
        return True

    @abstractmethod
    def serve(self, delivery: Delivery) -> Answer:
        """Answer a request that may be served; its body is unpacked."""

    @abstractmethod
    def refuse(self, status: int, message: str) -> Answer:
        """Make the service's answer for an error of the whole request."""

    def _checked(self, delivery: Delivery) -> Answer:
        if delivery.headers.get("authorization", "") != self.authorization:
            return self.refuse(401, "missing or wrong credentials")
        encoding = delivery.headers.get("content-encoding", "identity")
        body = delivery.body
        if encoding == "gzip":
            unpacker = zlib.decompressobj(wbits=31)
            try:
                body = unpacker.decompress(body, self.max_bytes + 1)
            except zlib.error as error:
                return self.refuse(400, f"the body is no gzip: {error}")
            if len(body) <= self.max_bytes and (not unpacker.eof or unpacker.unused_data):
                return self.refuse(400, "the body is no whole gzip member")
        elif encoding != "identity":
            return self.refuse(415, f"Content-Encoding {encoding!r} is not supported")
        if len(body) > self.max_bytes:
            return self.refuse(413, f"the body is larger than {self.max_bytes} bytes")
        if self.throttled and self.is_write(delivery):
            self.throttled -= 1
            limited = self.refuse(429, "too many requests")
            return replace(limited, headers={**limited.headers, "Retry-After": str(RETRY_AFTER_S)})
        return self.serve(replace(delivery, body=body))
