"""The strict stand-ins of stores, each with the URL of a sink for it and the events that a user of the store reads."""

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
    """*read*: returns name and delivery id of each stored change. *tells_repeats*: it stores a repeated write once."""

    service: StrictService
    scheme: str
    path: str
    read: Callable[[], list[tuple[str, str]]]
    tells_repeats: bool = True
    environ: dict[str, str] = field(default_factory=dict)

    @property
    def ids(self) -> list[str]:
        """Return the delivery id of each stored change, in order."""
        with self.service.lock:
            return [delivery_id for _, delivery_id in self.read()]

    @property
    def repeats(self) -> Counter[str]:
        """Return how often each delivery id is stored."""
        return Counter(self.ids)

    @property
    def counts(self) -> dict[str, int]:
        """Return the last count of each event by its name."""
        with self.service.lock:
            return {name: int(delivery_id.rpartition("/")[2]) for name, delivery_id in self.read()}

    def url(self, port: int) -> str:
        return f"{self.scheme}://127.0.0.1:{port}{self.path}"


def elasticsearch(authorization: str = "ApiKey abc") -> StrictStore:
    return _search_store(Elasticsearch(authorization=authorization), "elasticsearch+http")


def opensearch() -> StrictStore:
    return _search_store(Elasticsearch(flavor="opensearch", authorization="ApiKey abc"), "opensearch+http")


def _search_store(server: Elasticsearch, scheme: str) -> StrictStore:
    def read() -> list[tuple[str, str]]:
        return [(found["name"], f"{found['uid']}/{found['count']}") for found in server.documents("events")]

    return StrictStore(server, scheme, "/events", read, environ=_headers(f"Authorization: {server.authorization}"))


def clickhouse() -> StrictStore:
    server = ClickHouse(user="events", password="secret", async_insert=True)
    headers = "X-ClickHouse-User: events\nX-ClickHouse-Key: secret"

    def read() -> list[tuple[str, str]]:
        rows = server.select("eventbus_events") if "eventbus_events" in server.tables else []
        return [(row["name"], f"{row['uid']}/{row['count']}") for row in rows]

    return StrictStore(server, "clickhouse+http", "/default/eventbus_events", read, environ=_headers(headers))


def otlp() -> StrictStore:
    server = OtlpReceiver(authorization="Bearer abc")

    def read() -> list[tuple[str, str]]:
        found = [record.attributes for record in server.records]
        return [(attributes["k8s.event.name"], attributes["log.record.uid"]) for attributes in found]

    return StrictStore(server, "otlp", "", read, False, _headers("Authorization: Bearer abc"))


def loki() -> StrictStore:
    server = Loki(tenant="shop")

    def read() -> list[tuple[str, str]]:
        found = [entry.metadata for entry in server.query(labels={})]
        return [(metadata["k8s_event_name"], metadata["log_record_uid"]) for metadata in found]

    return StrictStore(server, "loki+http", "", read, environ=_headers("X-Scope-OrgID: shop"))


def splunk() -> StrictStore:
    server = Splunk(indexes=("main", "events"))

    def read() -> list[tuple[str, str]]:
        found = [found["event"] for found in server.search(index="events")]
        return [(event["name"], event["delivery_id"]) for event in found]

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
