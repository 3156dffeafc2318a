"""What fails a run in CI although its tests passed."""

from __future__ import annotations

import pytest

from tests.plugins.summary import _also_without_groups, _complaint


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
def test_a_skip_fails_any_run_and_too_few_fail_a_whole_one(
    monkeypatch: pytest.MonkeyPatch, ran: int, skipped: int, whole: bool, fails: bool
) -> None:
    monkeypatch.delenv("EVENTBUS_TEST_SECOND_TRY", raising=False)
    assert bool(_complaint(ran, skipped, whole=whole)) is fails


def test_a_failed_test_of_a_group_is_found_again_by_its_plain_name_too() -> None:
    failed = {"tests/a.py::test[x@y]": True, "tests/a.py::test[x]@redis-7.0": True}
    assert _also_without_groups(failed) == failed | {"tests/a.py::test[x]": True}
