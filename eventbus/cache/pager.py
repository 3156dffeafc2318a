"""Lists objects page by page."""

from __future__ import annotations

from typing import TypeVar

import msgspec

from eventbus.errors import Expired
from eventbus.model.list_watch import HasMetadata, ListerWatcher, ListOptions, ObjectList

T = TypeVar("T", bound=HasMetadata)


def list_all(source: ListerWatcher[T], options: ListOptions) -> tuple[ObjectList[T], bool]:
    """Return all pages as one list, and whether there was more than one page."""
    page = source.list(options)
    if not page.continue_:
        return page, False
    version, items = page.resource_version, list(page.items)
    while page.continue_:
        try:
            page = source.list(msgspec.structs.replace(options, resource_version="", continue_=page.continue_))
        except Expired:
            return source.list(msgspec.structs.replace(options, limit=0)), True
        items += page.items
    return ObjectList(tuple(items), version), True
