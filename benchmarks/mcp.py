"""Measures the tools for assistants over HTTP, with the official client: `python -m benchmarks.mcp [--stored 100000]`.

One API worker in a process of its own, an embedded server and the client share the machine.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import tempfile
import time
from datetime import UTC, datetime, timedelta
from typing import Any

from mcp.client.client import Client

from benchmarks.api import worker
from benchmarks.sink_worker import Worker, an_embedded_bus
from eventbus.broker.keys import SINK_GROUP
from eventbus.model.event import Event, EventSource, ObjectMeta, ObjectReference
from eventbus.settings import Options

CALLS = 20
#: Reasons: one of ten events is a Warning, one of a hundred is rare.
REASONS = ("Started", "Pulled", "Created", "Scheduled", "Killing", "Probed", "Mounted", "Ready", "Synced", "BackOff")
QUESTIONS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("what_happened", {"kind": "Pod", "name": "web-7", "namespace": "team-7"}),
    ("list_failing", {}),
    ("list_failing", {"namespace": "team-7", "since": "10m"}),
    ("list_events", {}),
    ("list_events", {"reason": "Rare", "limit": 500}),
    ("list_events", {"namespace": "team-7", "type": "Warning"}),
    ("list_events", {"text": "nowhere"}),
    ("get_event", {"namespace": "team-7", "name": "web-7.7"}),
    ("how_often", {"by": ["namespace", "type", "reason"]}),
    ("how_often", {"since": "6h", "by": ["reason"], "step_minutes": 15}),
    ("list_suppressed", {}),
    ("bus_status", {}),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--stored", type=int, default=100_000)
    stored = parser.parse_args().stored
    with an_embedded_bus(Options(burst=1_000_000)) as bus, tempfile.TemporaryDirectory(prefix="eb") as folder:
        now = datetime.now(UTC)
        sink = Worker(bus)
        for start in range(0, stored, 10_000):
            sink.append([event(number, now, stored) for number in range(start, min(start + 10_000, stored))])
            sink.drain()
        sink.client.xgroup_delconsumer(bus.keys[0].incoming, SINK_GROUP, "w")  # a dead worker, for `bus_status`
        with worker(bus.url, folder, prefix=bus.prefix) as api:
            print(f"| tool, {stored:,} stored events | p50 ms | max ms | KiB | truncated |\n|---|--:|--:|--:|---|")
            asyncio.run(measure(f"http://{api.where}/mcp"))


def event(number: int, now: datetime, stored: int) -> Event:
    """One of two or three events about each of many pods, in 200 namespaces, in the last 50 minutes."""
    pod = number % (stored * 2 // 5)
    name, namespace, moment = f"web-{pod}", f"team-{pod % 200}", now - timedelta(minutes=50) * (1 - number / stored)
    reason = "Rare" if number % 1000 == 999 else REASONS[number // 7 % 10]
    return Event(
        metadata=ObjectMeta(name=f"{name}.{number}", namespace=namespace),
        involved_object=ObjectReference(kind="Pod", namespace=namespace, name=name, uid=f"pod-{pod}"),
        reason=reason,
        message=f"container {number} of the pod was {reason} by the kubelet",
        type="Warning" if reason == "BackOff" else "Normal",
        source=EventSource(component="kubelet", host=f"node-{pod % 50}"),
        first_timestamp=moment,
        last_timestamp=moment,
        count=1,
        reporting_component="kubelet",
    )


async def measure(url: str) -> None:
    async with Client(url) as client:
        for name, arguments in QUESTIONS:
            took = []
            for _ in range(CALLS):
                begun = time.perf_counter()
                result = await client.call_tool(name, arguments)
                took.append((time.perf_counter() - begun) * 1000)
            text = getattr(result.content[0], "text", "")
            assert not result.is_error, text
            what = ", ".join(f"{key} {value}" for key, value in arguments.items())
            size = len(text) / 1024
            cut = '"truncated":true' in text
            print(f"| {name}({what}) | {statistics.median(took):.0f} | {max(took):.0f} | {size:.0f} | {cut} |")


if __name__ == "__main__":
    main()
