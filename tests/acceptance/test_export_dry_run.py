"""`eventbus worker export --dry-run`: prints the events that a new sink would get, and sends and stores nothing."""

from __future__ import annotations

import json

import pytest
from msgspec.structs import replace

from eventbus import Settings
from eventbus.broker.bus import open_bus
from eventbus.broker.health.export_status import export_status
from tests.acceptance.programs import environment, run
from tests.functions.partition import Partition
from tests.support.exporting import about
from tests.support.webhook_server import Endpoint, receiving


@pytest.mark.parametrize("scheme", ["otlp", "clickhouse+http", "http"])
def test_a_dry_run_prints_the_matching_events_and_sends_and_stores_nothing(
    embedded_url: str, prefix: str, scheme: str
) -> None:
    partition = Partition(embedded_url, prefix, burst=1_000, max_events=1_000)
    bus = open_bus(embedded_url, Settings(prefix=prefix))
    events = [replace(about(number), type="Warning" if number else "Normal") for number in range(3)]
    partition.record(*events)
    endpoint = Endpoint()
    with receiving(endpoint) as port:
        env = environment(embedded_url, prefix) | {"EVENTBUS_WEBHOOK_ALLOW_HOSTS": "127.0.0.1"}
        to = f"{scheme}://127.0.0.1:{port}"
        done = run("worker", "export", "--to", to, "--match", 'type="Warning"', "--dry-run", env=env)
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert {line["event"]["involvedObject"]["name"] for line in lines} == {"pod-1", "pod-2"}
    assert all(line["deliveryId"] == f"{line['event']['metadata']['uid']}/1" for line in lines)
    assert "dry run: 2 of 3 stored events match; nothing was written to" in done.stderr
    assert (endpoint.deliveries, endpoint.connections) == ([], 0)
    client = bus.client()
    assert export_status(bus, client) == ()
    client.close()
    partition.close()


def test_a_dry_run_refuses_a_url_that_cannot_be_used(embedded_url: str, prefix: str) -> None:
    done = run("worker", "export", "--to", "otlps://10.0.0.1", "--dry-run", env=environment(embedded_url, prefix))
    assert (done.returncode, done.stdout) == (2, "")
    assert "10.0.0.1 is where no request may go" in done.stderr
