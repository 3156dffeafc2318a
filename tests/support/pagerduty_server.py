"""A stand-in for PagerDuty's Events API v2, written from its published reference.

It rejects unknown fields, where PagerDuty ignores some of them, and enforces sizes, required fields and the rate. An
unknown routing key with 32 characters is refused here; PagerDuty accepts it and drops the event.
Source: https://developer.pagerduty.com/docs/events-api-v2-overview, send-alert-event.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from tests.support.webhook_server import Answer, Delivery, Endpoint

PATH: Final = "/v2/enqueue"
MAX_BYTES: Final = 512 * 1024
_FIELDS: Final = {
    "routing_key": str,
    "event_action": str,
    "dedup_key": str,
    "payload": dict,
    "client": str,
    "client_url": str,
    "links": list,
    "images": list,
}
_PAYLOAD: Final = {
    "summary": str,
    "source": str,
    "severity": str,
    "timestamp": str,
    "component": str,
    "group": str,
    "class": str,
    "custom_details": dict,
}


class PagerDuty(Endpoint):
    """One service with its open alerts, by dedup key; *opened* and *resolved* list the keys, each alert once.

    *burst*: so many events are accepted, then 429 until it is raised. *lost_replies*: so many requests are carried out
    without an answer.
    """

    def __init__(self, *, routing_key: str = "R" * 32, burst: int = 1000) -> None:
        super().__init__()
        self.routing_key = routing_key
        self.burst = burst
        self.lost_replies = 0
        self.open: dict[str, list[dict[str, Any]]] = {}
        self.opened: list[str] = []
        self.resolved: list[str] = []

    def answer(self, delivery: Delivery) -> Answer:
        ordered = bool(self.answers)
        answer = super().answer(delivery)
        if ordered:
            return answer
        answer = self._enqueue(delivery)
        if self.lost_replies:
            self.lost_replies -= 1
            return Answer(0)
        return answer

    def _enqueue(self, delivery: Delivery) -> Answer:
        if delivery.path != PATH:
            return Answer(404)
        if self.burst <= 0:
            return Answer(429, body=b'{"status":"throttle exceeded","message":"Requests for this service are limited"}')
        if len(delivery.body) > MAX_BYTES:
            return Answer(413)
        try:
            event = json.loads(delivery.body)
        except ValueError:
            return _invalid(["the body is not JSON"])
        if errors := self._errors(event):
            return _invalid(errors)
        self.burst -= 1
        key = event.get("dedup_key") or f"made-{len(self.opened)}"
        if event["event_action"] == "trigger":
            if key not in self.open:
                self.opened.append(key)
            self.open.setdefault(key, []).append(event)
        elif event["event_action"] == "resolve" and self.open.pop(key, None):
            self.resolved.append(key)
        reply = {"status": "success", "message": "Event processed", "dedup_key": key}
        return Answer(202, {"content-type": "application/json"}, json.dumps(reply).encode())

    def _errors(self, event: Any) -> list[str]:
        if not isinstance(event, dict):
            return ["the body is not an object"]
        errors = _wrong_fields(event, _FIELDS)
        key = event.get("routing_key")
        if not isinstance(key, str) or len(key) != 32:
            errors.append("Length of 'routing_key' is incorrect (should be 32 characters)")
        elif key != self.routing_key:
            errors.append("'routing_key' is invalid")
        if len(event.get("dedup_key", "")) > 255:
            errors.append("'dedup_key' is too long")
        action = event.get("event_action")
        if action not in ("trigger", "acknowledge", "resolve"):
            errors.append("'event_action' is invalid")
        if action in ("acknowledge", "resolve") and not event.get("dedup_key"):
            errors.append("'dedup_key' is missing")
        return errors + (_payload_errors(event.get("payload")) if action == "trigger" else [])


def _payload_errors(payload: Any) -> list[str]:
    if not isinstance(payload, dict):
        return ["'payload' is missing"]
    errors = _wrong_fields(payload, _PAYLOAD)
    errors += [f"'payload.{name}' is missing" for name in ("summary", "source", "severity") if not payload.get(name)]
    if len(payload.get("summary", "")) > 1024:
        errors.append("'payload.summary' is too long")
    if payload.get("severity") not in ("critical", "error", "warning", "info"):
        errors.append("'payload.severity' is invalid")
    try:
        datetime.fromisoformat(payload.get("timestamp", "2026-01-01T00:00:00Z"))
    except ValueError:
        errors.append("'payload.timestamp' is no ISO 8601 time")
    return errors


def _wrong_fields(fields: dict[str, Any], kinds: Mapping[str, type]) -> list[str]:
    return [f"{name!r} is invalid" for name, value in fields.items() if not isinstance(value, kinds.get(name, ()))]


def _invalid(errors: list[str]) -> Answer:
    body = {"status": "invalid event", "message": "Event object is invalid", "errors": errors}
    return Answer(400, {"content-type": "application/json"}, json.dumps(body).encode())
