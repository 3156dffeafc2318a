"""Events as busy components record them."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator

from eventbus.model.encoding.wire import from_microseconds
from eventbus.model.event import Event, EventSource, ObjectMeta, ObjectReference


def all_distinct() -> Iterator[Event]:
    """Every event is the first of its object."""
    number = 0
    while True:
        yield event(f"pod-{number}", "Started container web")
        number += 1


def zipf() -> Iterator[Event]:
    """Ten thousand objects, the n-th as busy as 1/n; each repeats one of five messages."""
    chance = random.Random(1)
    objects = range(10_000)
    weights = [1 / (n + 1) for n in objects]
    while True:
        for number in chance.choices(objects, weights, k=10_000):
            yield event(f"pod-{number}", f"Back-off restarting failed container {chance.randrange(5)}")


def one_hot_object() -> Iterator[Event]:
    """One object repeats one message."""
    while True:
        yield event("pod-0", "Back-off restarting failed container")


def one_object_that_varies() -> Iterator[Event]:
    """One object, each message another: everything folds into one aggregate."""
    number = 0
    while True:
        yield event("pod-0", f"Readiness probe failed: request {number} timed out")
        number += 1


LOADS: dict[str, Callable[[], Iterator[Event]]] = {
    "all distinct": all_distinct,
    "zipf": zipf,
    "one hot object": one_hot_object,
    "one object, all messages distinct": one_object_that_varies,
}


def event(name: str, message: str, reason: str = "BackOff") -> Event:
    """Make an event as a kubelet records it, at the clock."""
    now = time.time_ns()
    moment = from_microseconds(now // 1_000)
    return Event(
        metadata=ObjectMeta(name=f"{name}.{now:x}", namespace="default"),
        involved_object=ObjectReference("Pod", "default", name, f"uid-{name}", "v1"),
        reason=reason,
        message=message,
        type="Warning",
        count=1,
        source=EventSource("kubelet", "node-17"),
        reporting_component="kubelet",
        reporting_instance="node-17",
        first_timestamp=moment,
        last_timestamp=moment,
    )
