"""`POST /eventbus/v1/cloudevents`: CloudEvents 1.0, structured, binary or a batch, as events of the bus."""

from __future__ import annotations

import re
from collections.abc import Mapping
from hashlib import blake2b
from typing import Any, Final

import msgspec
from aiohttp import web

from eventbus.api import status
from eventbus.api.eventbus_v1.intake import event_of
from eventbus.api.eventbus_v1.record import Recording, read_recorded
from eventbus.errors import EventBusError, InvalidEvent, InvalidObject
from eventbus.model.event import Event, EventSource, EventType, ObjectReference
from eventbus.model.reference import DEFAULT_NAMESPACE, reference_to
from eventbus.model.validation import MAX_COMPONENT, MAX_REASON
from eventbus.util.extras import is_needed
from eventbus.util.text import cut_bytes

STRUCTURED, BATCH = "application/cloudevents+json", "application/cloudevents-batch+json"
ACCEPTED: Final = (STRUCTURED, BATCH, "any with ce- headers")
#: Bytes of a message that is made of data which is no event of ours.
MESSAGE_BYTES: Final = 1024
#: The kind of object that a subject names which says no kind.
SUBJECT_KIND: Final = "Subject"

_WORD: Final = re.compile(r"[A-Za-z0-9]+")
_VERSION: Final = re.compile(r"v?[0-9]+")


class CloudEvents:
    """The handler. An event that is sent again within ten minutes, by its source and id, changes nothing."""

    def __init__(self, recording: Recording) -> None:
        self._recording = recording

    async def receive(self, request: web.Request) -> web.Response:
        """Record them: the answer is that of `record`. Raises: ApiError: 400, 415; 501: the SDK is not installed."""
        body = await read_recorded(request)
        events = _read(request, body)
        if not events:
            return (await self._recording.take(request, body, lambda _: [], key="")).answer
        ids = "\n".join(f"{len(received.source)}:{received.source}{received.id}" for received in events)
        same = blake2b(ids.encode(), digest_size=16).hexdigest()
        taken = await self._recording.take(
            request,
            body,
            lambda _: [received.event for received in events],
            key=f"cloudevents:{same}",
            same=same.encode(),
        )
        return taken.answer


class _Received(msgspec.Struct, frozen=True):
    """One CloudEvent: its identity, and its event or the error of it."""

    source: str
    id: str
    event: Event | InvalidEvent


def _read(request: web.Request, body: bytes) -> list[_Received]:
    """Raises: ApiError, InvalidObject."""
    try:
        from cloudevents.core.bindings.http import HTTPMessage, from_binary, from_structured
        from cloudevents.core.exceptions import BaseCloudEventException
        from cloudevents.core.formats.json import JSONFormat
        from cloudevents.core.v1.event import CloudEvent
    except ImportError:
        message = f"this API worker cannot read CloudEvents: where it runs, {is_needed('webhook')}"
        raise status.ApiError(501, "NotImplemented", message, details={}) from None
    headers = {name.lower(): value.encode(errors="replace").decode() for name, value in request.headers.items()}
    form = JSONFormat()
    wrong = (BaseCloudEventException, ValueError, TypeError, AttributeError, RecursionError, msgspec.DecodeError)

    def member(part: msgspec.Raw) -> _Received:
        # The SDK has no batches yet; each member of one is a structured event.
        try:
            one = from_structured(HTTPMessage({"content-type": STRUCTURED}, bytes(part)), form, CloudEvent)
            return _received(one.get_attributes(), one.get_data())
        except wrong as error:
            name = blake2b(bytes(part), digest_size=16).hexdigest()
            return _Received("", name, InvalidEvent("event", f"is no CloudEvent: {cut_bytes(str(error), 300)}"))

    try:
        if request.content_type == BATCH and not any(name.startswith("ce-") for name in headers):
            return [member(part) for part in msgspec.json.decode(body, type=list[msgspec.Raw])]
        if any(name.startswith("ce-") for name in headers):
            kept = {name: value for name, value in headers.items() if name.startswith("ce-") or name == "content-type"}
            one = from_binary(HTTPMessage(kept, body), form, CloudEvent)
        elif request.content_type == STRUCTURED:
            one = from_structured(HTTPMessage(headers, body), form, CloudEvent)
        else:
            raise status.unsupported_media_type(ACCEPTED)
    except wrong as error:
        raise InvalidObject(f"the body is no CloudEvent: {cut_bytes(str(error), 300)}") from None
    return [_received(one.get_attributes(), one.get_data())]


def _received(attributes: Mapping[str, Any], data: Any) -> _Received:
    source, name = str(attributes["source"]), str(attributes["id"])
    try:
        return _Received(source, name, _event(attributes, data))
    except EventBusError as error:
        wrong = error if isinstance(error, InvalidEvent) else InvalidEvent("data", str(error))
        return _Received(source, name, wrong)


def _event(attributes: Mapping[str, Any], data: Any) -> Event:
    """An event of ours as it is; of any other: its subject, type and data in the place of object, reason, message."""
    if isinstance(data, Mapping) and "involvedObject" in data:
        return event_of(data)
    source = str(attributes["source"])
    time = attributes.get("time")
    return Event(
        involved_object=_subject(str(attributes.get("subject") or source)),
        reason=cut_bytes(str(attributes.get("reason") or _reason(str(attributes["type"]))), MAX_REASON),
        message=cut_bytes(_message(data), MESSAGE_BYTES),
        source=EventSource(cut_bytes(source, MAX_COMPONENT)),
        first_timestamp=time,
        last_timestamp=time,
        type=str(attributes.get("eventtype") or EventType.NORMAL.value),
    )


def _subject(subject: str) -> ObjectReference:
    """NAMESPACE/KIND/NAME, KIND/NAME, or a name."""
    try:
        return reference_to(subject.strip("/"))
    except InvalidEvent:
        return ObjectReference(kind=SUBJECT_KIND, namespace=DEFAULT_NAMESPACE, name=subject)


def _reason(of: str) -> str:
    """`com.example.object.created.v2` → ObjectCreated: the last two words that are no version."""
    words = [word for word in _WORD.findall(of) if not _VERSION.fullmatch(word)][-2:]
    return "".join(word[:1].upper() + word[1:] for word in words) or "Received"


def _message(data: Any) -> str:
    if isinstance(data, str):
        return data
    if isinstance(data, bytes):
        return data.decode("utf-8", "replace").replace("\0", "\N{REPLACEMENT CHARACTER}")
    return "" if data is None else msgspec.json.encode(data).decode()
