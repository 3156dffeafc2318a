"""A run in CI fails although its tests passed if some were left out, and every run says so at its end."""

from __future__ import annotations

import pytest

from tests.plugins.summary import NO_ENGINE, _complaint, _left_out


@pytest.mark.parametrize(
    ("ran", "skipped", "whole", "fails"),
    [
        (3, 0, True, False),
        (3, 1, True, True),
        (0, 0, True, True),
        (0, 0, False, False),
        (0, 1, False, True),
    ],
    ids=[
        "everything ran",
        "one was skipped",
        "no container test ran",
        "no container test ran, of some files",
        "one was skipped, of some files",
    ],
)
def test_a_skip_fails_any_run_and_too_few_fail_a_whole_one(ran: int, skipped: int, whole: bool, fails: bool) -> None:
    assert bool(_complaint(ran, skipped, whole=whole)) is fails


def test_without_docker_the_end_is_one_line_that_says_how_to_have_the_tests() -> None:
    (line,) = _left_out({NO_ENGINE: 712})
    assert line.startswith("left out: 712 tests: no Docker engine answers; to have them, ")
    assert "`.ci/container-engine up`" in line


def test_every_other_reason_is_a_line() -> None:
    skipped = {"no redis-server on PATH": 1, NO_ENGINE: 2}
    assert _left_out(skipped)[1:] == ["left out: 1 test: no redis-server on PATH"]
