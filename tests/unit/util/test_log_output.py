"""log_output.py: the workers' own log, in which nobody else's text makes a line or speaks to a terminal."""

from __future__ import annotations

import logging
import subprocess
import sys

from eventbus.util.log_output import PlainFormatter

EVIL = "one\x1b[31m\n2024-01-01T00:00:00.000Z ERROR forged \u202e"


def formatted(message: str, *, error: Exception | None = None) -> list[str]:
    try:
        if error is not None:
            raise error
    except Exception:
        record = logging.LogRecord("eventbus", logging.ERROR, __file__, 1, message, (), sys.exc_info())
    else:
        record = logging.LogRecord("eventbus", logging.ERROR, __file__, 1, message, (), None)
    return PlainFormatter().format(record).split("\n")


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


def test_what_the_http_client_says_of_each_request_is_not_told() -> None:
    program = """
import logging
from eventbus.util.log_output import log_plainly
log_plainly()
logging.getLogger("httpx2").info("HTTP Request")
logging.getLogger("httpx2").warning("trouble")
logging.getLogger("somebody.else").info("hello")
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=50, check=True)
    assert [line.partition("Z ")[2] for line in done.stderr.splitlines()] == ["WARNING trouble", "INFO hello"]
