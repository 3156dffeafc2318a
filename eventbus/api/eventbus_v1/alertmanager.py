"""`POST /eventbus/v1/alertmanager`: the webhook of an Alertmanager. Alerts become events of the bus.

Source: alertmanager `template/template.go`, Data, and `notify/webhook/webhook.go`, payload version 4.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Annotated, Final, Literal

import msgspec
from aiohttp import web

from eventbus.api import status
from eventbus.api.context import API, HEADER
from eventbus.api.eventbus_v1.intake import MAX_EVENTS
from eventbus.api.eventbus_v1.record import JSON_TYPES, Recorded, Recording, read_recorded
from eventbus.api.kube.bodies import decode_as
from eventbus.api.metrics import Metrics
from eventbus.api.responses import reply_json
from eventbus.errors import BusFull, InvalidEvent
from eventbus.model.bus_path import ALERT_ANNOTATION, PATH_ANNOTATION, Loop, extend_path, find_loop
from eventbus.model.event import Event, EventSource, EventType, Instant, ObjectMeta, ObjectReference
from eventbus.model.names import MAX_LABEL, is_qualified_name
from eventbus.model.reference import DEFAULT_NAMESPACE, reference_to, spelled_kind
from eventbus.model.validation import MAX_REASON
from eventbus.util.text import cut_bytes, repair

#: The component of the events.
COMPONENT: Final = "alertmanager"
#: The reason of the event of a resolved alert. `verdict.py` ends failures by it.
RESOLVED_REASON: Final = "Resolved"
#: The kind of the object of an alert without a label for another one.
ALERT_KIND: Final = "Alert"
#: How long an alert is known: longer than most values of `repeat_interval`. Redis keeps 200 bytes for each.
LIFE_MS: Final = 86_400_000
#: Bytes of a message.
MESSAGE_BYTES: Final = 1024
#: Labels of an alert that become labels of its event; the first ones by name.
MOST_LABELS: Final = 16
#: Labels with the name of the object, the most exact first, and its kind.
_KINDS: Final = {
    "pod": "Pod",
    "deployment": "Deployment",
    "statefulset": "StatefulSet",
    "daemonset": "DaemonSet",
    "replicaset": "ReplicaSet",
    "cronjob": "CronJob",
    "job_name": "Job",
    "horizontalpodautoscaler": "HorizontalPodAutoscaler",
    "persistentvolumeclaim": "PersistentVolumeClaim",
    "node": "Node",
    "instance": "Instance",
    "namespace": "Namespace",
}
_WORD: Final = re.compile(r"[A-Za-z0-9]+")


class Result(StrEnum):
    """The result of one alert, as it is counted."""

    ACCEPTED = "accepted"  #: also those that were recorded before
    OWN = "own"
    TOO_MANY_BUSES = "too-many-buses"
    INVALID = "invalid"
    TRUNCATED = "truncated"  #: left out by the Alertmanager, because of its `max_alerts`


class WebhookAlert(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """One alert of a webhook."""

    status: Literal["firing", "resolved"]
    labels: dict[str, str]
    annotations: dict[str, str] = {}
    starts_at: Instant
    ends_at: Instant
    fingerprint: Annotated[str, msgspec.Meta(min_length=1, max_length=64)]


class WebhookMessage(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """The part of the payload that is read."""

    version: Literal["4"]
    alerts: Annotated[list[WebhookAlert], msgspec.Meta(max_length=MAX_EVENTS)]
    truncated_alerts: Annotated[int, msgspec.Meta(ge=0)] = 0


class Alertmanager:
    """The handler. An alert with a known fingerprint, status and time changes nothing within `LIFE_MS`."""

    def __init__(self, recording: Recording, metrics: Metrics) -> None:
        self._recording = recording
        self._metrics = metrics

    async def receive(self, request: web.Request) -> web.Response:
        """Record them: the answer is that of `record`. 503 if there is no room: Alertmanager retries no 429.

        Alerts that have passed this bus are left out; they are no error of the sender.
        """
        if request.content_type not in JSON_TYPES:  # a page of any site could send other types
            raise status.unsupported_media_type(sorted(JSON_TYPES))
        api = request.app[API]
        body = await read_recorded(request)
        sender = request.headers.get(HEADER, "")

        def read() -> tuple[WebhookMessage, list[Event | InvalidEvent]]:
            if body.count(b"{") > 4 * MAX_EVENTS:
                raise status.too_much(f"at most {MAX_EVENTS} alerts in a request")
            found = decode_as(WebhookMessage, body, "the body must be a webhook of Alertmanager, version 4")
            return found, [event_of_alert(alert, api.bus.id, sender) for alert in found.alerts]

        found, events = await api.pool.run(lambda _: read())
        taken = await self._recording.take(
            request, body, lambda _: events, key="", uids=[_identity(a) for a in found.alerts], uid_life_ms=LIFE_MS
        )
        if taken.failed:
            error = taken.error
            raise status.unavailable(str(error)) if isinstance(error, BusFull) else error
        results: Counter[str] = Counter(Result(event.word) for event in events if isinstance(event, Loop))
        invalid = len(taken.refused) - results.total()
        results += Counter({Result.INVALID: invalid, Result.TRUNCATED: found.truncated_alerts})
        results[Result.ACCEPTED] = taken.accepted
        self._metrics.note_alerts(results)
        code = 422 if invalid and not taken.accepted else 200
        return reply_json(Recorded(taken.accepted, list(taken.refused)), code=code)


def event_of_alert(alert: WebhookAlert, bus_id: str, sender: str = "") -> Event | InvalidEvent:
    """Return the event of *alert* for the bus *bus_id*. *sender*: the bus that has sent it without an Alertmanager."""
    labels, fires = alert.labels, alert.status == "firing"
    path = alert.annotations.get(ALERT_ANNOTATION) or labels.get(ALERT_ANNOTATION, "")
    path = extend_path(path, sender)
    if (loop := find_loop(ALERT_ANNOTATION, path, bus_id)) is not None:
        return loop
    name = labels.get("alertname", "")
    try:
        about = _object_of(labels, name or alert.fingerprint)
    except InvalidEvent as error:
        return error
    text = _text_of(alert)
    time = alert.starts_at if fires else alert.ends_at
    return Event(
        metadata=ObjectMeta(
            namespace=about.namespace or DEFAULT_NAMESPACE,
            labels=_labels_of(labels),
            annotations={PATH_ANNOTATION: path} if path else {},
        ),
        involved_object=about,
        reason=_reason(name) if fires else RESOLVED_REASON,
        message=cut_bytes(repair(text if fires or not name else f"{name}: {text}"), MESSAGE_BYTES),
        source=EventSource(COMPONENT),
        type=(EventType.WARNING if fires else EventType.NORMAL).value,
        first_timestamp=time,
        last_timestamp=time,
    )


def _identity(alert: WebhookAlert) -> str:
    time = alert.starts_at if alert.status == "firing" else alert.ends_at
    return f"alertmanager/{alert.fingerprint}/{alert.status}/{time.isoformat()}"


def _object_of(labels: Mapping[str, str], otherwise: str) -> ObjectReference:
    """Return the object that *labels* name, else `Alert/` and *otherwise*. Raises: InvalidEvent."""
    kind, name = labels.get("kind", ""), labels.get("name", "")
    if kind and name:
        kind = spelled_kind(kind)
    else:
        kind, name = next(((kind, labels[key]) for key, kind in _KINDS.items() if labels.get(key)), ("", ""))
    if not name:
        kind, name = ALERT_KIND, otherwise
    return reference_to(ObjectReference(kind=kind, name=name), labels.get("namespace") or DEFAULT_NAMESPACE)


def _reason(name: str) -> str:
    """`high-latency p99` → HighLatencyP99."""
    words: Sequence[str] = _WORD.findall(name)
    return cut_bytes("".join(word[:1].upper() + word[1:] for word in words) or ALERT_KIND, MAX_REASON, "")


def _text_of(alert: WebhookAlert) -> str:
    annotations = alert.annotations
    texts = [annotations.get("summary", ""), annotations.get("description") or annotations.get("message", "")]
    found = ": ".join(dict.fromkeys(text.strip() for text in texts if text.strip()))
    return found or ", ".join(f"{name}={value}" for name, value in sorted(alert.labels.items()))


def _labels_of(labels: Mapping[str, str]) -> dict[str, str]:
    """Return the labels that an event can have: selectors have no quoting, so other values could not be selected."""
    found = {
        name: value
        for name, value in sorted(labels.items())
        if len(value) <= MAX_LABEL and "/" not in value and is_qualified_name(name) and is_qualified_name(value)
    }
    return dict(list(found.items())[:MOST_LABELS])
