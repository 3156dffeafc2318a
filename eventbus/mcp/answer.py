"""The answer of a tool: JSON of bounded size, with every text of a recorder in fields named `untrustedMessage`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Final

import msgspec

from eventbus.model.encoding.event_json import seconds_to_json
from eventbus.model.event import Event, ObjectReference
from eventbus.store.story.verdict import Verdict, first_seen, last_seen
from eventbus.util.text import cut_bytes, repair

#: Bytes of an answer: some 8 000 tokens.
MOST_BYTES: Final = 32 * 1024
#: Bytes of one `untrustedMessage`.
MOST_TEXT: Final = 1024
#: Names and reasons: one word. Any other value is text, and goes into `untrustedMessage`.
_WORD: Final = re.compile(r"\w[\w.:/@+~%=-]{0,252}")
#: Characters without a picture that Python counts as printable: fillers, variation selectors, the blank of Braille.
#: They can hide text.
_HIDDEN: Final = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180d\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
)
UNTRUSTED: Final = "untrustedMessage"


class Answer:
    """Collects the parts of an answer; those that do not fit into `MOST_BYTES` are counted, in `leftOut`.

    Add the most important parts first.
    """

    def __init__(self, **head: Any) -> None:
        self._plain: dict[str, Any] = head
        self._left_out: dict[str, int] = {}
        self._bytes = len(msgspec.json.encode(head)) + 256  # of `truncated`, `leftOut` and `hint`

    def add(self, part: str, items: Iterable[Mapping[str, Any]], hint: str = "") -> None:
        """Append *items* to the list *part*, in their order, until one does not fit. *hint*: how to ask for less."""
        kept: list[Mapping[str, Any]] = []
        self._plain[part] = kept
        left = 0
        for item in items:
            size = len(msgspec.json.encode(item)) + 1
            if left or self._bytes + size > MOST_BYTES:
                left += 1
                continue
            self._bytes += size
            kept.append(item)
        if left:
            self._left_out[part] = left
            self._plain.setdefault("hint", hint)

    def truncate(self, hint: str) -> None:
        """Note that the bus has more than this answer."""
        self._plain.setdefault("hint", hint)

    def plain(self) -> dict[str, Any]:
        """Return the answer. *truncated*: there is more, and *hint* says how to get it."""
        left = {"leftOut": self._left_out} if self._left_out else {}
        return {"truncated": "hint" in self._plain, **left, **self._plain}


def words(foreign: Iterable[str] = (), /, **values: Any) -> dict[str, Any]:
    """Return *values* without empty ones. Texts that are no word, and *foreign*, go into `untrustedMessage`."""
    plain: dict[str, Any] = {}
    texts = [text for text in foreign if text]
    for name, value in values.items():
        if isinstance(value, str) and value and (_WORD.fullmatch(value) is None or _HIDDEN.search(value)):
            texts.append(f"{name}: {value}")
        elif value not in ("", None, (), [], {}):
            plain[name] = value
    if texts:
        plain[UNTRUSTED] = text_of("\n".join(texts))
    return plain


def text_of(text: str) -> str:
    """Return *text* cut to `MOST_TEXT` bytes, with the characters that people cannot see as `\\u{…}`."""
    text = cut_bytes(repair(text), MOST_TEXT)
    if not (text.isascii() and text.isprintable()):
        text = "".join(character if _is_seen(character) else f"\\u{{{ord(character):x}}}" for character in text)
    return cut_bytes(text, MOST_TEXT)


def _is_seen(character: str) -> bool:
    return character in "\n\t" or (character.isprintable() and not _HIDDEN.match(character))


def reference_json(about: ObjectReference) -> dict[str, Any]:
    return words(kind=about.kind, namespace=about.namespace, name=about.name, uid=about.uid, fieldPath=about.field_path)


def event_json(event: Event, *, whole: bool = False) -> dict[str, Any]:
    """Return an event. *whole*: with its labels and annotations."""
    meta = event.metadata
    plain = words(
        (event.message,),
        namespace=meta.namespace,
        name=meta.name,
        uid=meta.uid,
        type=str(event.type),
        reason=event.reason,
        action=event.action,
        count=event.times_seen,
        firstSeen=_time(first_seen(event)),
        lastSeen=_time(last_seen(event)),
    )
    plain["object"] = reference_json(event.involved_object)
    if event.related is not None:
        plain["related"] = reference_json(event.related)
    plain["recordedBy"] = recorder_json(event)
    for name, pairs in (("labels", meta.labels), ("annotations", meta.annotations)):
        if whole and pairs:
            plain[name] = [{UNTRUSTED: text_of(f"{key}={value}")} for key, value in sorted(pairs.items())]
    return plain


def recorder_json(event: Event) -> dict[str, Any]:
    """Return the names that the recorder gave itself. The bus does not store its user: they are not authenticated."""
    source, controller, instance = event.source, event.reporting_component, event.reporting_instance
    named = words(
        component=source.component,
        host=source.host,
        controller=controller if controller != source.component else "",
        instance=instance if instance != source.host else "",
    )
    return {**named, "authenticated": False}


def verdict_json(verdict: Verdict) -> dict[str, Any]:
    """Return the state of an object that has Warnings, with the message of its most frequent reason."""
    plain = words(
        (verdict.message,),
        still=str(verdict.still),
        reason=verdict.reason,
        times=verdict.times,
        warnings=verdict.total,
        since=_time(verdict.since),
        last=_time(verdict.last),
        endedBy=verdict.ended_by,
    )
    return {"object": reference_json(verdict.object), **plain}


def _time(moment: datetime | None) -> str | None:
    return seconds_to_json(moment)
