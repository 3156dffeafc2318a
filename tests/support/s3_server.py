"""A small server with the API of S3, for `PutObject` alone."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from hashlib import md5, sha256
from urllib.parse import unquote

from tests.support.webhook_server import Answer, Delivery, Endpoint


class S3Store(Endpoint):
    """A bucket `events` on a server of S3 that accepts only what PutObject needs; the signature is not verified.

    *objects*: the body of each object by its key. *rows*: name, count and delivery id of each event, in order.
    *mistakes*: requests that the real one would refuse.
    """

    bucket = "/events/"

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[tuple[str, int, str]] = []
        self.objects: dict[str, bytes] = {}
        self.mistakes: list[str] = []

    @property
    def counts(self) -> dict[str, int]:
        """Return the last count of each event by its name."""
        return {name: count for name, count, _ in self.rows.copy()}

    @property
    def repeats(self) -> Counter[str]:
        """Return how often each delivery id was stored."""
        return Counter(uid for _, _, uid in self.rows.copy())

    def answer(self, delivery: Delivery) -> Answer:
        self.deliveries.append(delivery)
        if self.answers:
            return self.answers.popleft()
        key = unquote(delivery.path).removeprefix(self.bucket)
        signed = delivery.headers.get("authorization", "").startswith("AWS4-HMAC-SHA256 Credential=")
        digest = delivery.headers.get("x-amz-content-sha256", "")
        if not delivery.path.startswith(self.bucket):
            return Answer(404, body=b"<Error><Code>NoSuchBucket</Code></Error>")
        if not signed or "x-amz-date" not in delivery.headers:
            return Answer(403, body=b"<Error><Code>AccessDenied</Code></Error>")
        if "?" in delivery.path or digest not in ("UNSIGNED-PAYLOAD", sha256(delivery.body).hexdigest()):
            self.mistakes.append(f"{delivery.path}: {digest}")
            return Answer(400, body=b"<Error><Code>XAmzContentSHA256Mismatch</Code></Error>")
        if self.objects.get(key, delivery.body) != delivery.body:
            self.mistakes.append(f"{key} is overwritten by other content")
        if key not in self.objects:
            for line in gzip.decompress(delivery.body).splitlines():
                found = json.loads(line)
                self.rows.append((found["event"]["metadata"]["name"], found["event"]["count"], found["deliveryId"]))
        self.objects[key] = delivery.body
        return Answer(200, {"ETag": f'"{md5(delivery.body).hexdigest()}"'})
