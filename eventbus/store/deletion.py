"""How an object is deleted that finalizers hold back: it is marked, and goes when the last of them is taken away."""

from __future__ import annotations

from datetime import datetime
from typing import TypeVar

from eventbus.errors import InvalidObject
from eventbus.kinds import Kind
from eventbus.list_watch import HasMetadata
from eventbus.store.storage import with_metadata

T = TypeVar("T", bound=HasMetadata)


def marked(found: T, now: datetime) -> T:
    """*found* as it is from its deletion until its last finalizer is taken away."""
    return with_metadata(found, deletion_timestamp=now, deletion_grace_period_seconds=0)


def is_over(found: HasMetadata) -> bool:
    """True if the object was deleted and nothing holds it back any more."""
    return found.metadata.deletion_timestamp is not None and not found.metadata.finalizers


def check_finalizers(kind: Kind[T], new: T, former: T) -> None:
    """Raises: InvalidObject: finalizers were added to what is being deleted; worded as the API server does."""
    added = sorted(set(new.metadata.finalizers) - set(former.metadata.finalizers))
    if former.metadata.deletion_timestamp is not None and added:
        found = ", ".join(f'"{name}"' for name in added)
        problem = (
            f"no new finalizers can be added if the object is being deleted, found new finalizers []string{{{found}}}"
        )
        raise InvalidObject(
            f'{kind.name} "{former.metadata.name}" is invalid: metadata.finalizers: Forbidden: {problem}'
        )


__all__ = ["check_finalizers", "is_over", "marked"]
