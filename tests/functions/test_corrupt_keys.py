"""Somebody else has written something into a key of the bus: another type, bytes that nobody can read.

Either work stops before anything is done, in words that name the key, and goes on when the key is right again; or it
goes round it. With a string it goes round always, since what has another type is a string again at the next write.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from tests.functions.breaking import Answer, Breaker, Refusal, breakable_server
from tests.functions.corrupting import Corruption, CorruptKey, corrupt
from tests.functions.picture import balance
from tests.functions.stories import FAULTS, End, Others, Story, everybody_else, tell
from tests.functions.write_cases import CASES, Case
from tests.thin import thin

#: Beginnings of the keys of a partition and their types, the longest first.
KINDS = {
    "incoming:meta": "hash",
    "incoming": "stream",
    "producer:": "hash",
    "corr:": "string",
    "object:events:": "string",
    "object:": "string",
    "index:name:": "zset",
    "index:object": "zset",
    "index:expiry": "zset",
    "index:forget": "zset",
    "index:refresh": "zset",
    "occurrences:": "hash",
    "changes:": "stream",
    "version:": "string",
    "note:": "string",
    "meta": "hash",
    "suppressed": "hash",
    "spoiled": "hash",
    "workers": "hash",
    "builds": "hash",
    "attempts:": "hash",
    "dead": "stream",
    "checkpoints": "stream",
    "exported:": "string",
    "export:": "hash",
    "later:": "zset",
    "index:notify": "zset",
    "notify:": "string",
    "notify": "hash",
}
#: Keys whose names hold when something began, and are others in the next story.
BORN = re.compile(rb"\d{16}")


@pytest.fixture(scope="module")
def breaker() -> Iterator[Breaker]:
    with tempfile.TemporaryDirectory(prefix="eb") as folder, breakable_server(Path(folder)) as found:
        yield found


@pytest.fixture(scope="module")
def ends(breaker: Breaker) -> EndOf:
    return EndOf(breaker)


class EndOf:
    """The undisturbed story of each case, told once."""

    def __init__(self, breaker: Breaker) -> None:
        self._breaker = breaker
        self._told: dict[str, End] = {}

    def __call__(self, case: Case) -> End:
        if str(case) not in self._told:
            self._told[str(case)] = tell(self._breaker, case, others_of(case))
        return self._told[str(case)]


def others_of(case: Case) -> Others | None:
    """Return the others that work meanwhile."""
    return None if case.alone else everybody_else


def goes_round(key: bytes) -> bool:
    """Return True if work goes round what is not ours there. A note is what is left to do: it cannot be missing."""
    return KINDS[kind_of(key)] == "string" and kind_of(key) != "note:"


def kind_of(key: bytes) -> str:
    """The beginning in KINDS."""
    return next(start for start in KINDS if key.decode().startswith(start))


def keys_of(end: End) -> list[bytes]:
    """Return the keys that the function of a case looks at: the first and the last of each kind."""
    found: dict[str, list[bytes]] = {}
    for key in sorted({key for one in end.executed for key in one.keys if not BORN.search(key)}):
        found.setdefault(kind_of(key), []).append(key)
    return [key for keys in found.values() for key in dict.fromkeys((keys[0], keys[-1]))]


def corruptions_of(key: bytes) -> Sequence[Corruption]:
    """Another type; of a string also other bytes."""
    strings = (Corruption.LIST, Corruption.GARBAGE, Corruption.OTHER_FORM)
    return strings if KINDS[kind_of(key)] == "string" else (Corruption.STRING,)


@pytest.mark.volume
def test_every_kind_of_key_is_corrupt_in_some_story(ends: EndOf) -> None:
    # `spoiled` is written only if a key is corrupt.
    assert {kind_of(key) for case in CASES for key in keys_of(ends(case))} == set(KINDS) - {"exported:", "spoiled"}


#: What every run tries: the first case of the functions that write most.
FEW = frozenset({"correlate_and_store", "put", "publish"})
FIRST = {case.verb: str(case) for case in reversed(CASES)}
SOME = thin(CASES, lambda case: case.verb in FEW and FIRST[case.verb] == str(case))


@pytest.mark.parametrize("case", SOME, ids=str)
def test_a_key_that_is_corrupt_for_a_while_costs_nothing(breaker: Breaker, ends: EndOf, case: Case) -> None:
    end, wrong = ends(case), []
    for key in keys_of(end):
        for how in corruptions_of(key):
            wrong += [
                f"{key.decode()} corrupted by {how}: {line}"
                for line in corrupt_for_a_while(breaker, case, key, how, end)
            ]
    assert not wrong, "\n".join(wrong)


def corrupt_for_a_while(breaker: Breaker, case: Case, key: bytes, how: Corruption, end: End) -> list[str]:
    with Story(breaker, case, others_of(case)) as story:
        damaged = corrupt(story.partition.admin, story.partition.keys.root + key, how)
        # A reader who lists meanwhile cannot see what nobody can read, and nothing tells him when it is right again.
        story.is_read = KINDS[kind_of(key)] != "string"
        wrong = stops_or_goes_round(breaker, story, case, damaged)
        story.others()
        story.attempt_again()
        stopped = story.error is not None
        still, story.is_read = damaged.put_right(), True
        story.attempt_again()
        if stopped and any(story.partition.admin.scan_iter(match=story.partition.keys.note_of("*"), count=1000)):
            wrong.append("it stopped when it had begun")
        try:
            story.end()
        except FAULTS as error:
            return [*wrong, f"work does not go on: {error}"]
        # Where it was gone round, or written over, what hangs on it may differ, and nothing else.
        same = still and (stopped or KINDS[kind_of(key)] != "string")
        return wrong + (story.not_as(end) if same else story.look()[1])


def stops_or_goes_round(breaker: Breaker, story: Story, case: Case, damaged: CorruptKey) -> list[str]:
    """Attempt it. A line if it stops in words that do not name the key."""
    breaker.executed()
    error = story.attempt()
    called = any(one.function == case.verb for one in breaker.executed())
    if error and called and damaged.key.decode() not in str(error):
        return [f"the error does not name it: {error}"]
    return []


@pytest.mark.volume
@pytest.mark.parametrize("case", CASES, ids=str)
def test_with_a_string_that_stays_corrupt_work_continues(breaker: Breaker, ends: EndOf, case: Case) -> None:
    end, wrong = ends(case), []
    for key in keys_of(end):
        if not goes_round(key):
            continue
        for how in corruptions_of(key):
            with Story(breaker, case, others_of(case)) as story:
                damaged = corrupt(story.partition.admin, story.partition.keys.root + key, how)
                try:
                    story.attempt()
                    story.end()
                    published, accounted = balance(story.partition)
                except FAULTS as error:
                    wrong.append(f"{key.decode()} corrupted by {how}: work does not go on: {error}")
                    continue
                finally:
                    damaged.put_right()
                if published != accounted and case.balanced:
                    wrong.append(f"{key.decode()} corrupted by {how}: {published} published, {accounted} accounted for")
    assert not wrong, "\n".join(wrong)


#: What every run tries: the first case of those with the most to finish, cut off behind the commit and at the end.
THIN = {
    "correlate_and_store: batches of new events",
    "bury: a whole batch",
}


@pytest.mark.parametrize("case", [case for case in CASES if str(case) in THIN], ids=str)
def test_a_key_that_is_corrupt_before_a_note_is_finished_costs_nothing(
    breaker: Breaker, ends: EndOf, case: Case
) -> None:
    end = ends(case)
    wrong = failed_and_corrupt(breaker, case, end, (2, len(end.writes)), lambda key: corruptions_of(key)[-1:])
    assert not wrong, "\n".join(wrong)


@pytest.mark.volume
@pytest.mark.parametrize("case", CASES, ids=str)
def test_any_failed_write_and_any_corrupt_key_after_it_cost_nothing(breaker: Breaker, ends: EndOf, case: Case) -> None:
    end = ends(case)
    wrong = failed_and_corrupt(breaker, case, end, range(1, len(end.writes) + 1), corruptions_of)
    assert not wrong, "\n".join(wrong)


def failed_and_corrupt(
    breaker: Breaker, case: Case, end: End, writes: Sequence[int], corruptions: Callable[[bytes], Sequence[Corruption]]
) -> list[str]:
    """A line for each thing that is wrong when the k-th of the *writes* fails and then a key is damaged, each key."""
    wrong = []
    for k in writes:
        for key in keys_of(end):
            for how in corruptions(key):
                told = refused_and_corrupt(breaker, case, k, key, how, end)
                wrong += [f"{key.decode()} corrupted by {how} after write {k}: {line}" for line in told]
    return wrong


def refused_and_corrupt(breaker: Breaker, case: Case, k: int, key: bytes, how: Corruption, end: End) -> list[str]:
    with Story(breaker, case, others_of(case)) as story:
        breaker.refuse(Refusal(function=case.verb, write=k, answer=Answer.WRONGTYPE))
        story.attempt()
        breaker.allow()
        damaged = corrupt(story.partition.admin, story.partition.keys.root + key, how)
        story.is_read = KINDS[kind_of(key)] != "string"
        story.attempt_again()
        story.others()
        stopped = story.error is not None
        still, story.is_read = damaged.put_right(), True
        story.attempt_again()
        try:
            story.end()
        except FAULTS as error:
            return [f"work does not go on: {error}"]
        # Where it was gone round, or written over, what hangs on it may differ, and nothing else.
        same = still and (stopped or not goes_round(key))
        told = story.not_as(end) if same else story.look()[1]
        # What was renamed away got no new life meanwhile: it has one again when it is used, and is swept in its turn.
        aside = f"{key.decode()} lives for ever" if still else ""
        return [line for line in told if line != aside]
