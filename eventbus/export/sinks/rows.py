"""Events as rows: the columns that the sinks for searchable stores have in common. PostgreSQL's table has them too."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from eventbus.export.sinks.common import storable, version_of
from eventbus.model.event import Event


def row_of(event: Event) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the columns of *event*, and its core/v1 object. Raises: EventUnbuildable."""
    version, (event, core) = version_of(event), storable(event)
    about, meta, source = event.involved_object, event.metadata, event.source
    return {
        "namespace": meta.namespace,
        "name": meta.name,
        "uid": meta.uid,
        "version": version,
        "object_kind": about.kind,
        "object_name": about.name,
        "object_uid": about.uid,
        "type": event.type,
        "reason": event.reason,
        "message": event.message,
        "component": source.component or event.reporting_component,
        "host": source.host,
        "count": event.times_seen,
        "first_seen": event.first_timestamp or event.event_time or meta.creation_timestamp,
        "last_seen": event.last_seen or datetime.now(UTC),
    }, core
