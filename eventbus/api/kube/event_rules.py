"""Checks events by the rules of the API server, and tells all that is wrong at once, in its words.

Source: kubernetes `pkg/apis/core/validation/events.go`. Limits of ours come on top, when the store checks.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from eventbus.api.kube.metadata_rules import (
    changed_causes,
    invalid,
    metadata_causes,
    qualified_causes,
    subdomain_causes,
)
from eventbus.api.status import Cause
from eventbus.model.event import Event, EventSource, EventType
from eventbus.model.names import is_dns_subdomain
from eventbus.model.validation import MAX_ACTION, MAX_NEW_INSTANCE, MAX_NEW_MESSAGE, MAX_REASON

_REQUIRED: Final = "Required value"
#: What no update through events.k8s.io may change, by the names that events.go has for it.
_IMMUTABLE: Final = (
    ("involvedObject", "involved_object"),
    ("reason", "reason"),
    ("message", "message"),
    ("source", "source"),
    ("firstTimestamp", "first_timestamp"),
    ("lastTimestamp", "last_timestamp"),
    ("count", "count"),
    ("related", "related"),
    ("reportingController", "reporting_component"),
    ("reportingInstance", "reporting_instance"),
    ("type", "type"),
    ("action", "action"),
    ("eventTime", "event_time"),
)


def event_causes(event: Event, *, new_api: bool, former: Event | None) -> list[Cause]:
    """List what is wrong with an event. *new_api*: sent as events.k8s.io/v1. *former*: which it is to replace."""
    found = list(_legacy(event))
    if not new_api:
        return found
    if former is None:
        metadata = event.metadata
        return [*found, *subdomain_causes(metadata), *metadata_causes(metadata), *_series(event), *_new(event)]
    found += changed_causes(event.metadata, former.metadata)
    found += _series(event) if event.series != former.series else ()
    for field, attribute in _IMMUTABLE:
        if getattr(event, attribute) != getattr(former, attribute):
            found.append(invalid(field, getattr(event, attribute), "field is immutable"))
    return found


def _legacy(event: Event) -> Iterator[Cause]:
    about, namespace = event.involved_object.namespace, event.metadata.namespace
    if event.event_time is None:
        if about != namespace and (about or namespace not in ("", "default")):
            yield invalid("involvedObject.namespace", about, "does not match event.namespace")
        return
    if not about and namespace not in ("default", "kube-system"):
        yield invalid("involvedObject.namespace", about, "does not match event.namespace")
    if not event.reporting_component:
        yield Cause("FieldValueRequired", _REQUIRED, "reportingController")
    yield from qualified_causes("reportingController", event.reporting_component)
    yield from _bounded("reportingInstance", event.reporting_instance, MAX_NEW_INSTANCE)
    yield from _bounded("action", event.action, MAX_ACTION)
    yield from _bounded("reason", event.reason, MAX_REASON)
    if len(event.message.encode("utf-8", "replace")) > MAX_NEW_MESSAGE:
        yield invalid("message", "", f"can have at most {MAX_NEW_MESSAGE} characters")
    if namespace and not is_dns_subdomain(namespace):
        yield invalid("namespace", namespace, "a lowercase RFC 1123 subdomain must consist of lower case letters")


def _bounded(field: str, text: str, most: int) -> Iterator[Cause]:
    if not text:
        yield Cause("FieldValueRequired", _REQUIRED, field)
    elif len(text.encode("utf-8", "replace")) > most:
        yield invalid(field, "", f"can have at most {most} characters")


def _series(event: Event) -> Iterator[Cause]:
    if event.series is None:
        return
    if event.series.count < 2:
        yield invalid("series.count", "", "should be at least 2")
    if event.series.last_observed_time is None:
        yield Cause("FieldValueRequired", _REQUIRED, "series.lastObservedTime")


def _new(event: Event) -> Iterator[Cause]:
    if event.event_time is None:
        yield Cause("FieldValueRequired", _REQUIRED, "eventTime")
    if event.type not in (EventType.NORMAL, EventType.WARNING):
        yield invalid("type", "", f"has invalid value: {event.type}")
    unset = (
        ("firstTimestamp", event.first_timestamp is None),
        ("lastTimestamp", event.last_timestamp is None),
        ("count", event.count == 0),
        ("source", event.source == EventSource()),
    )
    for field, is_unset in unset:
        if not is_unset:
            yield invalid(field, "", "needs to be unset")
