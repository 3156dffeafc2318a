"""An export worker warns when nobody correlates."""

from __future__ import annotations

from eventbus.export.worker import WARN_EVERY_CHECKS, MissingWorkers


def test_one_look_that_finds_no_sink_worker_says_nothing_since_it_may_be_about_to_come_back() -> None:
    looks = MissingWorkers(2)
    assert [looks.add(unfed) for unfed in ([0, 1], [], [0], [1], [], [0, 1], [])] == [""] * 7


def test_a_partition_without_a_sink_worker_at_two_looks_in_a_row_is_told_and_again_after_some() -> None:
    looks = MissingWorkers(2)
    said = [looks.add(unfed) for unfed in [[0, 1], [1], *[[1]] * WARN_EVERY_CHECKS]]
    assert [number for number, text in enumerate(said) if text] == [1, 1 + WARN_EVERY_CHECKS]
    assert said[1].startswith("no sink worker is alive on partition 1: ")


def test_when_there_was_one_again_it_begins_anew() -> None:
    looks = MissingWorkers(1)
    assert [bool(looks.add(unfed)) for unfed in ([0], [0], [], [0], [0])] == [False, True, False, False, True]
