"""The keys of client-go-semantics §4 as tuples: unlike client-go's joined strings they cannot collide."""

from __future__ import annotations

from eventbus.model.event import Event
from eventbus.settings import AggregateKey

Key = tuple[str, ...]


def event_key(event: Event) -> Key:
    """Return the key that makes two events the same event."""
    key = source_and_object(event)
    return ("event", *key, event.involved_object.field_path, event.type, event.reason, event.message)


def aggregate_key(event: Event, kind: AggregateKey = AggregateKey.REASON) -> Key:
    """Return the key that makes two events similar; they may differ in the message."""
    key = ("aggregate", *source_and_object(event), event.type, event.reason)
    key += (event.reporting_component, event.reporting_instance)
    if kind is AggregateKey.REASON_FIELD_PATH:
        key += (event.involved_object.field_path,)
    return key


def source_and_object(event: Event) -> Key:
    """Return the beginning of all three keys."""
    ref = event.involved_object
    return (event.source.component, event.source.host, ref.kind, ref.namespace, ref.name, ref.uid, ref.api_version)
