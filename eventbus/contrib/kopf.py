"""Records the events of a kopf operator: those of `kopf.event`, `info`, `warn` and `exception`, and of object loggers.

    import kopf
    from eventbus import make_event_recorder
    from eventbus.contrib.kopf import record_kopf_events

    @kopf.on.startup()
    def start(**_):
        record_kopf_events(make_event_recorder("my-operator"))

kopf has no public hook for them. All of them go through one function, `enqueue` of its posting engine. This module
replaces that function, and refuses a version of kopf without it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from importlib.metadata import version

from kopf._core.engines import posting  # hack: a public hook in kopf would remove it

from eventbus.errors import ConfigError
from eventbus.model.validation import MAX_NEW_MESSAGE, MAX_REASON
from eventbus.record.recorder import EventRecorder
from eventbus.util.text import cut_bytes

#: kopf has more types than core/v1. Any other, for a program may invent some, is Normal.
WARNINGS = frozenset({"Warning", "Error", "Fatal", "Critical"})


def record_kopf_events(recorder: EventRecorder, *, also_in_kubernetes: bool = True) -> Callable[[], None]:
    """Record every event that kopf posts from now on, in all operators of this process.

    kopf's settings still select the events (`settings.posting`: enabled, level, loggers). The events keep kopf's
    reason, message (at most 1024 bytes) and object; Error and Fatal become Warning, Debug becomes Normal.
    Non-blocking, from any thread.

    Args:     also_in_kubernetes: kopf posts them to the cluster as well; False: only the bus receives them.
    Returns:  a function that restores kopf's own function.
    Raises:   ConfigError: this version of kopf posts its events in another way.
    """
    original = getattr(posting, "enqueue", None)
    if original is None:
        raise ConfigError(f"kopf {version('kopf')} posts events in a way unknown here; 1.45 is known to work")

    def enqueue(
        ref: Mapping[str, str], type: str, reason: str, message: str, backoffs: float | Iterable[float] = ()
    ) -> None:
        _record(recorder, ref, type, reason, message)
        if also_in_kubernetes:
            original(ref=ref, type=type, reason=reason, message=message, backoffs=backoffs)

    def undo() -> None:
        if posting.enqueue is enqueue:
            posting.enqueue = original

    posting.enqueue = enqueue  # type: ignore[assignment]  # ours takes any mapping
    return undo


def _record(recorder: EventRecorder, ref: Mapping[str, str], type: str, reason: str, message: str) -> None:
    if ref.get("apiVersion") == "v1" and ref.get("kind") == "Event":
        return  # kopf does not post them either: an event about an event never ends
    event_type = "Warning" if type in WARNINGS else "Normal"
    # kopf takes an exception or None as well, and must not find that out from here, in the middle of a handler
    recorder.event(ref, event_type, cut_bytes(str(reason), MAX_REASON), cut_bytes(str(message), MAX_NEW_MESSAGE))
