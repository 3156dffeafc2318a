"""The options of aggregation that are not at their defaults."""

from __future__ import annotations

from collections.abc import Iterator

from eventbus.settings import AggregateKey
from tests.conformance.scenarios.table import NO_SPAM_FILTER, Table


def tables() -> Iterator[Table]:
    yield one_message()
    yield three_messages()
    yield short_interval()
    yield long_interval()
    yield message_prefix()
    yield aggregate_key_with_field_path()
    yield zero_is_the_default()
    yield more_than_there_are()
    yield no_room_for_messages()


def one_message() -> Table:
    t = Table("max_events_1_folds_everything_even_repeats", burst=NO_SPAM_FILTER, max_events=1)
    t.at(0, "same").folded(1)
    t.at(1, "same").folded(2)
    t.at(2, "other").folded(3)
    t.at(5_000, "same").folded(4)
    t.at(5_001, "same", reason="ScrubDone").folded(1, "done")
    return t


def three_messages() -> Table:
    t = Table("max_events_3_folds_from_the_third_message", burst=NO_SPAM_FILTER, max_events=3)
    t.at(0, "a").created()
    t.at(1, "a").patched(2)
    t.at(2, "b").created()
    t.at(3, "c").folded(1)
    t.at(4, "b").patched(2)
    t.at(5, "c").folded(2)
    t.at(6, "d").folded(3)
    t.at(606.001, "c").created()
    t.at(607, "d").created()
    t.at(608, "a").folded(4)
    return t


def short_interval() -> Table:
    t = Table("max_interval_1_s_is_exceeded_by_1001_ms", burst=NO_SPAM_FILTER, max_interval_s=1, max_events=2)
    t.at(0, "a").created()
    t.at(1, "b").folded(1)
    t.at(2.001, "c").created()
    t.at(3, "d").folded(2)
    t.at(3.999, "e").folded(3)
    t.at(5, "f").created()
    t.at(6, "g").folded(4)
    return t


def long_interval() -> Table:
    t = Table("max_interval_3600_s_outlives_600", burst=NO_SPAM_FILTER, max_interval_s=3_600, max_events=2)
    t.at(0, "a").created()
    t.at(601, "b").folded(1)
    t.at(4_201, "c").folded(2)
    t.at(7_801.001, "d").created()
    return t


def message_prefix() -> Table:
    t = Table("prefix_of_the_aggregates_message_can_be_set", burst=NO_SPAM_FILTER, max_events=2, aggregate_message="Σ ")
    t.at(0, "a").created()
    t.at(1, "b").folded(1)
    # Reads as the aggregate does, and is still an event of its own.
    t.at(700, "Σ b").created()
    t.at(701, "").folded(2)
    t.at(702, "Σ b").patched(2)
    return t


def aggregate_key_with_field_path() -> Table:
    by_path = AggregateKey.REASON_FIELD_PATH
    t = Table("aggregate_key_with_field_path_keeps_containers_apart", burst=6, aggregate_key=by_path, max_events=2)
    t.at(0, "a", field_path="spec.disks{1}").created("1 a")
    t.at(1, "b", field_path="spec.disks{2}").created("2 b")
    t.at(2, "c", field_path="spec.disks{1}").folded(1, "1")
    t.at(3, "c", field_path="spec.disks{2}").folded(1, "2")
    t.at(4, "d", field_path="spec.disks{1}").folded(2, "1")
    t.at(5, "e", field_path="").created("e")
    t.at(6, "f", field_path="").folded_and_skipped("3")
    return t


def zero_is_the_default() -> Table:
    t = Table("option_of_0_means_the_default", burst=0, qps=0, max_events=0, max_interval_s=0, aggregate_message="")
    for number in range(1, 10):
        t.at(number, f"block {number}").created()
    for number in range(10, 26):
        t.at(number, f"block {number}").folded(number - 9)
    t.at(26, "block 26").folded_and_skipped()
    return t


def more_than_there_are() -> Table:
    t = Table("options_larger_than_any_scenario", burst=10**12, max_events=10**9, max_interval_s=10**9)
    for number in range(40):
        t.at(number * 400 * 86_400, f"block {number}").created()
    t.at(0, "block 0").patched(2)
    return t


def no_room_for_messages() -> Table:
    t = Table("max_events_below_0_folds_everything", burst=NO_SPAM_FILTER, max_events=-1)
    t.at(0, "same").folded(1)
    t.at(1, "same").folded(2)
    return t
