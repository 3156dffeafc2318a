"""The k-th write of every function fails, for every k: nothing is lost, nothing doubled, and work goes on.

A Redis Function is not a transaction: what it has written when one of its commands is refused stays written.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from eventbus.broker import build as build_module
from eventbus.broker.build import library
from tests.functions.breaking import Answer, Breaker, Executed, Refusal, breakable_server
from tests.functions.partition import Partition
from tests.functions.stories import Others, everybody_else, tell, tell_refused, the_house_is_kept
from tests.functions.write_cases import CASES, Case
from tests.thin import one_of_each, thin

#: Part of the names of an export's keys is when it began.
BORN = re.compile(rb"\d{16}")
#: What every run tries: the first case of each function.
SOME = one_of_each(CASES, lambda case: case.verb)
#: Another build has the same functions, so these stand for all: their notes differ.
HANDED_OVER = {"correlate_and_store": "batches of new events", "bury": "a whole batch", "put": "a new object"}
FEW = thin(CASES, lambda case: case.name == HANDED_OVER.get(case.verb))
OTHER_BUILD = "0123abcd"


@pytest.fixture(scope="module")
def breaker() -> Iterator[Breaker]:
    with tempfile.TemporaryDirectory(prefix="eb") as folder, breakable_server(Path(folder)) as found:
        yield found


def written(write: Executed) -> str:
    return f"{write.command} {b' '.join(write.keys[:1]).decode()}"


def test_every_function_that_writes_has_a_case(breaker: Breaker) -> None:
    # What `finish` writes is what the others have left.
    assert {case.verb for case in CASES} == set(breaker.verbs) - {"finish"}


@pytest.mark.parametrize(
    "lasting", [pytest.param(False, id="once"), pytest.param(True, id="for a while", marks=pytest.mark.volume)]
)
@pytest.mark.parametrize("case", SOME, ids=str)
def test_whichever_write_fails_the_end_is_the_same(breaker: Breaker, case: Case, lasting: bool) -> None:
    end = tell(breaker, case)
    wrong = []
    for k, write in enumerate(end.writes, 1):
        refusal = Refusal(function=case.verb, write=k, answer=Answer.WRONGTYPE, lasting=lasting)
        told = tell_refused(breaker, case, refusal, end)
        wrong += [f"write {k} of {len(end.writes)}, {written(write)}: {line}" for line in told]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("case", FEW, ids=str)
def test_whichever_write_of_one_build_fails_another_build_finishes_it(
    breaker: Breaker, case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Notes of calls that were cut off belong to the format: whichever build comes next does what is left to do."""
    ours = build_module.build()
    breaker.client.function_load(library().replace(ours, OTHER_BUILD), replace=True)

    def hand_over(_partition: Partition) -> None:
        monkeypatch.setattr(build_module, "build", lambda: OTHER_BUILD)

    end = tell(breaker, case)
    wrong = []
    for k, write in enumerate(end.writes, 1):
        refusal = Refusal(function=case.verb, write=k, answer=Answer.WRONGTYPE)
        told = tell_refused(breaker, case, refusal, end, hand_over)
        wrong += [f"write {k} of {len(end.writes)}, {written(write)}: {line}" for line in told]
        assert build_module.build() == OTHER_BUILD
        monkeypatch.setattr(build_module, "build", lambda: ours)
    assert not wrong, "\n".join(wrong)


@pytest.mark.volume
@pytest.mark.parametrize("others", [everybody_else, the_house_is_kept], ids=["everybody", "the housekeeper"])
@pytest.mark.parametrize("case", [case for case in CASES if not case.alone], ids=str)
def test_whichever_write_fails_others_may_go_on_before_it_is_repeated(
    breaker: Breaker, case: Case, others: Others
) -> None:
    end = tell(breaker, case, others)
    wrong = []
    for k, write in enumerate(end.writes, 1):
        refusal = Refusal(function=case.verb, write=k, answer=Answer.WRONGTYPE)
        told = tell_refused(breaker, case, refusal, end, others)
        wrong += [f"write {k} of {len(end.writes)}, {written(write)}: {line}" for line in told]
    assert not wrong, "\n".join(wrong)


@pytest.mark.volume
@pytest.mark.parametrize("lasting", [False, True], ids=["once", "for a while"])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_whichever_right_is_lacking_the_end_is_the_same(breaker: Breaker, case: Case, lasting: bool) -> None:
    end = tell(breaker, case)
    rights = dict.fromkeys((one.command, one.keys[0]) for one in end.writes if not BORN.search(one.keys[0]))
    wrong = []
    for right in rights:
        told = tell_refused(breaker, case, Refusal(function=case.verb, right=right, lasting=lasting), end)
        wrong += [f"{right[0]} {right[1].decode()}: {line}" for line in told]
    assert not wrong, "\n".join(wrong)
