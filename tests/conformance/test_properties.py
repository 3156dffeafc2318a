"""Any interleaving of events, clocks, deletions and calls: the function on Redis does what the model of the rules does.

EVENTBUS_TEST_EXAMPLES=2000 makes a long run of it.
"""

from __future__ import annotations

import os
import random
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from eventbus.model.event import Event, EventSource, ObjectMeta, ObjectReference
from eventbus.settings import AggregateKey, Options, SpamKey
from tests.conformance.compare import state_difference
from tests.conformance.driver import Batch, Decision, StoredEvent
from tests.conformance.model import ModelDriver, time_of
from tests.conformance.redis_driver import RedisDriver
from tests.conformance.runner import cut
from tests.conformance.scenario import START_MS, complete

EXAMPLES = int(os.environ.get("EVENTBUS_TEST_EXAMPLES", "10"))

options = st.builds(
    Options,
    burst=st.integers(0, 6),
    qps=st.sampled_from([1 / 300, 0.01, 0.07, 0.1, 0]),
    max_events=st.integers(1, 4),
    max_interval_s=st.sampled_from([1, 20, 60, 600]),
    aggregate_key=st.sampled_from(AggregateKey),
    aggregate_message=st.sampled_from(["(combined from similar events): ", ""]),
    spam_key=st.sampled_from(SpamKey),
    exempt_namespaces=st.sampled_from([(), ("kube-system",)]),
    exempt_types=st.sampled_from([(), ("Warning",)]),
    exempt_reasons=st.sampled_from([(), ("Pulled", "Killed")]),
    report_suppressed=st.just(False),
)

#: Few values of everything, so that events meet.
_own_times = st.none() | st.integers(START_MS - 10**7, START_MS + 10**7).map(time_of)
_largest = 2**31 - 1
plain_events = st.builds(
    Event,
    metadata=st.builds(
        ObjectMeta,
        name=st.sampled_from(["", "", "", "own.name", "a.1"]),
        namespace=st.sampled_from(["", "", "", "elsewhere", "kube-system"]),
    ),
    involved_object=st.builds(
        ObjectReference,
        kind=st.sampled_from(["Pod", "Node"]),
        namespace=st.sampled_from(["default", "kube-system", ""]),
        name=st.sampled_from(["a", "b"]),
        uid=st.sampled_from(["", "", "u1"]),
        api_version=st.sampled_from(["", "", "v1"]),
        resource_version=st.sampled_from(["", "7"]),
        field_path=st.sampled_from(["", "", "spec.containers{web}"]),
    ),
    reason=st.sampled_from(["Pulled", "Failed"]),
    message=st.sampled_from(["", "m1", "m2", "m3", "m4", "m5", "ü"]),
    source=st.builds(
        EventSource,
        component=st.sampled_from(["kubelet", "kubelet", "scheduler"]),
        host=st.sampled_from(["", "", "node-1"]),
    ),
    reporting_component=st.sampled_from(["", "", "other"]),
    reporting_instance=st.sampled_from(["", "", "other-0"]),
    type=st.sampled_from(["Normal", "Warning"]),
    count=st.sampled_from([1, 1, 1, 1, 1, 1, 0, 7, -1, -2, -5, _largest, _largest - 1, -_largest - 1]),
    first_timestamp=_own_times,
    last_timestamp=_own_times,
)
#: Around the intervals and refills there are, to the millisecond, and back.
_borders = [20_000, 60_000, 600_000, 10_000, 14_286, 100_000, 300_000, 1_200_000]
clock_jumps = (
    st.sampled_from([0, 0, 0, 1, 1_000])
    | st.sampled_from(_borders).flatmap(lambda ms: st.sampled_from([ms - 1, ms, ms + 1, -ms]))
    | st.integers(-2_000_000, 2_000_000)
)
calls = st.lists(st.tuples(clock_jumps, st.lists(plain_events, min_size=1, max_size=8)), min_size=1, max_size=4)


class Correlation(RuleBasedStateMachine):
    """The model and the function get the same; after every step they must have decided and stored the same."""

    driver: RedisDriver

    @initialize(options=options)
    def begin(self, options: Options) -> None:
        self.model = ModelDriver()
        self.model.start(options)
        self.driver.start(options)
        self.now_ms, self.sent, self.most_messages = START_MS, 0, options.max_events - 1

    @rule(options=options)
    def change_options(self, options: Options) -> None:
        self.driver.change_options(options)
        self.model.correlator.options = options
        self.most_messages = max(self.most_messages, options.max_events - 1)

    @rule(call=calls)
    def record(self, call: list[tuple[int, list[Event]]]) -> None:
        batches = []
        for jump, events in call:
            self.now_ms += jump
            batches.append(Batch(self.now_ms, [self.recorded(event) for event in events]))
        got, want = self.driver.record_batches(batches), self.model.record_batches(batches)
        assert [outcome(decision) for decision in got] == [outcome(decision) for decision in want]

    @rule(call=calls)
    def record_one_by_one(self, call: list[tuple[int, list[Event]]]) -> None:
        for jump, events in call:
            self.now_ms += jump
            for event in map(self.recorded, events):
                (got,), (want,) = self.driver.record(self.now_ms, [event]), self.model.record(self.now_ms, [event])
                # A name that was taken gets a suffix; which one is nobody's rule, and the states are compared too.
                assert msgspec.structs.replace(got, name="") == msgspec.structs.replace(want, name="")

    @precondition(lambda self: self.model.correlator.store)
    @rule(name=st.sampled_from(["a", "b"]))
    def delete_about_an_object(self, name: str) -> None:
        self.driver.delete_about(name)
        store = self.model.correlator.store
        self.model.correlator.store = {k: e for k, e in store.items() if e.involved_object.name != name}

    @precondition(lambda self: self.model.correlator.store)
    @rule()
    def let_every_event_expire(self) -> None:
        self.driver.expire_all()
        self.model.delete_all()

    @invariant()
    def states_are_the_same(self) -> None:
        want, got = self.model.final_state(), self.driver.final_state()
        assert len({(one.namespace, one.name) for one in got}) == len(got), "two objects of one name"
        difference = state_difference(map(without_suffix, want), map(without_suffix, got))
        assert difference is None, difference

    @invariant()
    def sets_are_bounded(self) -> None:
        assert max(self.driver.messages_of_sets(), default=0) <= self.most_messages

    def recorded(self, event: Event) -> Event:
        """With a name of its own, as a recorder gives it, unless it has one; at the clock."""
        self.sent += 1
        name = event.metadata.name or f"{event.involved_object.name}.{self.sent}"
        metadata = msgspec.structs.replace(event.metadata, name=name)
        return complete(msgspec.structs.replace(event, metadata=metadata), self.now_ms)

    def teardown(self) -> None:
        self.driver.close()


def without_suffix(stored: StoredEvent) -> StoredEvent:
    """Cut off the suffix of a name that was taken: only that it differs is a rule. Here names have one dot."""
    return msgspec.structs.replace(stored, name=".".join(stored.name.split(".")[:2]))


def outcome(decision: Decision) -> tuple[Any, ...]:
    return ("skip",) if decision.skip else (decision.action, decision.aggregated)


@pytest.mark.hypothesis  # `make test-long` chooses by that
@pytest.mark.timeout(600)  # to shrink a failing example takes its time
def test_function_does_what_the_model_does_whatever_happens(embedded_url: str) -> None:
    class OnThisServer(Correlation):
        driver = RedisDriver(embedded_url)

    run_state_machine_as_test(
        OnThisServer,
        settings=settings(
            max_examples=EXAMPLES,
            stateful_step_count=12,
            deadline=None,
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
        ),
    )


@given(
    messages=st.lists(st.tuples(st.sampled_from(["Pulled", "Failed"]), st.integers(0, 9)), max_size=60),
    max_events=st.integers(1, 6),
    borders=st.randoms(use_true_random=False),
)
@settings(max_examples=EXAMPLES, deadline=None)
def test_repeats_above_the_threshold_are_counted_once_in_their_own_event_or_in_the_aggregate(
    embedded_url: str, messages: list[tuple[str, int]], max_events: int, borders: random.Random
) -> None:
    """In client-go it is random which of them fold; with us it is every message but the first ones."""
    driver = RedisDriver(embedded_url)
    driver.start(Options(burst=1_000, max_events=max_events, report_suppressed=False))
    try:
        reference = ObjectReference(kind="Pod", name="a")
        events = [
            Event(
                metadata=ObjectMeta(name=f"{reason}.{n}"),
                involved_object=reference,
                reason=reason,
                message=str(message),
                count=1,
            )
            for n, (reason, message) in enumerate(messages)
        ]
        for part in cut(events, borders, longest=8):
            driver.record_batches([Batch(START_MS, [complete(event, START_MS) for event in part])])
        state = driver.final_state()
        assert sum(stored.count for stored in state) == len(messages)
        for reason in ("Pulled", "Failed"):
            first = list(dict.fromkeys(str(message) for why, message in messages if why == reason))[: max_events - 1]
            plain = {stored.message: stored.count for stored in state if stored.name.startswith(f"{reason}.")}
            assert plain == {message: messages.count((reason, int(message))) for message in first}
        assert max(driver.messages_of_sets(), default=0) <= max_events - 1
    finally:
        driver.close()
