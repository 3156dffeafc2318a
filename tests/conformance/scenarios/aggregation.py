"""Scenarios of aggregation: when similar events are folded into one, and for how long."""

from __future__ import annotations

from collections.abc import Iterator

from tests.conformance.driver import Action
from tests.conformance.scenarios.table import NO_SPAM_FILTER, Table, nine_created

INTERVAL_S = 600


def tables() -> Iterator[Table]:
    yield tenth_message()
    yield nine_messages()
    yield repeats_after_the_fold()
    yield pause("pause_of_the_interval_less_1_ms_goes_on", INTERVAL_S - 0.001, anew=False)
    yield pause("pause_of_exactly_the_interval_goes_on", INTERVAL_S, anew=False)
    yield pause("pause_of_the_interval_and_1_ms_starts_anew", INTERVAL_S + 0.001, anew=True)
    yield pause("pause_of_twice_the_interval_starts_anew", 2 * INTERVAL_S, anew=True)
    yield rolling_interval()
    yield repeats_keep_the_set_alive()
    yield revived_aggregate()
    yield old_messages_after_a_pause()
    yield skipped_events_fill_the_set()
    yield clock_back()
    yield clock_before_1970()
    yield two_of_one_name()


def tenth_message() -> Table:
    t = Table("tenth_different_message_is_the_first_aggregate", burst=NO_SPAM_FILTER)
    nine_created(t, step_s=4)
    t.at(40, "block 10").folded(1)
    t.at(41, "block 11").folded(2)
    t.at(97.5, "block 12").folded(3)
    return t


def nine_messages() -> Table:
    t = Table("nine_messages_repeat_on_counters_of_their_own", burst=NO_SPAM_FILTER)
    nine_created(t)
    for turn in (2, 3, 4):
        for number in (9, 1, 8, 2, 7, 3, 6, 4, 5):
            t.at(turn * 60 + number, f"block {number}").patched(turn)
    return t


def repeats_after_the_fold() -> Table:
    """Ours: the newcomer is dropped, so the first nine stay and a folded message is forgotten at once."""
    t = Table("first_nine_keep_their_counters_after_the_fold", burst=NO_SPAM_FILTER)
    nine_created(t)
    t.at(10, "block 10").folded(1)
    t.at(11, "block 1").patched(2)
    t.at(12, "block 9").patched(2)
    t.at(13, "block 10").folded(2)
    t.at(14, "block 11").folded(3)
    t.at(15, "block 1").patched(3)
    t.at(16, "block 10").folded(4)
    for number in range(2, 9):
        t.at(20 + number, f"block {number}").patched(2)
    return t


def pause(name: str, seconds: float, *, anew: bool) -> Table:
    t = Table(name, burst=NO_SPAM_FILTER)
    nine_created(t, start_s=3, step_s=0.25)
    row = t.at(5 + seconds, "block 10")
    if anew:
        row.created()
        t.at(6 + seconds, "block 11").created()
    else:
        row.folded(1)
        t.at(6 + seconds, "block 11").folded(2)
    return t


def rolling_interval() -> Table:
    t = Table("interval_is_counted_from_the_latest_similar_event", burst=NO_SPAM_FILTER)
    nine_created(t, step_s=INTERVAL_S)
    t.at(9 * INTERVAL_S, "block 10").folded(1)
    t.at(10 * INTERVAL_S, "block 11").folded(2)
    return t


def repeats_keep_the_set_alive() -> Table:
    t = Table("repeats_keep_the_set_of_similar_events_alive", burst=NO_SPAM_FILTER)
    nine_created(t)
    t.at(508, "block 2").patched(2)
    t.at(1_008, "block 2").patched(3)
    t.at(1_608, "block 10").folded(1)
    t.at(2_208, "block 2").patched(4)
    t.at(2_808.001, "block 11").created()
    return t


def revived_aggregate() -> Table:
    t = Table("aggregate_of_an_earlier_window_is_continued", burst=NO_SPAM_FILTER)
    nine_created(t)
    t.at(10, "block 10").folded(1)
    t.at(20, "block 11").folded(2)
    nine_created(t, start_s=700, text="second window, block")
    t.at(710, "second window, block 10").folded(3)
    nine_created(t, start_s=90_000, text="next day, block")
    t.at(90_010, "next day, block 10").folded(4)
    return t


def old_messages_after_a_pause() -> Table:
    t = Table("messages_of_before_the_pause_go_on_counting_but_fill_the_set_anew", burst=NO_SPAM_FILTER)
    nine_created(t)
    t.at(9, "block 10").folded(1)
    for number in range(1, 10):
        t.at(650 + number, f"block {number}").patched(2)
    t.at(660, "block 10").folded(2)
    return t


def skipped_events_fill_the_set() -> Table:
    t = Table("skipped_events_fill_the_set_and_move_its_time", burst=1, qps=0.001, max_events=3)
    t.at(0, "a").created()
    t.at(1, "b").skipped()
    t.at(2, "c").folded_and_skipped()
    t.at(601, "d").folded_and_skipped()
    # 600 s after the skipped one, 1 199 s after the last accepted: a token has come back.
    t.at(1_201, "e").folded(3, action=Action.PATCH_CREATE)
    return t


def clock_back() -> Table:
    t = Table("clock_going_back_expires_nothing_and_moves_the_time_back", burst=NO_SPAM_FILTER)
    nine_created(t, start_s=2_000)
    t.at(100, "block 10").folded(1)
    t.at(700, "block 11").folded(2)
    t.at(1_300.001, "block 12").created()
    return t


def clock_before_1970() -> Table:
    t = Table("aggregate_of_a_clock_before_1970_has_a_signed_name", burst=NO_SPAM_FILTER, max_events=1)
    t.at(-1_704_067_291, "a").folded(1)
    assert t.labels["aggregate"][0] == "vol-7.-153005ce00"
    t.at(-1_704_067_290, "b").folded(2)
    return t


def two_of_one_name() -> Table:
    """client-go loses the second create and patches the first one's event; ours may have a suffix instead."""
    t = Table("two_aggregates_of_one_object_and_millisecond", burst=NO_SPAM_FILTER, max_events=1)
    t.at(0, "a").folded(1, "one")
    t.at(0, "a", reason="ScrubDone").folded(1, "two")
    t.at(1, "b", reason="ScrubDone").folded(2, "two")
    t.at(2, "b").folded(2, "one")
    t.empty_the_store()
    t.at(3, "c", reason="ScrubDone").folded(3, "two", action=Action.PATCH_CREATE)
    t.at(4, "c").folded(3, "one")
    t.at(5, "d").folded(4, "one")
    t.empty_the_store()
    t.at(6, "d", reason="ScrubDone").folded(4, "two", action=Action.PATCH_CREATE)
    return t
