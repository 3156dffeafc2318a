"""Fetches the story of one object from an API worker, as `read_story` reads it from Redis."""

from __future__ import annotations

from datetime import timedelta
from urllib.parse import urlencode

import msgspec

from eventbus.client.connection import ApiConnection
from eventbus.errors import BusUnavailable, InvalidEvent
from eventbus.model.event import ObjectReference
from eventbus.store.story.reading import BEFORE
from eventbus.store.story.story import Story, story_from_json


def fetch_story(
    connection: ApiConnection, about: ObjectReference, *, before: timedelta = BEFORE, system: bool = False
) -> Story:
    """As `read_story`."""
    asked = {"kind": about.kind, "namespace": about.namespace, "name": about.name}
    query = urlencode({**asked, "before": f"{int(before.total_seconds())}s", "system": str(system).lower()})
    body = connection.call("GET", f"/eventbus/v1/why?{query}")
    try:
        return story_from_json(body)
    except (msgspec.DecodeError, InvalidEvent) as error:
        raise BusUnavailable(f"{connection.address} answered in the form of another version: {error}") from None
