"""Texts and fields as they come: unicode, nothing at all, fields that no rule looks at."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator
from datetime import UTC, datetime

from eventbus.model.event import EventSeries, ObjectReference
from tests.conformance.scenarios.table import NO_SPAM_FILTER, Table, nine_created

_COMPOSED = unicodedata.normalize("NFC", "Prüfsumme über Größe")
_TEXTS = (
    _COMPOSED,
    unicodedata.normalize("NFD", _COMPOSED),
    "磁盘 7 校验失败",
    "الكتلة تالفة",
    "🧨💽",
    "tab\there, line\nthere, NUL\x00 and DEL\x7f",
    "<b>&amp;</b> \u2028 \u2029 \\ \" '",
    "s" * 9_000,
    "s" * 9_001,
)


def tables() -> Iterator[Table]:
    yield texts()
    yield empty_message()
    yield everything_empty()
    yield default_namespace()
    yield upper_case()
    yield other_fields()


def texts() -> Table:
    t = Table("messages_are_compared_byte_for_byte", burst=NO_SPAM_FILTER)
    for turn in (1, 2, 3):
        for number, text in enumerate(_TEXTS):
            row = t.at(turn * 10 + number, text)
            if turn == 1:
                row.created()
            else:
                row.patched(turn)
    t.at(50, "ü").folded(1)
    t.at(51, unicodedata.normalize("NFD", "ü")).folded(2)
    return t


def empty_message() -> Table:
    t = Table("empty_message_is_a_message", burst=NO_SPAM_FILTER, max_events=3)
    t.at(0, "").created("empty")
    t.at(1, "").patched(2, "empty")
    t.at(2, " ").created("blank")
    t.at(3, "x").folded(1)
    t.at(4, "").patched(3, "empty")
    return t


def everything_empty() -> Table:
    t = Table("event_with_nothing_in_it_is_counted_and_filtered", burst=3)
    nothing = dict.fromkeys(("kind", "namespace", "name", "uid", "api_version", "component", "host"), "")
    nothing |= dict(reason="", type="")
    t.at(0, "", **nothing).created("nothing")
    t.at(1, "", **nothing).patched(2, "nothing")
    t.at(2, "something", **nothing).created()
    t.at(3, "", **nothing).skipped("nothing")
    # A token is back; the skipped one has been counted.
    t.at(400, "", **nothing).patched(4, "nothing")
    return t


def default_namespace() -> Table:
    t = Table("event_of_an_object_without_namespace_is_stored_in_default", burst=1)
    t.at(0, kind="Rack", namespace="", name="rack-3").created("cluster-wide")
    t.at(1, kind="Rack", namespace="default", name="rack-3").created("in default")
    t.at(2, kind="Rack", namespace="", name="rack-3").skipped("cluster-wide")
    t.at(1_000, kind="Rack", namespace="", name="rack-3").patched(3, "cluster-wide")
    return t


def upper_case() -> Table:
    t = Table("aggregate_is_named_after_the_object_as_it_is_written", burst=NO_SPAM_FILTER, max_events=1)
    t.at(0.001, "a", name="Vol:7/ä").folded(1)
    t.at(1, "b", name="Vol:7/ä").folded(2)
    return t


def other_fields() -> Table:
    t = Table("labels_annotations_action_related_and_series_are_in_no_key", burst=11)
    nine_created(
        t,
        metadata=dict(labels={"shelf": "top"}, annotations={"by": "hand"}),
        action="Scrub",
        related=ObjectReference(kind="Rack", name="rack-3"),
        event_time=datetime(2024, 1, 1, 0, 0, 0, 123456, tzinfo=UTC),
        series=EventSeries(2, datetime(2024, 1, 1, tzinfo=UTC)),
    )
    t.at(10, "block 1", metadata=dict(labels={"shelf": "low"}), action="Read").patched(2)
    t.at(11, "block 10", related=ObjectReference(kind="Rack", name="rack-9")).folded(1)
    t.at(12, "block 2", action="Write").skipped()
    return t
