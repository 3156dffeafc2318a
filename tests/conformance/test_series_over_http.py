"""The requests of client-go's recorder of events.k8s.io, sent to an API worker: it stores its events and series."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from typing import Any
from urllib.error import HTTPError

import pytest

from eventbus.broker.bus import open_bus
from eventbus.settings import Settings
from tests.conformance import end_to_end
from tests.conformance.end_to_end import Vector, series_after
from tests.support.api_in_process import serving

#: The status of each answer that the server of the vectors gave without a fault.
STATUS = {"ok": (200, 201), "notfound": (404,), "exists": (409,)}
VECTORS = [
    vector
    for vector in end_to_end.recorded()
    if vector.in_series and not vector.options.get("faults") and vector.name not in end_to_end.NOT_OURS
]


@pytest.fixture
def url(embedded_url: str, prefix: str) -> Iterator[str]:
    with serving(open_bus(embedded_url, Settings(prefix=prefix, worker_block_ms=100))) as url:
        yield url


def send(method: str, url: str, body: Any = None, media_type: str = "application/json") -> tuple[int, Any]:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": media_type}, method=method)
    try:
        with urllib.request.urlopen(request, timeout=60) as reply:
            return reply.status, json.load(reply)
    except HTTPError as error:
        return error.code, json.load(error)


@pytest.mark.parametrize("vector", VECTORS, ids=[vector.name for vector in VECTORS])
def test_an_api_worker_answers_and_stores_as_the_server_of_the_vectors(vector: Vector, url: str) -> None:
    for call in vector.calls:
        events = f"{url}/apis/events.k8s.io/v1/namespaces/{call['ns']}/events"
        if call["verb"] == "create":
            status, _ = send("POST", events, call["event"] | {"kind": "Event", "apiVersion": "events.k8s.io/v1"})
        else:
            patch, media_type = call["patch"], "application/strategic-merge-patch+json"
            status, _ = send("PATCH", f"{events}/{call['name']}", patch, media_type)
        assert status in STATUS[call["answer"]], call

    _, listed = send("GET", f"{url}/apis/events.k8s.io/v1/events")
    stored = {
        each["metadata"]["name"]: (each["note"], each["eventTime"], each.get("series")) for each in listed["items"]
    }
    assert stored == series_after(vector)

    _, listed = send("GET", f"{url}/api/v1/events")
    stored = {
        each["metadata"]["name"]: (each["message"], each["eventTime"], each.get("series")) for each in listed["items"]
    }
    assert stored == series_after(vector)
