"""Run scenarios through a driver: one event a call with every decision compared, or in batches with the final state."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol, TypeVar

from tests.conformance.compare import differing_fields, state_difference
from tests.conformance.correlation_keys import Key, aggregate_key, event_key
from tests.conformance.driver import Batch, Decision, Driver, StoredEvent
from tests.conformance.model import ModelDriver
from tests.conformance.names import SharedNames, without_suffixes
from tests.conformance.scenario import Scenario, Step

T = TypeVar("T")

#: What one stream entry holds at the most.
MAX_BATCH = 64


class Mode(Protocol):
    """One way to run a scenario. Returns what differs first, or None."""

    def __call__(self, driver: Driver, scenario: Scenario) -> str | None: ...


def run(driver: Driver, scenario: Scenario, mode: Mode) -> str | None:
    """Return the first difference, or None.

    A driver that raises is a difference too, so that the other scenarios run."""
    try:
        return mode(driver, scenario)
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def failures(driver: Driver, scenarios: Iterable[Scenario], mode: Mode | None = None) -> list[str]:
    """The names of those that differ; one event a call unless another *mode* is given."""
    return [scenario.name for scenario in scenarios if run(driver, scenario, mode or one_by_one) is not None]


def one_by_one(driver: Driver, scenario: Scenario) -> str | None:
    """One event a call; the first event decided otherwise than it must be.

    Where two correlation keys have one name, ours may have a suffix: see `SharedNames`.
    """
    names = SharedNames()
    driver.start(scenario.options)
    try:
        for number, step in enumerate(scenario.steps, 1):
            if step.delete:
                driver.delete_all()
                names.emptied()
            got = driver.record(step.at_ms, [step.event])
            if len(got) == 1 and not (step.want.skip or got[0].skip):
                got = [names.unsuffixed(_key(scenario, step), step.want, got[0])]
            if wrong := _wrong(step.want, got):
                return f"event {number} (t_ms {step.t_ms}): {'; '.join(wrong)}"
    finally:
        driver.close()
    return None


class InBatches:
    """Several events a call, cut at random borders, twice: the final state is compared.

    First every event keeps its own clock, and the state follows from the scenario's decisions. Then whole batches
    share the clock of their last event, as entries of a stream do, and the state is what the model comes to when it
    gets the same events at the same clocks one by one.
    """

    def __init__(self, seed: int = 0) -> None:
        self._seed = seed

    def __call__(self, driver: Driver, scenario: Scenario) -> str | None:
        borders = random.Random(f"{self._seed} {scenario.name}")
        calls = [[_batches_of_equal_clock(call) for call in cut(part, borders)] for part in _parts(scenario.steps)]
        singles = [[[Batch(step.at_ms, [step.event])] for step in part] for part in _parts(scenario.steps)]
        shared = _final_state_of_model(scenario, singles)[1]
        want = without_suffixes(state_after(scenario), shared)
        if difference := state_difference(want, without_suffixes(_final_state(driver, scenario, calls), shared)):
            return f"own clocks: {difference}"
        calls = [
            [[_batch(batch) for batch in cut(call, borders)] for call in cut(part, borders, longest=4 * MAX_BATCH)]
            for part in _parts(scenario.steps)
        ]
        singles = [[[Batch(at, [e])] for call in part for at, events in call for e in events] for part in calls]
        model, shared = _final_state_of_model(scenario, singles)
        want, got = model, _final_state(driver, scenario, calls)
        if difference := state_difference(without_suffixes(want, shared), without_suffixes(got, shared)):
            return f"shared clocks: {difference}"
        return None


def cut(steps: Sequence[T], borders: random.Random, longest: int = MAX_BATCH) -> Iterator[Sequence[T]]:
    """*steps* in pieces of 1 to *longest*, small ones as likely as large ones."""
    start = 0
    while start < len(steps):
        length = min(longest, int(2 ** borders.uniform(0, longest.bit_length())))
        yield steps[start : start + length]
        start += length


def state_after(scenario: Scenario) -> list[StoredEvent]:
    """The final state its decisions add up to: one object per correlation key, as last written."""
    state: dict[tuple[str, ...], StoredEvent] = {}
    for step in scenario.steps:
        if step.delete:
            state.clear()
        if not step.want.skip:
            want = step.want
            state[_key(scenario, step)] = StoredEvent(
                want.namespace, want.name, want.count, want.message, want.first, want.last
            )
    return list(state.values())


def _key(scenario: Scenario, step: Step) -> Key:
    if step.want.aggregated:
        return aggregate_key(step.event, scenario.options.aggregate_key)
    return event_key(step.event)


def _final_state_of_model(
    scenario: Scenario, parts: Sequence[Sequence[Sequence[Batch]]]
) -> tuple[list[StoredEvent], set[tuple[str, str]]]:
    """The model's, and the names that several of its keys had."""
    driver = ModelDriver()
    return _final_state(driver, scenario, parts), driver.shared_names


def _final_state(driver: Driver, scenario: Scenario, parts: Sequence[Sequence[Sequence[Batch]]]) -> list[StoredEvent]:
    """The state after *parts*, each of them calls, each of them batches; the store is emptied between parts."""
    driver.start(scenario.options)
    try:
        for number, part in enumerate(parts):
            if number:
                driver.delete_all()
            for call in part:
                driver.record_batches(call)
        return driver.final_state()
    finally:
        driver.close()


def _parts(steps: Sequence[Step]) -> list[list[Step]]:
    """Cut before every step that empties the store."""
    parts: list[list[Step]] = [[]]
    for step in steps:
        if step.delete:
            parts.append([])
        parts[-1].append(step)
    return parts


def _batches_of_equal_clock(steps: Sequence[Step]) -> list[Batch]:
    batches: list[Batch] = []
    for step in steps:
        if batches and batches[-1].at_ms == step.at_ms:
            batches[-1] = Batch(step.at_ms, [*batches[-1].events, step.event])
        else:
            batches.append(Batch(step.at_ms, [step.event]))
    return batches


def _batch(steps: Sequence[Step]) -> Batch:
    return Batch(steps[-1].at_ms, [step.event for step in steps])


def _wrong(want: Decision, got: Sequence[Decision]) -> list[str]:
    if len(got) != 1:
        return [f"{len(got)} decisions for one event"]
    return differing_fields(want, got[0])
