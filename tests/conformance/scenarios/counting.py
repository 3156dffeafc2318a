"""Scenarios of counting: repeats, names and times."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

from tests.conformance.driver import Action
from tests.conformance.scenarios.table import NO_SPAM_FILTER, Table, nine_created

DAY_S = 86_400


def tables() -> Iterator[Table]:
    yield first_timestamp_stays()
    yield own_count_of_a_repeat()
    yield count_of_zero()
    yield count_of_zero_and_held_back()
    yield stored_while_successor_is_held_back()
    yield count_below_zero()
    yield count_above_one()
    yield count_of_the_largest()
    yield folded_counts()
    yield emptied_store()
    yield emptied_store_with_aggregate()
    yield own_timestamps()
    yield clock_back()
    yield many_objects()


def first_timestamp_stays() -> Table:
    t = Table("repeat_after_days_keeps_name_and_first_timestamp")
    t.at(0.4).created()
    t.at(3_599).patched(2)
    t.at(2 * DAY_S).patched(3)
    t.at(30 * DAY_S + 0.9).patched(4)
    return t


def own_count_of_a_repeat() -> Table:
    t = Table("count_that_a_repeat_brings_is_ignored", burst=NO_SPAM_FILTER)
    t.at(0).created()
    for turn, brought in enumerate((7, 0, -3, 1_000_000), 2):
        t.at(turn, count=brought).patched(turn)
    return t


def count_of_zero() -> Table:
    t = Table("count_of_0_is_not_remembered_as_seen", burst=NO_SPAM_FILTER)
    t.at(0, count=0).created()
    t.at(1, count=0).created()
    t.at(2, count=1).created()
    t.at(3, count=0).patched(2)
    return t


def count_of_zero_and_held_back() -> Table:
    t = Table("count_of_0_is_forgotten_for_a_held_back_event_of_the_same_key", burst=1)
    t.at(0, count=0).created()
    t.at(1).skipped("remembered")
    t.at(400).recreated(2, "remembered")
    return t


def stored_while_successor_is_held_back() -> Table:
    t = Table("event_of_count_0_stays_stored_while_its_successor_is_held_back", burst=1)
    t.at(0, count=0).created()
    t.at(1, count=0).skipped("second")
    t.at(2, count=5).skipped("third")
    return t


def count_below_zero() -> Table:
    """-1 is seen (the remembered count is unsigned), one more is 0, and 0 is not seen."""
    t = Table("count_of_minus_1_is_followed_by_0_and_then_begins_anew", burst=NO_SPAM_FILTER)
    t.at(0, count=-1).created()
    t.at(1, count=-1).repeat_created(0)
    t.at(2, count=-1).created()
    t.at(3, "other", count=-3).created()
    t.at(4, "other").repeat_created(-2)
    t.at(5, "other").repeat_created(-1)
    t.at(6, "other").repeat_created(0)
    t.at(7, "other").created()
    t.at(8, "other").patched(2)
    return t


def count_above_one() -> Table:
    t = Table("first_count_above_1_is_sent_as_an_update", burst=NO_SPAM_FILTER)
    t.at(0, count=4).created_by_update()
    t.at(60).patched(5)
    t.at(61, count=4).patched(6)
    return t


def count_of_the_largest() -> Table:
    t = Table("after_the_largest_int32_comes_the_smallest", burst=NO_SPAM_FILTER)
    t.at(0, count=2**31 - 2).created_by_update()
    t.at(1).patched(2**31 - 1)
    t.at(2).repeat_created(-(2**31))
    t.at(3).repeat_created(1 - 2**31)
    return t


def folded_counts() -> Table:
    t = Table("aggregate_begins_at_1_whatever_count_comes_in", burst=NO_SPAM_FILTER, max_events=2)
    t.at(0, "x", count=3).created_by_update()
    t.at(1, "y", count=9).folded(1)
    t.at(2, "z", count=0).folded(2)
    t.at(3, "x", count=0).patched(4)
    return t


def emptied_store() -> Table:
    t = Table("repeat_after_the_store_was_emptied_is_created_with_its_running_count", burst=NO_SPAM_FILTER)
    t.at(0, "a").created()
    t.at(1, "b").created()
    t.at(2, "a").patched(2)
    t.empty_the_store()
    t.at(4_000, "a").recreated(3)
    t.at(4_001, "a").patched(4)
    t.at(4_002, "b").recreated(2)
    t.empty_the_store()
    t.at(4_003, "c").created()
    t.at(4_004, "a").recreated(5)
    return t


def emptied_store_with_aggregate() -> Table:
    t = Table("aggregate_after_the_store_was_emptied_is_created_with_its_running_count", burst=NO_SPAM_FILTER)
    nine_created(t)
    t.at(9, "block 10").folded(1)
    t.at(10, "block 11").folded(2)
    t.empty_the_store()
    t.at(11, "block 12").folded(3, action=Action.PATCH_CREATE)
    t.at(12, "block 13").folded(4)
    t.at(13, "block 5").recreated(2)
    return t


def own_timestamps() -> Table:
    t = Table("timestamps_of_the_event_are_kept_and_the_aggregate_has_the_clocks", burst=NO_SPAM_FILTER, max_events=3)
    morning = datetime(2023, 12, 24, 8, 0, 5, tzinfo=UTC)
    noon = datetime(2023, 12, 24, 12, 30, tzinfo=UTC)
    evening = datetime(2023, 12, 24, 19, 45, 59, tzinfo=UTC)
    t.at(0, "a", first_timestamp=morning, last_timestamp=noon).created()
    t.at(1, "a", first_timestamp=noon, last_timestamp=evening).patched(2)
    t.at(2, "a", first_timestamp=noon, last_timestamp=morning).patched(3)
    t.at(3, "a", last_timestamp=datetime(1970, 1, 1, tzinfo=UTC)).patched(4)
    t.at(4, "b", first_timestamp=evening).created()
    t.at(5, "c", first_timestamp=morning, last_timestamp=noon).folded(1)
    return t


def clock_back() -> Table:
    t = Table("clock_going_back_takes_the_last_timestamp_back", burst=NO_SPAM_FILTER)
    t.at(5_000).created()
    t.at(4_000).patched(2)
    t.at(10).patched(3)
    t.at(5_001).patched(4)
    return t


def many_objects() -> Table:
    """Eight volumes in turn; each has its own counts, its own nine messages and its own bucket of 25."""
    t = Table("interleaved_objects_do_not_touch_each_other")
    volumes = [f"vol-{number}" for number in range(8)]
    for turn in range(30):
        for number, volume in enumerate(volumes):
            row = t.at(turn + number / 100, f"{volume} sector {turn}", name=volume, uid=f"u-{volume}")
            aggregate = f"aggregate of {volume}"
            if turn < 9:
                row.created()
            elif turn < 25:
                row.folded(turn - 8, aggregate)
            else:
                row.folded_and_skipped(aggregate)
    for volume in volumes:
        # Three tokens have come back.
        t.at(1_000, f"{volume} sector 0", name=volume, uid=f"u-{volume}").patched(2)
    return t
