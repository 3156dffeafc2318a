"""Encodes the lines of watches once for all watches that get the same object in the same form."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from eventbus.api.kube.rendering import Renderer
from eventbus.api.kube.resources import Resource
from eventbus.api.metrics import Metrics
from eventbus.model.list_watch import WatchEvent, WatchEventType

#: Seconds for which an encoded line is kept: until all watches of a change have written it.
KEPT_S: Final = 0.05


class LineEncoder:
    """Encodes and counts lines. Lives in the loop."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._known: dict[tuple[Any, ...], tuple[object, bytes]] = {}
        self._clearing = False

    def line(self, renderer: Renderer, event: WatchEvent[Any], *, first: bool) -> bytes:
        """Return the line of *event*. *first*: include the columns of a table."""
        if event.type is WatchEventType.BOOKMARK or first:
            return self._encoded(renderer, event, first=first)
        key = (id(event.object), event.type, event.position, renderer.resource.kind.api_version, renderer.answer)
        found = self._known.get(key)
        if found is None:
            # The entry keeps the object alive, so that no other object gets its id.
            found = self._known[key] = (event.object, self._encoded(renderer, event, first=False))
            if not self._clearing:
                self._clearing = True
                asyncio.get_running_loop().call_later(KEPT_S, self._clear)
        return found[1]

    def count(self, resource: Resource, lines: int) -> None:
        """Count *lines* that are written to watches of *resource*."""
        self._metrics.note_watch_lines(resource, lines)

    def _encoded(self, renderer: Renderer, event: WatchEvent[Any], *, first: bool) -> bytes:
        line = renderer.frame(event, first=first)
        self._metrics.note_watch_line(renderer.resource, len(line))
        return line

    def _clear(self) -> None:
        self._known.clear()
        self._clearing = False
