"""The log of workers and commands: levels, formats, and no text from outside forges a line or controls a terminal."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from typing import Any

import pytest

from eventbus.settings import Settings
from eventbus.util.log_output import JsonFormatter, TextFormatter, log_command_to_stderr

EVIL = "one\x1b[31m\n2024-01-01T00:00:00.000Z ERROR forged \u202e"


def formatted(message: str, *, error: Exception | None = None) -> list[str]:
    try:
        if error is not None:
            raise error
    except Exception:
        record = logging.LogRecord("eventbus", logging.ERROR, __file__, 1, message, (), sys.exc_info())
    else:
        record = logging.LogRecord("eventbus", logging.ERROR, __file__, 1, message, (), None)
    return TextFormatter().format(record).split("\n")


def test_a_message_is_one_line_that_no_terminal_obeys() -> None:
    (line,) = formatted(EVIL)
    assert line.endswith(r"ERROR one\x1b[31m\x0a2024-01-01T00:00:00.000Z ERROR forged \u202e")


def test_what_an_exception_says_begins_no_line_of_a_traceback_which_keeps_its_own() -> None:
    lines = formatted("it failed", error=ValueError(EVIL))
    assert lines[1] == "Traceback (most recent call last):"
    assert lines[2].startswith("  File ")
    assert lines[-1] == r"ValueError: one\x1b[31m\x0a2024-01-01T00:00:00.000Z ERROR forged \u202e"
    assert not any("\x1b" in line or line.startswith("2024") for line in lines[1:])


def test_a_chain_of_exceptions_is_told_with_each() -> None:
    error = ValueError("second")
    error.__cause__ = KeyError("first")
    text = "\n".join(formatted("it failed", error=error))
    assert "KeyError: 'first'" in text
    assert "direct cause" in text
    assert "ValueError: second" in text


def json_line(record: logging.LogRecord) -> dict[str, Any]:
    line = JsonFormatter().format(record)
    assert line.isascii()
    assert "\n" not in line
    found: dict[str, Any] = json.loads(line)
    return found


def test_json_has_one_object_a_line_with_any_text_unchanged() -> None:
    record = logging.makeLogRecord(
        {"name": "eventbus", "levelname": "ERROR", "msg": "%s", "args": (EVIL,), "created": 0.5}
    )
    assert json_line(record) == {
        "time": "1970-01-01T00:00:00.500Z",
        "level": "ERROR",
        "logger": "eventbus",
        "message": EVIL,
    }


def test_json_has_the_traceback_and_the_fields_of_a_call() -> None:
    try:
        raise ValueError(EVIL)
    except ValueError:
        record = logging.LogRecord("eventbus", logging.ERROR, __file__, 1, "it \ud800 failed", (), sys.exc_info())
    record.fields = {"user": "admin"}
    found = json_line(record)
    assert found["message"] == "it \N{REPLACEMENT CHARACTER} failed"
    assert found["user"] == "admin"
    assert found["exception"].startswith("Traceback (most recent call last):\n")


def logged(**settings: Any) -> list[str]:
    """Return what a process with *settings* logs of a few messages."""
    program = f"""
import logging
from eventbus.settings import Settings
from eventbus.util.log_output import log_to_stderr
log_to_stderr(Settings.from_environ({settings!r}))
for level in ("debug", "info", "warning", "error"):
    getattr(logging.getLogger("eventbus.part"), level)(level)
    getattr(logging.getLogger("other"), level)("other " + level)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=50, check=True)
    return done.stderr.splitlines()


@pytest.mark.parametrize(
    ("level", "expected"),
    [
        ("", ["info", "other info", "warning", "other warning", "error", "other error"]),
        ("DEBUG", ["debug", "info", "other info", "warning", "other warning", "error", "other error"]),
        ("warning", ["warning", "other warning", "error", "other error"]),
        ("error", ["error", "other error"]),
    ],
)
def test_the_level_is_that_of_the_setting(level: str, expected: list[str]) -> None:
    lines = logged(EVENTBUS_LOG_LEVEL=level, EVENTBUS_LOG_FORMAT="json")
    assert [json.loads(line)["message"] for line in lines] == expected


def test_text_is_the_default_format() -> None:
    assert [line.partition("Z ")[2] for line in logged(EVENTBUS_LOG_LEVEL="error")] == [
        "ERROR error",
        "ERROR other error",
    ]


def test_a_command_logs_warnings_with_its_name(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    logger = logging.getLogger("eventbus")
    for name, value in (("handlers", []), ("propagate", True), ("level", logging.NOTSET)):
        monkeypatch.setattr(logger, name, value)
    log_command_to_stderr(Settings(), "eventbus heartbeat")
    logger.info("connected")
    logger.warning("no answer\x1b")
    assert capsys.readouterr().err == "eventbus heartbeat: no answer\\x1b\n"


def test_what_the_http_client_says_of_each_request_is_not_told() -> None:
    program = """
import logging
from eventbus.settings import Settings
from eventbus.util.log_output import log_to_stderr
log_to_stderr(Settings())
logging.getLogger("httpx2").info("HTTP Request")
logging.getLogger("httpx2").warning("trouble")
logging.getLogger("somebody.else").info("hello")
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=50, check=True)
    assert [line.partition("Z ")[2] for line in done.stderr.splitlines()] == ["WARNING trouble", "INFO hello"]
