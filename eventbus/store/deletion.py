"""Deletes an object that finalizers hold back: it is marked, and goes when the last of them is taken away.

A Pod has a grace time for its end. Without any it is gone at once, whatever its agent says: nobody waits for that one.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final, TypeVar

from eventbus.errors import InvalidObject
from eventbus.kinds import Kind
from eventbus.list_watch import HasMetadata
from eventbus.objects.pod import RUNNING_FINALIZER, Pod
from eventbus.store.storage import with_metadata

T = TypeVar("T", bound=HasMetadata)


#: Phases of pods that have ended.
_ENDED: Final = ("Succeeded", "Failed")
#: A longer grace time would lead beyond what is a date, seconds.
_MOST_S: Final = 2**31 - 1


def marked(found: T, now: datetime, asked_s: int | None = None) -> T:
    """Return *found* as it is from its deletion until its last finalizer is taken away.

    One that is marked already may only get a shorter grace time, and without any what holds it but for its agent is
    all that is left.

    Args: asked_s: the grace time of a Pod, seconds; None: its own.
    """
    metadata, grace_s = found.metadata, _grace_s(found, asked_s)
    since, held_s = metadata.deletion_timestamp, metadata.deletion_grace_period_seconds or 0
    if since is None:
        since = now
    elif asked_s is None or grace_s >= held_s:
        grace_s, since = held_s, since - timedelta(seconds=held_s)
    else:
        since -= timedelta(seconds=held_s)
    return with_metadata(
        found,
        deletion_timestamp=since + timedelta(seconds=grace_s),
        deletion_grace_period_seconds=grace_s,
        finalizers=(_without_agent(metadata.finalizers) if grace_s == 0 else ()) or metadata.finalizers,
    )


def is_held(found: HasMetadata) -> bool:
    """Return True if a finalizer holds *found*, which is deleted; an agent's does not without a grace time."""
    metadata = found.metadata
    return bool(metadata.finalizers if metadata.deletion_grace_period_seconds else _without_agent(metadata.finalizers))


def _grace_s(found: HasMetadata, asked_s: int | None) -> int:
    """Source: `registry/core/pod/strategy.go` CheckGracefulDelete."""
    if not isinstance(found, Pod) or not found.spec.node_name or found.status.phase in _ENDED:
        return 0
    grace_s = found.spec.termination_grace_period_seconds if asked_s is None else asked_s
    return min(grace_s, _MOST_S) if grace_s >= 0 else 1


def _without_agent(finalizers: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(one for one in finalizers if one != RUNNING_FINALIZER)


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
