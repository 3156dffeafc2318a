"""The OpenTelemetry SDK sends its events to an API worker, and each is stored once."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from eventbus import Settings
from eventbus.client.address import parse_api_url
from eventbus.client.connection import ApiConnection
from tests.acceptance.programs import Program, environment
from tests.clients.conftest import Front
from tests.clients.tools import PROGRAMS, PYTHON
from tests.waiting import eventually


@pytest.mark.skipif(not PYTHON.exists(), reason="make test-clients makes their environment")
def test_events_of_the_opentelemetry_sdk_are_stored_once_and_log_lines_are_not(
    front: Front, embedded_url: str, prefix: str, tmp_path: Path
) -> None:
    events = 1_200  # three requests of the SDK
    program = str(PROGRAMS / "otlp_log.py")
    api = ApiConnection(parse_api_url(front.url, Settings()))

    def recorded() -> list[dict[str, object]]:
        items: list[dict[str, object]] = json.loads(api.call("GET", "/api/v1/namespaces/shop/events"))["items"]
        return items

    with Program("worker", "sink", env=environment(embedded_url, prefix), folder=tmp_path):
        subprocess.run([str(PYTHON), program, f"{front.url}/v1/logs", str(events)], check=True, timeout=120)
        eventually(lambda: len(recorded()) >= events)
        items = recorded()
    api.close()
    assert len(items) == events
    assert {item["count"] for item in items} == {1}
    assert {item["reason"] for item in items} == {"PaymentFailed"}
