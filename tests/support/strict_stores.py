"""The strict stand-ins of stores, each with the URL of a sink for it and what a user of the store reads back."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from tests.support.elasticsearch_server import Elasticsearch
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


def _headers(text: str) -> dict[str, str]:
    return {"EVENTBUS_EXPORT_HEADERS": text}


STRICT_STORES: dict[str, Callable[[], StrictStore]] = {"elasticsearch": elasticsearch, "opensearch": opensearch}
