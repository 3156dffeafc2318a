"""resend.py: numbers and borders never change while anything is in doubt, and what cannot be repaired is counted."""

from __future__ import annotations

import math
import os
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventbus.broker.transport import PRODUCER_LIFE_MS, PublishReply, PublishStatus
from eventbus.model.encoding.wire import MAX_BATCH_BYTES, MAX_BATCH_EVENTS, MAX_EVENT_BYTES, unpack_batch
from eventbus.model.event import ObjectReference
from eventbus.record.losses import Losses
from eventbus.record.packing import Pending, pack
from eventbus.record.resend import BATCH_OVERHEAD, NumberedBatch, Producer
from eventbus.settings import Settings
from eventbus.testing.clock import FakeClock

GENERATION = "g1"
LIFE_S = PRODUCER_LIFE_MS / 1000
OK, LOST, DUP = (PublishReply(PublishStatus(answer), generation=GENERATION) for answer in ("OK", "LOST", "DUP"))


def gap(last: int) -> PublishReply:
    return PublishReply(PublishStatus.GAP, last=last)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def losses(clock: FakeClock) -> Losses:
    return Losses(clock)


@pytest.fixture
def producer(clock: FakeClock, losses: Losses) -> Producer:
    return Producer(clock=clock, losses=losses, ring_bytes=1_000_000)


def add(producer: Producer, *sizes: int, event: bytes = b"x") -> None:
    """A batch of *sizes* many events each."""
    for size in sizes:
        for _ in range(size):
            producer.add(event)
        producer.seal()


def borders(producer: Producer) -> list[tuple[int, int]]:
    """First and last sequence of what waits."""
    return [(batch.first, batch.last) for batch in producer.waiting]


def accept(producer: Producer, n: int) -> None:
    for _ in range(n):
        assert producer.settle(OK)


# -- numbering ------------------------------------------------------------------------------------------------------


def test_a_batch_is_closed_when_it_is_full(producer: Producer) -> None:
    for _ in range(MAX_BATCH_EVENTS + 1):
        producer.add(b"x")
    producer.seal()
    assert borders(producer) == [(1, MAX_BATCH_EVENTS), (MAX_BATCH_EVENTS + 1, MAX_BATCH_EVENTS + 1)]


@given(st.lists(st.integers(0, MAX_EVENT_BYTES), min_size=1, max_size=100))
def test_a_body_never_has_more_bytes_than_a_batch_may_and_can_be_opened(sizes: list[int]) -> None:
    clock = FakeClock()
    producer = Producer(clock=clock, losses=Losses(clock), ring_bytes=0)
    for size in sizes:
        producer.add(b"x" * size)
    producer.seal()
    bodies = [request.body for request in producer.requests(0, 99)]
    assert max(map(len, bodies)) <= MAX_BATCH_BYTES
    opened = [unpack_batch(body) for body in bodies]
    assert [len(event) for batch in opened for event in batch.events] == sizes
    assert {batch.producer for batch in opened} == {producer.id}


# -- what Redis answers ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("answer", [OK, LOST, DUP])
def test_what_redis_has_is_no_longer_in_doubt(producer: Producer, answer: PublishReply) -> None:
    add(producer, 2, 2)
    assert producer.settle(answer)
    assert borders(producer) == [(3, 4)]
    assert producer.generation == GENERATION


@pytest.mark.parametrize(
    "answer", [PublishReply(PublishStatus.FULL, group="sink"), PublishReply(PublishStatus.MISSING)]
)
def test_what_redis_did_not_take_waits_as_it_is(producer: Producer, answer: PublishReply) -> None:
    add(producer, 2, 2)
    assert not producer.settle(answer)
    assert borders(producer) == [(1, 2), (3, 4)]


def test_a_gap_brings_back_what_the_ring_has_with_the_same_borders_id_and_bytes(producer: Producer) -> None:
    add(producer, 3, 1, 5, 2)
    bodies = [request.body for request in producer.requests(0, 99)]
    before = producer.id
    accept(producer, 3)

    assert not producer.settle(gap(3))

    assert borders(producer) == [(4, 4), (5, 9), (10, 11)]
    assert [request.body for request in producer.requests(0, 99)] == bodies[1:]
    assert producer.id == before


def test_its_state_lies_under_a_secret_that_no_batch_has_and_that_goes_with_the_id(producer: Producer) -> None:
    add(producer, 2)
    (request,) = producer.requests(0, 99)
    assert request.producer == producer.secret
    assert producer.secret.encode() not in request.body
    assert len(producer.secret) == 16
    before = {producer.id, producer.secret}
    assert not producer.settle(gap(0))
    assert {producer.id, producer.secret} == before  # sent again under the same
    producer._start_again()
    assert not {producer.id, producer.secret} & before


def test_what_came_back_can_be_accepted_and_lost_again(producer: Producer, losses: Losses) -> None:
    add(producer, 2, 2, 2)
    for _ in range(3):
        accept(producer, 2)
        producer.settle(gap(0))
        assert borders(producer) == [(1, 2), (3, 4), (5, 6)]
    accept(producer, 3)
    assert producer.idle
    assert losses.counts == {}


def test_a_hole_beyond_the_ring_goes_on_under_a_fresh_id_and_is_counted(clock: FakeClock, losses: Losses) -> None:
    producer = Producer(clock=clock, losses=losses, ring_bytes=2 * (4 + BATCH_OVERHEAD))
    add(producer, 1, 1, 1, 1)
    before = producer.id
    accept(producer, 3)

    producer.settle(gap(0))  # 1 is gone, 2 and 3 are in the ring, 4 waits

    assert losses.counts == {"lost": 1}
    assert producer.id != before
    assert producer.generation == ""
    assert borders(producer) == [(1, 1), (2, 2), (3, 3)]
    accept(producer, 3)
    assert losses.counts == {"lost": 1}


def test_the_ring_is_bounded_in_bytes(clock: FakeClock, losses: Losses) -> None:
    producer = Producer(clock=clock, losses=losses, ring_bytes=10_000)
    for _ in range(50):
        add(producer, 1, event=os.urandom(1000 - 4 - BATCH_OVERHEAD))
        accept(producer, 1)
    add(producer, 1)
    producer.settle(gap(40))
    assert borders(producer) == [(i, i) for i in range(41, 52)]
    assert losses.counts == {}
    accept(producer, 10)
    producer.settle(gap(39))
    assert losses.counts == {"lost": 1}


def test_the_ring_of_the_default_settings_covers_twenty_seconds_of_a_thousand_events_in_eight_mebibytes(
    clock: FakeClock, losses: Losses
) -> None:
    """At 1 000 a second nearly every event is sent alone, which takes the most memory: docs/reliability.md."""
    producer = Producer(clock=clock, losses=losses, ring_bytes=Settings().ring_bytes)
    pod = ObjectReference("Pod", "shop", "web-17", "", "v1")
    recorded = 25_000
    for number in range(recorded):
        message = f"back-off restarting container app: attempt {number}, exit code 1"
        event = Pending(("scheduler", "host-1"), pod, "Warning", "BackOff", message, 1_763_719_000_000_000_000 + number)
        add(producer, 1, event=pack(event))
        accept(producer, 1)
    assert producer._ring_bytes <= 8 * 2**20
    producer.settle(gap(recorded - 20_000))
    assert losses.counts == {}


@pytest.mark.parametrize(("events", "size"), [(64, 60), (1, 60), (30, 4000)])
def test_the_ring_takes_no_more_memory_than_its_bound(clock: FakeClock, losses: Losses, events: int, size: int) -> None:
    bound = 2**18
    producer = Producer(clock=clock, losses=losses, ring_bytes=bound)
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for _ in range(2 * bound // (events * size)):
            for _ in range(events):
                producer.add(os.urandom(size))
            producer.seal()
            accept(producer, 1)
        taken = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert 0.75 * bound < taken < 1.02 * bound


def test_a_stream_that_was_destroyed_is_counted(producer: Producer, losses: Losses) -> None:
    add(producer, 2, 2)
    accept(producer, 1)
    producer.settle(LOST)
    assert "destroyed" in losses.counts


def test_a_stream_that_was_destroyed_is_counted_once_if_the_reply_was_lost(producer: Producer, losses: Losses) -> None:
    add(producer, 2, 2, 2, 2)
    accept(producer, 1)
    for status in (PublishStatus.DUP, PublishStatus.DUP, PublishStatus.OK):
        producer.settle(PublishReply(status, generation="g2"))
    assert losses.counts == {"destroyed": 1}


def test_what_was_counted_travels_with_the_next_batch_once(producer: Producer, losses: Losses) -> None:
    losses.count("dropped", 3)
    add(producer, 1, 1)
    assert [batch.losses for batch in producer.waiting] == [(("dropped", 3),), ()]


# -- idleness -------------------------------------------------------------------------------------------------------


def test_after_long_idleness_the_id_is_fresh_before_redis_can_have_forgotten_it(
    producer: Producer, clock: FakeClock
) -> None:
    add(producer, 2)
    accept(producer, 1)
    before = producer.id
    clock.advance(LIFE_S / 2 + 1)
    add(producer, 2)
    assert producer.id != before
    assert producer.generation == ""
    assert borders(producer) == [(1, 2)]


def test_after_a_shorter_pause_it_is_the_same(producer: Producer, clock: FakeClock) -> None:
    add(producer, 2)
    accept(producer, 1)
    before = producer.id
    clock.advance(LIFE_S / 2 - 1)
    add(producer, 2)
    assert (producer.id, borders(producer)) == (before, [(3, 4)])


def test_while_anything_is_in_doubt_the_id_stays_however_long_it_takes(producer: Producer, clock: FakeClock) -> None:
    add(producer, 2)
    before = producer.id
    clock.advance(3 * LIFE_S)
    add(producer, 2)
    assert (producer.id, borders(producer)) == (before, [(1, 2), (3, 4)])


def test_when_redis_may_have_forgotten_the_id_only_one_batch_may_be_on_its_way(
    producer: Producer, clock: FakeClock
) -> None:
    """Redis takes any batch of a forgotten producer.

    A second one on its way would be taken for the next after a refused first, and the first then for a repeat."""
    seen = []
    add(producer, 1)
    accept(producer, 1)
    seen.append(producer.maybe_forgotten)
    clock.advance(LIFE_S / 2 + 1)
    seen.append(producer.maybe_forgotten)
    add(producer, 1)  # idle: a fresh id
    seen.append(producer.maybe_forgotten)
    clock.advance(LIFE_S / 2 + 1)
    seen.append(producer.maybe_forgotten)
    accept(producer, 1)
    seen.append(producer.maybe_forgotten)
    assert seen == [False, True, False, True, False]


def test_what_is_accepted_after_redis_must_have_forgotten_is_counted_as_uncertain(
    producer: Producer, clock: FakeClock, losses: Losses
) -> None:
    add(producer, 2)
    accept(producer, 1)
    add(producer, 3, 2)
    clock.advance(LIFE_S + 1)
    accept(producer, 2)
    assert losses.counts == {"uncertain": 3}  # the first of them told Redis again who it is


def test_silence_is_since_the_last_acceptance(producer: Producer, clock: FakeClock) -> None:
    clock.advance(7)
    assert producer.silent_ms == 7_000
    add(producer, 1)
    accept(producer, 1)
    assert producer.silent_ms == 0


# -- against a server that loses its tail ---------------------------------------------------------------------------


class Server:
    """The state of `publish` about one producer: accepted events, and how many of them survive a crash."""

    def __init__(self) -> None:
        self.accepted: list[bytes] = []

    def publish(self, batch: NumberedBatch) -> PublishReply:
        last = len(self.accepted)
        if batch.last <= last:
            return DUP
        if batch.first != last + 1:
            return gap(last)
        self.accepted += batch.packed.events()
        return OK

    def lose(self, n: int) -> None:
        del self.accepted[max(0, len(self.accepted) - n) :]


@given(
    st.lists(
        st.tuples(st.just("add"), st.integers(1, 5))
        | st.tuples(st.just("send"), st.integers(1, 4))
        | st.tuples(st.just("reply lost"), st.just(0))
        | st.tuples(st.just("crash"), st.integers(1, 4)),
        max_size=40,
    )
)
def test_whatever_is_lost_on_the_way_or_by_a_crash_every_event_arrives_once_and_in_order(
    steps: list[tuple[str, int]],
) -> None:
    clock = FakeClock()
    losses, server = Losses(clock), Server()
    producer = Producer(clock=clock, losses=losses, ring_bytes=1_000_000)
    sent: list[bytes] = []
    batches = 0

    def send(n: int) -> None:
        answers = [server.publish(batch) for batch in list(producer.waiting)[:n]]  # a pipeline
        for answer in answers:
            if not producer.settle(answer):
                return

    for step, n in steps:
        if step == "add":
            events = [b"%d" % (len(sent) + i) for i in range(n)]
            sent += events
            for event in events:
                producer.add(event)
            producer.seal()
            batches += 1
        elif step == "send":
            send(n)
        elif step == "reply lost" and producer.waiting:
            server.publish(producer.waiting[0])
        elif step == "crash":
            # a crash cuts whole entries
            kept = len(server.accepted) - min(n, len(server.accepted))
            edges = [0, *(last for last in _edges(steps) if last <= len(server.accepted))]
            server.lose(len(server.accepted) - max(edge for edge in edges if edge <= kept))
    add(producer, 1, event=b"last")  # a crash shows with the next event
    sent.append(b"last")
    for _ in range(2 * batches + 5):
        send(8)

    assert server.accepted == sent
    assert producer.idle
    assert losses.counts == {}


def _edges(steps: list[tuple[str, int]]) -> list[int]:
    """After how many events each batch ends."""
    edges, total = [], 0
    for step, n in steps:
        if step == "add":
            total += n
            edges.append(total)
    return edges


# -- asked while idle -----------------------------------------------------------------------------------------------


def test_what_redis_turns_out_to_have_lost_waits_again_with_the_same_borders(producer: Producer) -> None:
    add(producer, 3, 2, 4)
    accept(producer, 3)
    assert producer.check_answered(9)
    assert producer.idle
    assert not producer.check_answered(3)
    assert borders(producer) == [(4, 5), (6, 9)]
    assert producer.pending == 6


def test_what_the_ring_no_longer_has_is_counted_and_what_follows_begins_anew(clock: FakeClock, losses: Losses) -> None:
    producer = Producer(clock=clock, losses=losses, ring_bytes=0)
    add(producer, 3, 2)
    accept(producer, 2)
    assert not producer.check_answered(0)
    assert losses.counts == {"lost": 5}
    assert not producer.remembered
    add(producer, 1)
    assert borders(producer) == [(1, 1)]


def test_redis_is_asked_about_an_id_for_as_long_as_it_must_know_it(producer: Producer, clock: FakeClock) -> None:
    found = [producer.remembered]
    add(producer, 1)
    accept(producer, 1)
    found.append(producer.remembered)
    clock.advance(LIFE_S / 2 + 1)
    assert [*found, producer.remembered] == [False, True, False]


def test_the_idle_ask_ever_more_seldom_and_after_an_acknowledgement_soon(producer: Producer, clock: FakeClock) -> None:
    add(producer, 1)
    accept(producer, 1)
    pauses = []
    for _ in range(8):
        pauses.append(producer.check_in_s())
        clock.advance(producer.check_in_s())
        producer.check.sent()
    assert pauses == [1, 2, 4, 8, 16, 32, 60, 60]
    add(producer, 1)
    accept(producer, 1)
    assert producer.check_in_s() == 1


def test_only_an_acknowledgement_makes_sure_and_only_of_its_own_producer(
    producer: Producer, clock: FakeClock, losses: Losses
) -> None:
    other = Producer(clock=clock, losses=losses, ring_bytes=1_000_000)
    for each in (producer, other):
        add(each, 1)
        accept(each, 1)
    clock.advance(3)
    add(other, 1)
    other.settle(gap(0))
    accept(other, 2)
    assert (producer.check_in_s(), other.check_in_s()) == (-2, 1)


def test_who_wants_to_be_sure_has_it_asked_once_and_who_wants_it_later_again(
    producer: Producer, clock: FakeClock
) -> None:
    add(producer, 1)
    accept(producer, 1)
    clock.advance(0.5)
    assert producer.check_in_s(clock.monotonic()) == 0.5  # too young
    clock.advance(0.5)
    producer.check.sent()  # and no answer comes
    clock.advance(0.5)
    wanted_at = clock.monotonic()
    assert producer.check_in_s(wanted_at) == 0
    producer.check.sent()
    assert producer.check_in_s(wanted_at) > 0
    clock.advance(0.5)
    producer.check.sent()
    assert producer.check_answered(1)
    clock.advance(0.5)
    assert producer.check_in_s(clock.monotonic()) > 0


def test_who_sends_does_not_ask(producer: Producer, clock: FakeClock) -> None:
    add(producer, 1)
    accept(producer, 1)
    add(producer, 1)
    clock.advance(10)
    assert producer.check_in_s(clock.monotonic()) == math.inf
