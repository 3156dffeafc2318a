"""Encodes events as CloudEvents 1.0 with the official SDK: one (structured or binary) or a batch in a body."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from typing import Any, Final

import msgspec
from cloudevents.core.bindings.http import HTTPMessage, to_binary, to_structured
from cloudevents.core.exceptions import BaseCloudEventException
from cloudevents.core.formats.json import JSONFormat
from cloudevents.core.v1.event import CloudEvent

from eventbus.errors import EventUnbuildable
from eventbus.export.sinks.contract import delivery_id
from eventbus.export.sinks.storable import storable_core
from eventbus.model.event import Event

TYPE: Final = "io.eventbus.event.v1"
BATCH_TYPE: Final = "application/cloudevents-batch+json; charset=utf-8"

_FORMAT: Final = JSONFormat()


class Message(msgspec.Struct, frozen=True):
    """A body with its headers; *key* is its idempotency key, the same for every repeat."""

    headers: dict[str, str]
    body: bytes
    key: str


def structured(event: Event, source: str) -> Message:
    """Return the whole CloudEvent as JSON. Raises: EventUnbuildable."""
    return _message(event, to_structured(_cloud_event(event, source), _FORMAT))


def binary(event: Event, source: str) -> Message:
    """Return the core/v1 Event as body, the attributes as ce- headers. Raises: EventUnbuildable."""
    return _message(event, to_binary(_cloud_event(event, source), _FORMAT))


def batch(messages: Sequence[Message]) -> Message:
    """Return one body of *messages*, which are `structured`.

    The SDK has no batches yet; an array of its JSON is one."""
    keys = "\n".join(message.key for message in messages)
    body = b"[" + b",".join(message.body for message in messages) + b"]"
    return Message({"content-type": BATCH_TYPE}, body, blake2b(keys.encode(), digest_size=16).hexdigest())


def _message(event: Event, made: HTTPMessage) -> Message:
    return Message(dict(made.headers), made.body, delivery_id(event))


def _cloud_event(event: Event, source: str) -> CloudEvent:
    core = storable_core(event)
    about = core["involvedObject"]
    attributes: dict[str, Any] = {
        "id": delivery_id(event),
        "source": source,
        "type": TYPE,
        "specversion": "1.0",
        "datacontenttype": "application/json",
        "subject": "/".join(about[key] for key in ("namespace", "kind", "name") if about.get(key)),
        "time": event.last_seen,
        "eventtype": core.get("type"),
        "reason": core.get("reason"),
        "sequence": event.metadata.resource_version,
    }
    try:
        return CloudEvent({key: value for key, value in attributes.items() if value}, core)
    except (BaseCloudEventException, ValueError, TypeError) as error:
        raise EventUnbuildable(f"no CloudEvent can be made of it: {error}") from error
