"""Makes the Table that kubectl prints: the columns of a kind, and a row an object."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from eventbus.api.columns import cells, definitions
from eventbus.api.encoded_items import EncodedItems
from eventbus.api.event_rows import EventRow, aged
from eventbus.api.wire_versions import WireVersions
from eventbus.event import Event
from eventbus.kinds import Kind

_encode: Final = msgspec.json.Encoder().encode

#: Most of a list was in the one before.
_event_rows: Final[EncodedItems[EventRow]] = EncodedItems()


class Table(msgspec.Struct, frozen=True):
    """Tables of one kind, as JSON's values. Thread-safe.

    *shown* makes what a row has of its object, in the version told; *shape* says all that it depends on besides.
    """

    kind: Kind[Any]
    api_version: str
    versions: WireVersions
    shown: Callable[..., dict[str, Any] | None]
    shape: Hashable

    def of(
        self, items: Sequence[Any], metadata: Mapping[str, Any], *, columns: bool = True, version: str = ""
    ) -> dict[str, Any]:
        """*columns*: name them. *version*: of the object in a frame of a watch."""
        now = datetime.now(UTC)
        rows: list[Any]
        if self.kind.type is Event and not version:  # a frame of a watch is kept by `Frames`
            rows = [msgspec.Raw(row) for row in aged(self._event_rows(items, now), now)]
        else:
            rows = [{"cells": cells(self.kind, item, now), "object": self.shown(item, version)} for item in items]
        return self._head(metadata, columns=columns) | {"rows": rows}

    def bookmark(self, empty: Mapping[str, Any]) -> dict[str, Any]:
        """A row without cells' texts; *empty* is its object, which has nothing but metadata."""
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
