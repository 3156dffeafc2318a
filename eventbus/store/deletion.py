"""Deletes an object that has finalizers: it is marked, and removed together with its last finalizer.

A Pod has a grace period for its end. With a grace period of 0 it is removed at once, without waiting for its agent.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final, TypeVar

from eventbus.errors import InvalidObject
from eventbus.model.kinds import Kind
from eventbus.model.list_watch import HasMetadata
from eventbus.model.objects.pod import RUNNING_FINALIZER, Pod
from eventbus.store.storage import with_metadata

T = TypeVar("T", bound=HasMetadata)


#: Phases of pods that have ended.
_ENDED: Final = ("Succeeded", "Failed")
#: A longer grace period would exceed the largest date, seconds.
_MOST_S: Final = 2**31 - 1


def marked(found: T, now: datetime, asked_s: int | None = None) -> T:
    """Return *found* with its deletion marked, as it stays until its last finalizer is removed.

    An object that is marked already may only get a shorter grace period. With a grace period of 0 the agent's finalizer
    is removed, the others stay.

    Args: asked_s: the grace period of a Pod, seconds; None: its own.
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
    """Return True if a finalizer keeps *found*, which is deleted. The agent's does so during the grace period only."""
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
    """Return True if the object was deleted and has no finalizers left."""
    return found.metadata.deletion_timestamp is not None and not found.metadata.finalizers


def check_finalizers(kind: Kind[T], new: T, former: T) -> None:
    """Refuse new finalizers of a deleted object. Raises: InvalidObject: worded as the API server does."""
    added = sorted(set(new.metadata.finalizers) - set(former.metadata.finalizers))
    if former.metadata.deletion_timestamp is not None and added:
        found = ", ".join(f'"{name}"' for name in added)
        problem = (
            f"no new finalizers can be added if the object is being deleted, found new finalizers []string{{{found}}}"
        )
        raise InvalidObject(
            f'{kind.name} "{former.metadata.name}" is invalid: metadata.finalizers: Forbidden: {problem}'
        )
