"""Events as rows: the columns that the sinks for searchable stores have in common. PostgreSQL's table has them too."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from eventbus.export.sinks.common import storable_core, version_of
from eventbus.model.event import Event


def row_of(event: Event) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the columns of *event*, and its core/v1 object. Raises: EventUnbuildable."""
    version, core = version_of(event), storable_core(event)
    about, meta = core["involvedObject"], core["metadata"]
    source = core.get("source", {})
    return {
        "namespace": meta.get("namespace", ""),
        "name": meta.get("name", ""),
        "uid": meta.get("uid", ""),
        "version": version,
        "object_kind": about.get("kind", ""),
        "object_name": about.get("name", ""),
        "object_uid": about.get("uid", ""),
        "type": core.get("type", ""),
        "reason": core.get("reason", ""),
        "message": core.get("message", ""),
        "component": source.get("component", "") or core.get("reportingComponent", ""),
        "host": source.get("host", ""),
        "count": event.times_seen,
        "first_seen": event.first_timestamp or event.event_time or event.metadata.creation_timestamp,
        "last_seen": event.last_seen or datetime.now(UTC),
    }, core
