"""A stand-in for Splunk's HTTP Event Collector, written from its published reference.

It rejects unknown keys of an event, where Splunk ignores them. The collector reads a batch as a stream: the events
before the invalid one are indexed, that one and those after it are not. Not modelled: acknowledgement, metrics, raw.
Source: Splunk documentation: Format events for HTTP Event Collector, Troubleshoot HTTP Event Collector (possible error
codes), HTTP Event Collector REST API endpoints; limits.conf [http_input].
"""

from __future__ import annotations

import json
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

from tests.support.strict_service import StrictService
from tests.support.webhook_server import Answer, Delivery

PATHS: Final = {"/services/collector", "/services/collector/event", "/services/collector/event/1.0"}
_KEYS: Final = {"event", "time", "host", "source", "sourcetype", "index", "fields"}
_TEXTS: Final = ("host", "source", "sourcetype", "index")
_MESSAGES: Final = {
    2: (401, "Token is required"),
    3: (401, "Invalid authorization"),
    4: (403, "Invalid token"),
    5: (400, "No data"),
    6: (400, "Invalid data format"),
    7: (400, "Incorrect index"),
    8: (500, "Internal server error"),
    9: (503, "Server is busy"),
    12: (400, "Event field is required"),
    13: (400, "Event field cannot be blank"),
    15: (400, "Error in handling indexed fields"),
}


class Exponent(ValueError):
    """A number in scientific notation, which Splunk does not take as a time."""


class Splunk(StrictService):
    """One collector with one token. *busy*: so many requests get code 9. *events*: in order of arrival."""

    def __init__(self, *, token: str = "T0K3N", indexes: tuple[str, ...] = ("main",), max_bytes: int = 1 << 20) -> None:
        super().__init__(authorization=f"Splunk {token}", max_bytes=max_bytes)
        self.indexes = indexes
        self.busy = 0
        self.events: list[dict[str, Any]] = []

    def search(self, *, index: str, **fields: Any) -> list[dict[str, Any]]:
        """Return the events of an index with these values, of metadata, of indexed fields, or of keys of the event."""
        return [event for event in self.events if event["index"] == index and _fields(event).items() >= fields.items()]

    def refuse(self, status: int, message: str) -> Answer:
        if status == 401:
            return _reply(2)
        return Answer(status, {"content-type": "text/plain"}, message.encode())

    def serve(self, delivery: Delivery) -> Answer:
        url = urlsplit(delivery.path)
        if url.path == "/services/collector/health" and delivery.method == "GET":
            return Answer(body=b'{"text":"HEC is healthy","code":17}')
        if url.path not in PATHS or delivery.method != "POST":
            return Answer(404, body=b'{"text":"The requested URL was not found on this server.","code":404}')
        if parse_qs(url.query).keys() - {"channel", "auto_extract_timestamp", "time"}:
            return Answer(400, body=b'{"text":"Query string authorization is not enabled","code":16}')
        if self.busy:
            self.busy -= 1
            return _reply(9)
        text = delivery.body.decode("utf-8", "surrogateescape").strip()
        if not text:
            return _reply(5)
        return self._index(text)

    def _index(self, text: str) -> Answer:
        number, position = 0, 0
        while position < len(text):
            try:
                event, position = _DECODER.raw_decode(text, position)
            except Exponent:
                return _reply(15, number)
            except ValueError:
                return _reply(6, number)
            if code := self._problem(event):
                return _reply(code, number)
            self.events.append({"index": self.indexes[0], **event})
            number += 1
            while position < len(text) and text[position].isspace():
                position += 1
        return _reply(0)

    def _problem(self, event: Any) -> int:
        if not isinstance(event, dict) or event.keys() - _KEYS:
            return 6
        if event.get("event") is None:
            return 12
        if event["event"] in ("", {}):
            return 13
        if any(not isinstance(event.get(name, ""), str) for name in _TEXTS):
            return 6
        if event.get("index", self.indexes[0]) not in self.indexes:
            return 7
        if not isinstance(event.get("time", 0), int | float) or isinstance(event.get("time"), bool):
            return 15
        if not isinstance(event.get("fields", {}), dict):
            return 6
        if not all(_is_field(value) for value in event.get("fields", {}).values()):
            return 15
        return 6 if self.refused_text and self.refused_text in json.dumps(event) else 0


def _float(text: str) -> float:
    if "e" in text.lower():
        raise Exponent(text)
    return float(text)


_DECODER: Final = json.JSONDecoder(parse_float=_float)


def _is_field(value: Any) -> bool:
    """Whether an indexed field may have this value: a text or number, or a list of texts; no null, no object."""
    if isinstance(value, list):
        return all(isinstance(element, str) for element in value)
    return isinstance(value, str | int | float)


def _fields(event: dict[str, Any]) -> dict[str, Any]:
    payload: dict[str, Any] = event["event"] if isinstance(event["event"], dict) else {}
    return {**payload, **event.get("fields", {}), **{name: event[name] for name in _TEXTS if name in event}}


def _reply(code: int, number: int | None = None) -> Answer:
    status, text = _MESSAGES.get(code, (200, "Success"))
    body: dict[str, Any] = {"text": text, "code": code}
    if number is not None:
        body["invalid-event-number"] = number
    return Answer(status, {"content-type": "application/json"}, json.dumps(body).encode())
