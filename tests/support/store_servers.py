"""Small servers with the HTTP of stores of events: OTLP, `_bulk`, ClickHouse's inserts, Splunk's collector.

Each stores the events of all requests, and answers as the real one does to a good request. They check little.
"""

from __future__ import annotations

import gzip
import json
from collections import Counter
from collections.abc import Callable, Iterator
from hashlib import md5, sha256
from typing import Any
from urllib.parse import unquote

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest

from tests.support.webhook_server import Answer, Delivery, Endpoint


class Store(Endpoint):
    """*rows*: what arrived: name, count and delivery id of each event, in order. *openings*: other requests."""

    #: The scheme of the sink's URL, and the path that events are written to.
    scheme = ""
    path = "/"

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[tuple[str, int, str]] = []
        self.openings: list[Delivery] = []

    @property
    def counts(self) -> dict[str, int]:
        """Return the last count of each event by its name."""
        return {name: count for name, count, _ in self.rows.copy()}

    @property
    def repeats(self) -> Counter[str]:
        """Return how often each delivery id was stored."""
        return Counter(uid for _, _, uid in self.rows.copy())

    def answer(self, delivery: Delivery) -> Answer:
        if delivery.path.partition("?")[0] != self.path or self._is_opening(delivery):
            self.openings.append(delivery)
            return Answer(200, {"Content-Type": "application/json"}, b"{}")
        if self.answers:
            self.deliveries.append(delivery)
            return self.answers.popleft()
        self.deliveries.append(delivery)
        return self._store(body_of(delivery))

    def _is_opening(self, delivery: Delivery) -> bool:
        return False

    def _store(self, body: bytes) -> Answer:
        raise NotImplementedError


class OtlpStore(Store):
    scheme, path = "otlp", "/v1/logs"

    def _store(self, body: bytes) -> Answer:
        for logs in ExportLogsServiceRequest.FromString(body).resource_logs:
            for record in logs.scope_logs[0].log_records:
                found = {pair.key: pair.value for pair in record.attributes}
                name, count = found["k8s.event.name"].string_value, found["k8s.event.count"].int_value
                self.rows.append((name, count, found["log.record.uid"].string_value))
        return Answer(200, {"Content-Type": "application/x-protobuf"})


class ElasticsearchStore(Store):
    """A document is created once by its id."""

    scheme, path = "elasticsearch+http", "/eventbus/_bulk"

    def __init__(self) -> None:
        super().__init__()
        self.ids: set[str] = set()

    def _store(self, body: bytes) -> Answer:
        lines = [json.loads(line) for line in body.splitlines()]
        items = []
        for action, document in zip(lines[::2], lines[1::2], strict=True):
            uid = action["create"]["_id"]
            status = 409 if uid in self.ids else 201
            if status == 201:
                self.ids.add(uid)
                self.rows.append((document["name"], document["count"], uid))
            items.append({"create": {"status": status}})
        answer = {"errors": any(item["create"]["status"] >= 300 for item in items), "items": items}
        return Answer(200, {"Content-Type": "application/json"}, json.dumps(answer).encode())


class ClickHouseStore(Store):
    """Rows with the same sorting key are one, as ReplacingMergeTree shows them with FINAL."""

    scheme, path = "clickhouse+http", "/"

    def __init__(self) -> None:
        super().__init__()
        self.keys: set[str] = set()

    def _is_opening(self, delivery: Delivery) -> bool:
        return "query=" not in delivery.path

    def _store(self, body: bytes) -> Answer:
        for line in body.splitlines():
            row = json.loads(line)
            uid = f"{row['uid']}/{row['count']}"
            if uid not in self.keys:
                self.keys.add(uid)
                self.rows.append((row["name"], row["count"], uid))
        return Answer(200)


class SplunkStore(Store):
    scheme, path = "splunk+http", "/services/collector/event"

    def _store(self, body: bytes) -> Answer:
        for one in _objects(body.decode()):
            self.rows.append((one["event"]["name"], one["event"]["count"], one["event"]["delivery_id"]))
        return Answer(200, {"Content-Type": "application/json"}, b'{"text":"Success","code":0}')


class S3Store(Store):
    """A bucket `events` on a server of S3 that accepts only what PutObject needs; the signature is not verified.

    *objects*: the body of each object by its key. *mistakes*: requests that the real one would refuse.
    """

    scheme, path, bucket = "s3+http", "/events/some/prefix", "/events/"

    def __init__(self) -> None:
        super().__init__()
        self.objects: dict[str, bytes] = {}
        self.mistakes: list[str] = []

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


STORES: dict[str, Callable[[], Store]] = {
    "otlp": OtlpStore,
    "elasticsearch": ElasticsearchStore,
    "clickhouse": ClickHouseStore,
    "splunk": SplunkStore,
}


def body_of(delivery: Delivery) -> bytes:
    """Return the body, expanded."""
    zipped = delivery.headers.get("content-encoding") == "gzip"
    return gzip.decompress(delivery.body) if zipped else delivery.body


def _objects(text: str) -> Iterator[Any]:
    """Yield the JSON objects that are written one after the other."""
    decoder, place = json.JSONDecoder(), 0
    while place < len(text):
        found, place = decoder.raw_decode(text, place)
        yield found
        while place < len(text) and text[place].isspace():
            place += 1
