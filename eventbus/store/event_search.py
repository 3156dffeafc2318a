"""Searches stored events as people do: words in any field, selectors, a period; the newest first."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

import msgspec

from eventbus.broker.bus import Bus
from eventbus.broker.connection.connect import Client
from eventbus.model.event import Event
from eventbus.model.kinds import EVENT
from eventbus.model.list_watch import ListOptions
from eventbus.model.selectors.fields import FieldSelector
from eventbus.store.newest import NewestFirst, happened_in
from eventbus.store.reader import ObjectReader
from eventbus.store.selection import Selection

_NO_TIME: Final = datetime.min.replace(tzinfo=UTC)


class Search(msgspec.Struct, frozen=True, kw_only=True):
    """The terms of a search. *text*: words that must all be found, in any field, in any case."""

    namespace: str = ""
    label_selector: str = ""
    field_selector: str = ""
    text: str = ""
    since: datetime | None = None
    until: datetime | None = None
    limit: int = 500


class SearchResult(msgspec.Struct, frozen=True):
    """The events found, last seen first. *more*: there are others. *begins*: events that ended before have expired."""

    items: tuple[Event, ...]
    resource_version: str
    more: bool
    examined: int
    begins: datetime


def search_events(bus: Bus, client: Client, events: ObjectReader[Event], search: Search) -> SearchResult:
    """Find the newest events. The version is read first, so that a watch from it delivers every later change.

    If more than *limit* match, those written last are taken; the result is sorted by last seen.

    Raises: InvalidSelector: fix the question.  BusUnavailable.
    Redis:  GET on version; see `NewestFirst`.
    """
    version = str(events.newest())
    options = ListOptions(
        namespace=search.namespace, label_selector=search.label_selector, field_selector=search.field_selector
    )
    selection: Selection[Event] = Selection(EVENT, options)
    words = search.text.lower().split()
    walk = NewestFirst(bus=bus, client=client, since=search.since, wanted=_prefilter(search, words))
    placed: list[tuple[int, Event]] = []
    more = False
    for partition, event in walk.placed():
        if selection.matches(event) and happened_in(event, search.since, search.until) and _has_words(event, words):
            if len(placed) == search.limit:
                more = True
                break
            placed.append((partition, event))
    found = sorted(events.versioned(placed), key=lambda event: event.last_seen or _NO_TIME, reverse=True)
    begins = datetime.now(UTC) - timedelta(seconds=bus.options.event_ttl_s)
    return SearchResult(tuple(found), version, more, walk.examined, begins)


def _has_words(event: Event, words: Sequence[str]) -> bool:
    """Return True if each of *words*, in lower case, is part of one of the event's texts."""
    if not words:
        return True
    about, related = event.involved_object, event.related
    texts = [
        *(event.reason, event.message, event.type, event.action, event.metadata.name),
        *(
            f"{event.metadata.namespace}/{about.kind}/{about.name}",
            about.namespace,
            about.uid,
            about.field_path,
            about.api_version,
        ),
        *(event.source.component, event.source.host, event.reporting_component, event.reporting_instance),
        *(f"{key}={value}" for key, value in event.metadata.labels.items()),
        *(f"{key}={value}" for key, value in event.metadata.annotations.items()),
    ]
    if related is not None:
        texts.append(f"{related.kind}/{related.name}")
    whole = "\n".join(texts).lower()
    return all(word in whole for word in words)


def _prefilter(search: Search, words: Sequence[str]) -> Callable[[bytes], bool] | None:
    """Make a quick test of packed bytes that passes every event of the search, and few others."""
    terms = FieldSelector.parse(search.field_selector, EVENT.fields).terms
    exact = [term.value.encode() for term in terms if not term.negated and _stands_as_it_is(term.value)]
    # The packed bytes hold the parts of kind/name and key=value, not the whole.
    parts = {part for word in words for part in re.split("[/=]", word)}
    loose = [part.encode() for part in parts if _stands_as_it_is(part)]
    if not exact and not loose:
        return None

    def wanted(packed: bytes) -> bool:
        if not all(value in packed for value in exact):
            return False
        lower = packed.lower() if loose else b""
        return all(word in lower for word in loose)

    return wanted


def _stands_as_it_is(value: str) -> bool:
    """Return True if the packed bytes of an event hold this value unchanged: not "", nor what JSON escapes."""
    return value.isascii() and value.isprintable() and bool(value) and not {'"', "\\", "/"} & set(value)
