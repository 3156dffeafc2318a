"""The model with one rule broken in each: the runner must find every one of them."""

from __future__ import annotations

import msgspec

from eventbus.model.event import Event
from eventbus.settings import Options, SpamKey
from tests.conformance.correlation_keys import Key
from tests.conformance.driver import Decision
from tests.conformance.model import Correlator, Similar


class ThresholdOffByOne(Correlator):
    def is_full(self, messages: set[str]) -> bool:
        return len(messages) > self.options.max_events


class IntervalIsOverAtOnce(Correlator):
    def starts_anew(self, at_ms: int, similar: Similar) -> bool:
        return at_ms - similar.last_ms >= self.options.max_interval_s * 1000


class TypeNotInTheSpamKey(Correlator):
    def __init__(self, options: Options) -> None:
        super().__init__(msgspec.structs.replace(options, spam_key=SpamKey.OBJECT))


class CountForgottenWhileFiltered(Correlator):
    def record(self, at_ms: int, event: Event) -> Decision:
        before = dict(self.seen)
        decision = super().record(at_ms, event)
        if decision.skip:
            self.seen = before
        return decision


class TtlDecides(Correlator):
    """The record is there until Redis drops it, after twice the interval, and nobody looks at its time."""

    def starts_anew(self, at_ms: int, similar: Similar) -> bool:
        return at_ms - similar.last_ms >= 2 * self.options.max_interval_s * 1000


class WallClockTtlDecides(Correlator):
    """The same with the server's clock, which knows nothing of the events' times."""

    def starts_anew(self, at_ms: int, similar: Similar) -> bool:
        return False


class OldestMessageDropped(Correlator):
    """One of the local keys that were there goes, as in client-go, instead of the newcomer."""

    def aggregate(self, at_ms: int, event: Event) -> tuple[Key, Event, bool]:
        key, combined, aggregated = super().aggregate(at_ms, event)
        if aggregated and (messages := self.similar[self.spam_key(event), key].messages):
            messages.remove(min(messages))
            messages.add(event.message)
        return key, combined, aggregated


class SignedCounts(Correlator):
    def record(self, at_ms: int, event: Event) -> Decision:
        decision = super().record(at_ms, event)
        self.seen = {key: seen for key, seen in self.seen.items() if seen.count > 0}
        return decision


#: Found by the recorded vectors as well as by our own tables.
BROKEN = [
    ThresholdOffByOne,
    IntervalIsOverAtOnce,
    TypeNotInTheSpamKey,
    CountForgottenWhileFiltered,
    TtlDecides,
    WallClockTtlDecides,
    SignedCounts,
]
