"""The token bucket: how many events of one source about one object get through."""

from __future__ import annotations

from collections.abc import Iterator

from eventbus.settings import SpamKey
from tests.conformance.scenarios.table import Table, nine_created

DAY_S = 86_400


def tables() -> Iterator[Table]:
    yield default_bucket()
    yield counted_while_skipped()
    yield first_seen_while_skipped()
    yield full_bucket()
    yield burst_of_one()
    yield rejection_takes_nothing()
    yield folded_events_take_tokens()
    yield type_has_its_own_bucket()
    yield spam_key_object()
    yield spam_key_with_reason()
    yield exempt("namespaces", "storage", namespace="attic")
    yield exempt("types", "Warning", type="Normal")
    yield exempt("reasons", "ChecksumMismatch", reason="ScrubDone")
    yield exempt_events_take_no_token()
    yield qps_of_0_7()
    yield qps_of_2_3()
    yield qps_of_1_1()
    yield qps_just_below_a_300th()
    yield wait_below_a_nanosecond()
    yield clock_back()
    yield no_tokens()
    yield no_rate()
    yield tiny_rate()
    yield huge_rate()


def repeats(table: Table, at_s: float, first: int, last: int) -> None:
    """Accepted repeats of the message `m` with the running counts *first* … *last*, all at the same time."""
    for count in range(first, last + 1):
        if count == 1:
            table.at(at_s).created()
        else:
            table.at(at_s).patched(count)


def default_bucket() -> Table:
    t = Table("25_events_get_through_and_then_one_in_300_s")
    repeats(t, 0, 1, 25)
    t.at(1).skipped()
    t.at(299.999).skipped()
    t.at(300).patched(28)
    t.at(300.001).skipped()
    t.at(599.999).skipped()
    t.at(600).patched(31)
    return t


def counted_while_skipped() -> Table:
    t = Table("skipped_repeats_are_counted", burst=2)
    t.at(0).created()
    t.at(1).patched(2)
    for second in range(2, 42):
        t.at(second).skipped()
    t.at(301).patched(43)
    t.at(302).skipped()
    t.at(900).patched(45)
    return t


def first_seen_while_skipped() -> Table:
    t = Table("event_first_seen_while_skipped_is_created_by_its_next_repeat", burst=1)
    t.at(0, "a").created()
    t.at(10, "b").skipped()
    t.at(20, "c").skipped()
    t.at(30, "b").skipped()
    t.at(310, "b").recreated(3)
    t.at(620, "c").recreated(2)
    t.at(930, "b").patched(4)
    return t


def full_bucket() -> Table:
    t = Table("tokens_come_back_up_to_the_burst_and_no_further", burst=3)
    repeats(t, 0, 1, 3)
    t.at(0).skipped()
    repeats(t, 700, 5, 6)
    t.at(700).skipped()
    repeats(t, 1_000_000, 8, 10)
    t.at(1_000_000).skipped()
    return t


def burst_of_one() -> Table:
    t = Table("burst_of_1_lets_one_through_in_each_interval", burst=1, qps=0.25)
    t.at(0).created()
    t.at(0).skipped()
    t.at(3.999).skipped()
    t.at(4).patched(4)
    t.at(7.999).skipped()
    t.at(100).patched(6)
    t.at(100.001).skipped()
    t.at(104).patched(8)
    return t


def rejection_takes_nothing() -> Table:
    t = Table("skipped_events_do_not_delay_the_next_token", burst=1, qps=0.5)
    t.at(0).created()
    for tenth in range(1, 20):
        t.at(tenth / 10).skipped()
    t.at(2).patched(21)
    return t


def folded_events_take_tokens() -> Table:
    t = Table("plain_and_folded_events_share_the_bucket", burst=11)
    nine_created(t)
    t.at(9, "block 10").folded(1)
    t.at(10, "block 11").folded(2)
    t.at(11, "block 12").folded_and_skipped()
    t.at(12, "block 1").skipped()
    t.at(13, "block 13").folded_and_skipped()
    t.at(320, "block 14").folded(5)
    t.at(900, "block 1").patched(3)
    return t


def type_has_its_own_bucket() -> Table:
    t = Table("warning_gets_through_after_the_normals_are_spent", burst=4)
    for count in range(1, 5):
        row = t.at(count, type="Normal")
        if count == 1:
            row.created("normal")
        else:
            row.patched(count, "normal")
    t.at(5, type="Normal").skipped("normal")
    t.at(6, type="Warning").created("warning")
    t.at(7, type="Warning", reason="ScrubStuck").created("stuck")
    t.at(8, type="Normal").skipped("normal")
    return t


def spam_key_object() -> Table:
    t = Table("spam_key_object_has_one_bucket_for_all_types", burst=2, spam_key=SpamKey.OBJECT)
    t.at(0, type="Normal").created("normal")
    t.at(1, type="Warning").created("warning")
    t.at(2, type="Warning").skipped("warning")
    t.at(3, type="Normal", reason="ScrubDone").skipped("done")
    t.at(4, type="Normal", name="vol-8").created("other volume")
    return t


def spam_key_with_reason() -> Table:
    t = Table("spam_key_with_reason_has_a_bucket_for_each", burst=1, spam_key=SpamKey.OBJECT_TYPE_REASON)
    t.at(0, reason="ReadSlow").created("read")
    t.at(1, reason="WriteSlow").created("write")
    t.at(2, reason="WriteSlow", type="Normal").created("normal write")
    t.at(3, "other", reason="ReadSlow").skipped()
    t.at(4, reason="ReadSlow").skipped("read")
    t.at(5, reason="WriteSlow").skipped("write")
    return t


def exempt(what: str, value: str, **other: str) -> Table:
    t = Table(f"exempt_{what}_are_never_skipped", burst=1, **{f"exempt_{what}": (value, "NeverSeen")})
    repeats(t, 0, 1, 30)
    t.at(1, **other).created("other")
    t.at(2, **other).skipped("other")
    t.at(3).patched(31)
    return t


def exempt_events_take_no_token() -> Table:
    t = Table("exempt_events_neither_take_nor_need_a_token", burst=2, exempt_reasons=("Audit",), max_events=3)
    for number in range(1, 3):
        t.at(number, f"entry {number}", reason="Audit").created()
    for number in range(3, 9):
        t.at(number, f"entry {number}", reason="Audit").folded(number - 2)
    t.at(10, "a").created()
    t.at(11, "b").created()
    t.at(12, "a").skipped()
    t.at(13, "entry 1", reason="Audit").patched(2)
    # Refill counts from the last event that took a token, at 11 s.
    t.at(311, "a").patched(3)
    return t


def qps_of_0_7() -> Table:
    """0.7 is 0.699999988… as a float32: ten seconds are a hair less than seven tokens."""
    t = Table("qps_of_0.7_is_rounded_down_to_float32", burst=9, qps=0.7)
    repeats(t, 0, 1, 9)
    repeats(t, 10, 10, 15)
    t.at(10).skipped()
    t.at(10.001).patched(17)
    t.at(10.001).skipped()
    return t


def qps_of_2_3() -> Table:
    """2.3 is 2.299999952… as a float32: ten seconds are a hair less than 23 tokens."""
    t = Table("qps_of_2.3_is_rounded_down_to_float32", burst=30, qps=2.3)
    repeats(t, 0, 1, 30)
    repeats(t, 10, 31, 52)
    t.at(10).skipped()
    t.at(10.001).patched(54)
    t.at(10.001).skipped()
    return t


def qps_of_1_1() -> Table:
    """1.1 is 1.100000023… as a float32: the rest of 0.910 s and another 9.09 s are ten tokens and a hair."""
    t = Table("qps_of_1.1_is_rounded_up_to_float32", burst=11, qps=1.1)
    repeats(t, 0, 1, 11)
    t.at(0.909).skipped()
    t.at(0.910).patched(13)
    t.at(0.910).skipped()
    repeats(t, 10, 15, 24)
    t.at(10).skipped()
    return t


def qps_just_below_a_300th() -> Table:
    """0.0033333333 is 0.003333333414… as a float32, the same number as 1/300: 300 s are one token."""
    t = Table("qps_of_0.0033333333_is_rounded_up_to_a_300th", burst=2, qps=0.0033333333)
    repeats(t, 0, 1, 2)
    t.at(0).skipped()
    t.at(299.999).skipped()
    t.at(300).patched(5)
    t.at(600).patched(6)
    t.at(899.999).skipped()
    t.at(900).patched(8)
    return t


def wait_below_a_nanosecond() -> Table:
    """0.29 s × 100 are 28.999999999999996 tokens as doubles; the missing ones would take less than 1 ns: no wait."""
    t = Table("token_that_is_less_than_a_nanosecond_away_is_there", burst=40, qps=100)
    repeats(t, 0, 1, 40)
    repeats(t, 0.29, 41, 69)
    t.at(0.29).skipped()
    t.at(0.299).skipped()
    t.at(0.3).patched(72)
    return t


def clock_back() -> Table:
    """No tokens for time that goes back, but the refill then counts from the earlier time."""
    t = Table("clock_going_back_gives_no_tokens_but_moves_the_time_of_the_bucket", burst=2, qps=1)
    t.at(100).created()
    t.at(50).patched(2)
    t.at(50).skipped()
    t.at(51).patched(4)
    t.at(51).skipped()
    t.at(30).skipped()
    t.at(51.999).skipped()
    t.at(52).patched(8)
    return t


def no_tokens() -> Table:
    t = Table("burst_below_1_holds_back_everything", burst=-1, qps=1e9)
    for second in (0, 1, 300, DAY_S):
        t.at(second).skipped()
    return t


def no_rate() -> Table:
    t = Table("qps_below_0_gives_no_token_back", burst=3, qps=-1)
    repeats(t, 0, 1, 3)
    for second in (1, 300, 365 * DAY_S):
        t.at(second).skipped()
    return t


def tiny_rate() -> Table:
    t = Table("qps_of_1e_7_gives_a_token_back_in_116_days", burst=1, qps=1e-7)
    repeats(t, 0, 1, 1)
    t.at(DAY_S).skipped()
    t.at(115 * DAY_S).skipped()
    t.at(116 * DAY_S).patched(4)
    return t


def huge_rate() -> Table:
    t = Table("qps_of_2_tokens_a_nanosecond_lets_one_more_pass_at_once", burst=1, qps=2e9)
    repeats(t, 0, 1, 2)
    t.at(0).skipped()
    t.at(0.001).patched(4)
    return t
