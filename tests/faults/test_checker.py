"""The judge himself: everything he is there to find, found in a made-up stream, and nothing where nothing is wrong."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import msgspec
import pytest

from eventbus.broker.build import library
from tests.faults.breakages import LUA, broken_library
from tests.faults.checker import Accepted, Found, Verdict, compare
from tests.faults.table import Row, format_rows
from tests.waiting import LOOK_S, reached_while_falling

pytestmark = pytest.mark.short

#: p0 has recorded six events about two objects, in two batches, and ended; p1 was killed over its second batch.
STREAM: list[Found] = [
    *((f"p0-{n}", f"aa:{n + 1}", f"p0-{n % 2}") for n in range(6)),
    *((f"p1-{n}", f"bb:{n + 1}", f"p1-{n % 2}") for n in range(5)),
]


@pytest.fixture
def accepted(tmp_path: Path) -> Accepted:
    (tmp_path / "f1-p0.accepted").write_text("aa 1 OK p0-0 p0-1 p0-2\naa 4 DUP p0-3 p0-4 p0-5\n")
    (tmp_path / "f1-p0.end").write_text(json.dumps({"recorded_by": {"p0": 6}}))
    (tmp_path / "f1-p1.accepted").write_text("bb 1 OK p1-0 p1-1\nbb 3 O")
    return Accepted(sorted(tmp_path.glob("*.accepted")))


def counts(stream: list[Found]) -> Counter[str]:
    return Counter(about for _, _, about in stream)


def harm(verdict: Verdict) -> dict[str, int]:
    names = ("lost", "duplicate", "phantom", "disorder", "missing", "double")
    return {name: n for name in names if (n := getattr(verdict, name))}


def test_nothing_is_found_where_nothing_is_wrong(accepted: Accepted) -> None:
    verdict = compare(accepted, STREAM, counts(STREAM))
    assert (harm(verdict), verdict.clean, verdict.accepted, verdict.events) == ({}, True, 8, 11)


@pytest.mark.parametrize(
    ("stream", "found"),
    [
        (STREAM[1:], {"lost": 1}),
        (STREAM[:-1], {}),
        ([*STREAM, STREAM[5]], {"duplicate": 1}),
        ([*STREAM, STREAM[10]], {"duplicate": 1}),
        ([*STREAM, ("p0-6", "aa:7", "p0-0")], {"phantom": 1}),
        ([*STREAM, ("p0-999999999", "aa:7", "p0-1")], {"phantom": 1}),
        ([*STREAM, ("p2-0", "cc:1", "p2-0")], {"phantom": 1}),
        ([*STREAM, ("nonsense", "cc:1", "p0-0")], {"phantom": 1}),
        ([*STREAM, ("p1-7", "bb:8", "p0-1")], {"phantom": 1}),
        ([*STREAM, ("p1-7", "bb:8", "p1-1")], {}),
        ([("p0-0", "aa:9", "p0-0"), *STREAM[1:]], {"lost": 1, "phantom": 1}),
        ([STREAM[2], *STREAM[:2], *STREAM[3:]], {"disorder": 1}),
        ([STREAM[1], STREAM[0], *STREAM[2:]], {}),
    ],
    ids=[
        "an acknowledged one is lost",
        "one that was not acknowledged is lost",
        "one is twice there",
        "one that was not acknowledged is twice there",
        "behind the last one that was recorded",
        "far behind it",
        "of an unknown producer",
        "of nobody",
        "about another producer's object",
        "of a killed producer, which heard no answer",
        "under another uid than was acknowledged",
        "behind a later one about the same object",
        "behind a later one about another object",
    ],
)
def test_what_is_wrong_with_a_stream_is_found(accepted: Accepted, stream: list[Found], found: dict[str, int]) -> None:
    assert harm(compare(accepted, stream, None)) == found


def test_what_was_sent_again_under_a_fresh_number_may_have_either(tmp_path: Path) -> None:
    (tmp_path / "f1-p0.accepted").write_text("aa 1 OK p0-0\ncc 1 OK p0-0\n")
    accepted = Accepted([tmp_path / "f1-p0.accepted"])
    for uid in ("aa:1", "cc:1"):
        assert harm(compare(accepted, [("p0-0", uid, "p0-0")], None)) == {}


@pytest.mark.parametrize(
    ("counted", "found"),
    [
        ({"p0-0": 3, "p0-1": 3, "p1-0": 3, "p1-1": 1}, {"missing": 1}),
        ({"p0-0": 3, "p0-1": 4, "p1-0": 3, "p1-1": 2}, {"double": 1}),
        ({"p0-0": 2, "p0-1": 4, "p1-0": 3, "p1-1": 2}, {"missing": 1, "double": 1}),
        ({"p0-0": 3, "p0-1": 3, "p1-0": 3, "p1-1": 2, "p9-0": 1}, {"double": 1}),
        ({}, {"missing": 11}),
    ],
)
def test_what_is_wrong_with_the_store_is_found(
    accepted: Accepted, counted: dict[str, int], found: dict[str, int]
) -> None:
    assert harm(compare(accepted, STREAM, Counter(counted))) == found


def test_without_a_stream_the_store_is_compared_with_what_was_acknowledged(tmp_path: Path) -> None:
    (tmp_path / "f1-p0.accepted").write_text("aa 1 OK p0-0 p0-1 p0-20\n")
    accepted = Accepted([tmp_path / "f1-p0.accepted"])  # p0-20 is about the same of the twenty objects as p0-0
    assert harm(compare(accepted, None, Counter({"p0-0": 2, "p0-1": 1}))) == {}
    assert harm(compare(accepted, None, Counter({"p0-0": 1, "p0-1": 2}))) == {"missing": 1, "double": 1}


@pytest.mark.parametrize("kind", ["lost", "duplicate", "phantom", "disorder", "missing", "double"])
def test_a_verdict_is_clean_without_any_of_it(kind: str) -> None:
    assert not msgspec.structs.replace(Verdict(), **{kind: 1}).clean


def test_what_was_told_is_no_longer_missing() -> None:
    verdict = Verdict(missing=5)
    verdict.tell(5)
    assert (verdict.clean, verdict.told) == (True, 5)


def test_the_table_sums_up_runs_and_shows_no_figure_that_was_not_measured() -> None:
    rows = [Row("7 b", 1, 10), Row("7 a", 1, 10, recovery_s=0.5), Row("7 a", 1, 5, 1, recovery_s=2.0)]
    lines = [[cell.strip() for cell in line.split("|")[1:-1]] for line in format_rows(rows).splitlines()]
    assert lines[2:] == [["7 a", "2", "15", "1", "0", "0", "2.0", "-"], ["7 b", "1", "10", "0", "0", "0", "-", "-"]]


#: The judge has so many looks in which nothing becomes less.
STILL = 3 * LOOK_S


@pytest.mark.parametrize(
    ("left", "settles"),
    [
        ([*range(20, 0, -1), 0], True),
        ([5, 5, 5, 4, 4, 4, 3, 3, 0], True),
        ([5, 5, 5, 5, 5, 0], False),
        ([5, 4, 6, 5, 4, 6, 5, 4, 0], False),
    ],
    ids=["falls slowly", "stands still for a while", "stands still", "goes up and down"],
)
def test_what_waits_is_waited_for_as_long_as_it_becomes_less(left: list[int], settles: bool) -> None:
    looks = iter(left)
    now = left[0]

    def look() -> int:
        nonlocal now
        now = next(looks)
        return now

    assert reached_while_falling(lambda: now == 0, look, STILL) is settles


def test_a_server_that_is_away_for_a_look_is_no_end_of_the_wait() -> None:
    answers = iter([5, None, None, 4, None, 0])
    now = 5

    def look() -> int:
        nonlocal now
        answer = next(answers)
        if answer is None:
            raise ConnectionError
        now = answer
        return now

    assert reached_while_falling(lambda: now == 0, look, STILL, (ConnectionError,))


@pytest.mark.parametrize("name", LUA)
def test_a_control_still_finds_the_line_that_it_breaks(name: str) -> None:
    assert broken_library(name) != library()
