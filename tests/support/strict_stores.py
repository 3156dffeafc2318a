"""The strict stand-ins of stores, each with the URL of a sink for it and what a user of the store reads back."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from tests.support.clickhouse_server import ClickHouse
from tests.support.elasticsearch_server import Elasticsearch
from tests.support.otlp_server import Loki, OtlpReceiver
from tests.support.splunk_server import Splunk
from tests.support.strict_service import StrictService


@dataclass(frozen=True)
class StrictStore:
    """*read*: returns the delivery ids of all that is stored. *tells_repeats*: it stores a repeated write once."""

    service: StrictService
    scheme: str
    path: str
    read: Callable[[], list[str]]
    tells_repeats: bool = True
    environ: dict[str, str] = field(default_factory=dict)

    @property
    def counts(self) -> Counter[str]:
        return Counter(self.read())

    def url(self, port: int) -> str:
        return f"{self.scheme}://127.0.0.1:{port}{self.path}"


def elasticsearch() -> StrictStore:
    server = Elasticsearch(authorization="ApiKey abc")
    return _search_store(server, "elasticsearch+http")


def opensearch() -> StrictStore:
    return _search_store(Elasticsearch(flavor="opensearch", authorization="ApiKey abc"), "opensearch+http")


def _search_store(server: Elasticsearch, scheme: str) -> StrictStore:
    def read() -> list[str]:
        return [f"{found['uid']}/{found['count']}" for found in server.documents("events")]

    return StrictStore(server, scheme, "/events", read, environ=_headers("Authorization: ApiKey abc"))


def clickhouse() -> StrictStore:
    server = ClickHouse(user="events", password="secret", async_insert=True)
    headers = "X-ClickHouse-User: events\nX-ClickHouse-Key: secret"

    def read() -> list[str]:
        return [f"{row['uid']}/{row['count']}" for row in server.select("eventbus_events")]

    return StrictStore(server, "clickhouse+http", "/default/eventbus_events", read, environ=_headers(headers))


def otlp() -> StrictStore:
    server = OtlpReceiver(authorization="Bearer abc")

    def read() -> list[str]:
        return [record.attributes["log.record.uid"] for record in server.records]

    return StrictStore(server, "otlp", "", read, False, _headers("Authorization: Bearer abc"))


def loki() -> StrictStore:
    server = Loki(tenant="shop")

    def read() -> list[str]:
        return [entry.metadata["log_record_uid"] for entry in server.query(labels={})]

    return StrictStore(server, "loki+http", "", read, environ=_headers("X-Scope-OrgID: shop"))


def splunk() -> StrictStore:
    server = Splunk(indexes=("main", "events"))

    def read() -> list[str]:
        return [found["event"]["delivery_id"] for found in server.search(index="events")]

    return StrictStore(server, "splunk+http", "?index=events", read, False, _headers("Authorization: Splunk T0K3N"))


def _headers(text: str) -> dict[str, str]:
    return {"EVENTBUS_EXPORT_HEADERS": text}


STRICT_STORES: dict[str, Callable[[], StrictStore]] = {
    "elasticsearch": elasticsearch,
    "opensearch": opensearch,
    "clickhouse": clickhouse,
    "otlp": otlp,
    "loki": loki,
    "splunk": splunk,
}
