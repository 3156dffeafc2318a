"""The event that everybody carries: eleven fields, nested object and source, 500 bytes as compact JSON.

Nothing but the standard library, since peers import it in environments of their own.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any

#: bytes of one event as compact JSON
SIZE = 500
#: Peers send documents out of a pool, so that making them is not measured.
POOL = 1_000
KIND, NAMESPACE, API_VERSION, TYPE, REASON = "Pod", "default", "v1", "Warning", "BackOff"
COMPONENT, HOST = "kubelet", "node-17"


def object_name(number: int) -> str:
    return f"web-{number:07d}"


def message(number: int) -> str:
    """Make a message long enough for an event of 500 bytes."""
    text = f"Back-off restarting failed container web in pod {object_name(number)}_{NAMESPACE}: attempt {number % 5}; "
    return (text + "the last output was an out of memory error in worker thread, exit code 137 " * 3)[:_MESSAGE]


def document(number: int) -> dict[str, Any]:
    """The event as core/v1 writes it: what peers carry."""
    return _document(number, message(number))


def pool() -> list[dict[str, Any]]:
    """A thousand different events."""
    return [document(number) for number in range(POOL)]


def _document(number: int, text: str) -> dict[str, Any]:
    name = object_name(number)
    return {
        "metadata": {"name": f"{name}.187a{number:012x}", "namespace": NAMESPACE},
        "involvedObject": {
            "kind": KIND,
            "namespace": NAMESPACE,
            "name": name,
            "uid": f"5f6e0d5c-2a55-4b8e-9d1c-{number:012x}",
            "apiVersion": API_VERSION,
        },
        "reason": REASON,
        "message": text,
        "source": {"component": COMPONENT, "host": HOST},
        "firstTimestamp": "2026-11-21T09:00:00Z",
        "lastTimestamp": "2026-11-21T09:00:00Z",
        "count": 1,
        "type": TYPE,
    }


#: characters of a message that fill up an event
_MESSAGE = SIZE - len(json.dumps(_document(0, ""), separators=(",", ":")))


def numbers(load: str, total: int) -> Iterator[int]:
    """Yield each event's object: `distinct`, `zipf` (10 000 objects, the n-th as busy as 1/n), or one `hot`."""
    if load == "distinct":
        yield from range(total)
    elif load == "zipf":
        weights = [1 / (n + 1) for n in range(10_000)]
        yield from random.Random(1).choices(range(10_000), weights, k=total)
    else:
        yield from (0 for _ in range(total))
