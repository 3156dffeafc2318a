"""What every client's program tells, a JSON line each: what it listed, what it wrote, what it was told."""

from __future__ import annotations

import json
from typing import Any

NAMESPACE = "default"


def tell(**told: Any) -> None:
    """Say one thing, at once."""
    print(json.dumps(told), flush=True)


def new_event(name: str) -> dict[str, Any]:
    """An event as a recorder would write it."""
    about = {"apiVersion": "v1", "kind": "Pod", "namespace": NAMESPACE, "name": "web-0"}
    metadata = {"name": name, "namespace": NAMESPACE}
    return {"metadata": metadata, "involvedObject": about, "reason": "Written", "type": "Normal", "count": 1}
