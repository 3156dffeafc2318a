"""An outcome has the same words each time, and the last line of its standard error is found."""

from __future__ import annotations

import signal

import pytest

from eventbus.util.outcome import LINE_BYTES, Outcome, duration, last_line, signal_name


@pytest.mark.parametrize(
    ("status", "code", "by_signal"), [(0, 0, 0), (3 << 8, 3, 0), (255 << 8, 255, 0), (15, 143, 15), (9 | 0x80, 137, 9)]
)
def test_a_wait_status_is_read_as_shells_do(status: int, code: int, by_signal: int) -> None:
    outcome = Outcome.of_status(status, 0)
    assert (outcome.code, outcome.by_signal, outcome.failed) == (code, by_signal, code != 0)


def test_an_outcome_is_one_sentence() -> None:
    assert str(Outcome(3, 0, 12.9, "no config")) == "exit code 3 after 12s: no config"
    assert str(Outcome(137, 9, 200)) == "ended by SIGKILL after 3m20s"
    assert str(Outcome(0, 0, 0.2, "a warning")) == "exit code 0 after <1s"


def test_runs_of_about_the_same_length_are_said_in_the_same_words() -> None:
    assert duration(0.003) == duration(0.9) == "<1s"
    assert duration(1.01) == duration(1.99) == "1s"


def test_a_signal_without_a_name_has_its_number() -> None:
    assert signal_name(signal.SIGTERM) == "SIGTERM"
    assert signal_name(signal.SIGRTMIN + 6) == f"signal {signal.SIGRTMIN + 6}"


@pytest.mark.parametrize(
    ("output", "line"),
    [
        (b"", ""),
        (b"\n \n\t\n", ""),
        (b"first\nsecond\n", "second"),
        (b"first\nsecond\n\n  \n", "second"),
        (b"no end", "no end"),
        (b"windows\r\n", "windows"),
        (b"10%\r50%\r100%", "100%"),
        (b"10%\r50%\r", "50%"),
        (b"\x1b[1;31merror:\x1b[0m boom\n", "error: boom"),
        (b"\x1b]0;a title\x07text\n", "text"),
        (b"text\n\x1b[0m\x1b[?25h\n", "text"),
        ("größer\n".encode(), "größer"),
        (b"latin \xe4\n", "latin \ufffd"),
        (b"a\x00b\x08c\n", "a\\x00b\\x08c"),
    ],
)
def test_the_last_line_with_something_to_read_is_found(output: bytes, line: str) -> None:
    assert last_line(output) == line


def test_a_long_last_line_is_cut() -> None:
    found = last_line(b"x" * 5000)
    assert len(found) == LINE_BYTES
    assert found.endswith("...")
