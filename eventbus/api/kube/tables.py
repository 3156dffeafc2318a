"""Makes the Table that kubectl prints: the columns of a kind, and one row for each object."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from eventbus.api.kube.columns import cells, definitions
from eventbus.api.kube.encoded_items import EncodedItems
from eventbus.api.kube.event_rows import EventRow, aged
from eventbus.api.versions.wire_versions import WireVersions
from eventbus.model.event import Event
from eventbus.model.kinds import Kind

_encode: Final = msgspec.json.Encoder().encode

#: Cache of encoded rows. Most items of a list were in the list before.
_event_rows: Final[EncodedItems[EventRow]] = EncodedItems()


class Table(msgspec.Struct, frozen=True):
    """Tables of one kind, as JSON values. Thread-safe.

    *shown* makes the object in a row, with the given version. *shape* holds all other inputs of *shown*.
    """

    kind: Kind[Any]
    api_version: str
    versions: WireVersions
    shown: Callable[..., dict[str, Any] | None]
    shape: Hashable

    def of(
        self, items: Sequence[Any], metadata: Mapping[str, Any], *, columns: bool = True, version: str = ""
    ) -> dict[str, Any]:
        """Make a table. *columns*: include the column definitions. *version*: the object's, in a frame of a watch."""
        now = datetime.now(UTC)
        rows: list[Any]
        if self.kind.type is Event and not version:  # `Frames` caches the frames of watches
            rows = [msgspec.Raw(row) for row in aged(self._event_rows(items, now), now)]
        else:
            rows = [{"cells": cells(self.kind, item, now), "object": self.shown(item, version)} for item in items]
        return self._head(metadata, columns=columns) | {"rows": rows}

    def bookmark(self, empty: Mapping[str, Any]) -> dict[str, Any]:
        """Make a table of one row with empty cells. *empty*: its object, with only metadata."""
        row = {"cells": [""] * len(definitions(self.kind)), "object": empty}
        return self._head(empty["metadata"], columns=False) | {"rows": [row]}

    def _event_rows(self, items: Sequence[Event], now: datetime) -> list[EventRow]:
        return _event_rows.of(
            items,
            (self.kind.api_version, self.shape, self.versions),
            lambda item: EventRow.of(item, _encode(self.shown(item)), now),
            keep=self.versions.partitions == 1,
        )

    def _head(self, metadata: Mapping[str, Any], *, columns: bool) -> dict[str, Any]:
        named = [msgspec.to_builtins(column) for column in definitions(self.kind)] if columns else None
        return {"kind": "Table", "apiVersion": self.api_version, "metadata": metadata, "columnDefinitions": named}
