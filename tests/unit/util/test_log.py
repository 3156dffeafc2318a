"""What the application's own code of its log raises ends no thread of ours, and is shown."""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from eventbus.util.log import OURS, log

ROOT = Path(__file__).parents[3]
SOURCES = sorted(path for room in ("eventbus", "workers") for path in (ROOT / room).rglob("*.py"))


class Raises(logging.Filter):
    """A fault in an application's own code of its log."""

    def __init__(self, error: BaseException) -> None:
        super().__init__()
        self._error = error

    def filter(self, _record: logging.LogRecord) -> bool:
        raise self._error


@pytest.fixture
def raises(request: pytest.FixtureRequest) -> Iterator[None]:
    found = Raises(request.param)
    logger = logging.getLogger("eventbus")
    logger.addFilter(found)
    yield
    logger.removeFilter(found)


FAULTS = {"an error": ValueError("no such field"), "an exit": SystemExit(1), "an interrupt": KeyboardInterrupt()}


@pytest.mark.parametrize("raises", FAULTS.values(), ids=FAULTS.keys(), indirect=True)
def test_what_log_code_raises_ends_no_thread_of_ours(raises: None, capsys: pytest.CaptureFixture[str]) -> None:
    went_on = threading.Event()

    def work() -> None:
        log.error("%d events wait", 3)
        went_on.set()

    thread = threading.Thread(target=work, name=f"{OURS}test")
    thread.start()
    thread.join()
    assert went_on.is_set()
    shown = capsys.readouterr().err
    assert "in filter\n" in shown
    assert shown.endswith("eventbus: a line could not be logged: 3 events wait\n")


@pytest.mark.parametrize("raises", [ValueError("no such field")], ids=["an error"], indirect=True)
def test_an_error_of_log_code_does_not_reach_the_application(raises: None, capsys: pytest.CaptureFixture[str]) -> None:
    log.warning("%d%%", 3)
    assert "no such field" in capsys.readouterr().err


@pytest.mark.parametrize("raises", [KeyboardInterrupt()], ids=["an interrupt"], indirect=True)
def test_ctrl_c_in_log_code_reaches_the_application(raises: None) -> None:
    with pytest.raises(KeyboardInterrupt):
        log.error("a line")


@pytest.mark.parametrize("raises", [ValueError("no such field")], ids=["an error"], indirect=True)
def test_what_logging_shall_not_show_is_not_shown(
    raises: None, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging, "raiseExceptions", False)
    log.error("a line")
    assert capsys.readouterr().err == ""


def test_a_factory_of_records_that_raises_is_nothing_to_who_logs(capsys: pytest.CaptureFixture[str]) -> None:
    def broken(*_args: object, **_more: object) -> logging.LogRecord:
        raise ValueError("no record today")

    before = logging.getLogRecordFactory()
    logging.setLogRecordFactory(broken)
    try:
        log.error("a line")
    finally:
        logging.setLogRecordFactory(before)
    assert "no record today" in capsys.readouterr().err


def test_a_line_says_where_it_was_logged_and_keeps_what_is_extra(caplog: pytest.LogCaptureFixture) -> None:
    log.error("lost", extra={"cause": "unsent"})
    try:
        raise ValueError("unforeseen")
    except ValueError:
        log.exception("goes on")
    first, second = caplog.records
    assert (first.name, first.filename, first.funcName) == ("eventbus", "test_log.py", second.funcName)
    assert vars(first)["cause"] == "unsent"
    assert second.exc_info
    assert second.levelno == logging.ERROR


def test_all_rooms_log_by_it() -> None:
    unguarded = re.compile(r"^(?!#)\w+(: \w+)? = logging\.getLogger\(", re.MULTILINE)
    assert [str(path.relative_to(ROOT)) for path in SOURCES if unguarded.search(path.read_text())] == []


def test_all_our_threads_have_names_that_say_so() -> None:
    named = re.compile(r"name=(f?\"eventbus-|name|self\._name|f\"{self\._name}_)")
    begun = [
        (str(path.relative_to(ROOT)), call)
        for path in SOURCES
        for call in re.findall(r"threading\.Thread\((?:[^()]|\([^()]*\))*\)", path.read_text())
    ]
    assert begun
    assert [each for each in begun if not named.search(each[1])] == []
