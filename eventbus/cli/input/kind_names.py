"""Parses the objects that people name on a command line, in one word or in several."""

from __future__ import annotations

from eventbus.errors import InvalidEvent
from eventbus.event import ObjectReference
from eventbus.reference import named_reference, reference_from_text


def object_from_words(words: tuple[str, ...]) -> ObjectReference:
    """Parse `pod/web-0`, `shop/pod/web-0`, or `pod web-0` as in kubectl.

    The kind stays as typed; the namespace is empty if it was not typed.

    Raises: InvalidEvent: neither.
    """
    if len(words) == 1 and "/" not in words[0]:
        raise InvalidEvent("object", f"{words[0]!r} needs its kind: KIND/NAME, like pod/{words[0]}")
    if len(words) == 2 and "/" not in words[0]:
        return named_reference(*words)
    if len(words) > 1:
        raise InvalidEvent("object", f"{' '.join(words)!r} is not of the form KIND/NAME, like pod/web-0")
    return reference_from_text(words[0])


def objects_from_words(words: tuple[str, ...]) -> list[ObjectReference]:
    """Parse `node/a node/b`, or `node a b`. Raises: InvalidEvent: neither."""
    if "/" in words[0]:
        return [object_from_words((word,)) for word in words]
    return [object_from_words((words[0], name)) for name in words[1:]] or [object_from_words(words)]
