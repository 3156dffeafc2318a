"""Writes the log of workers and commands to standard error, as text or JSON. Standard output has only results."""

from __future__ import annotations

import json
import logging
import traceback
from datetime import UTC, datetime
from types import TracebackType
from typing import TypeAlias

from eventbus.settings import LogFormat, Settings
from eventbus.util.text import printable, repair

_Info: TypeAlias = tuple[type[BaseException], BaseException, TracebackType | None] | tuple[None, None, None]


class TextFormatter(logging.Formatter):
    """Formats as `2024-01-01T12:00:00.123Z WARNING text`: one line unless there is a traceback, safe for terminals."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(message)s")

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:
        return _time(record)

    def formatMessage(self, record: logging.LogRecord) -> str:
        record.message = printable(record.message)
        return super().formatMessage(record)

    def formatException(self, ei: _Info) -> str:
        """Format a traceback: keep its own newlines, but escape those in an exception's text."""
        lines: list[str] = []
        for part in traceback.TracebackException(*ei).format() if ei[0] else ():
            is_frames = part.startswith("  ")
            lines += map(printable, part.rstrip("\n").split("\n") if is_frames else [part.strip("\n")])
        return "\n".join(lines)


class JsonFormatter(logging.Formatter):
    """Formats as one JSON object a line, in ASCII: time, level, logger, message, and, if there is one, exception.

    `extra={"fields": {…}}` of a call adds fields.
    """

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": _time(record),
            "level": record.levelname,
            "logger": record.name,
            "message": repair(record.getMessage()),
        }
        line |= getattr(record, "fields", {})
        if record.exc_info and record.exc_info[0]:
            line["exception"] = repair(self.formatException(record.exc_info))
        return json.dumps(line)


class CommandFormatter(logging.Formatter):
    """Formats as `eventbus heartbeat: text`, for a command that shares standard error with the program that it runs."""

    def __init__(self, command: str) -> None:
        super().__init__()
        self._command = command

    def format(self, record: logging.LogRecord) -> str:
        return f"{self._command}: {printable(record.getMessage())}"


def log_to_stderr(settings: Settings) -> None:
    """Write the log of this process to standard error, by `log_level` (info) and `log_format`.

    With level debug, other libraries still log from INFO up.
    """
    handler = logging.StreamHandler()
    handler.setFormatter(JsonFormatter() if settings.log_format is LogFormat.JSON else TextFormatter())
    level = (settings.log_level or "info").upper()
    logging.basicConfig(level=max(logging.INFO, logging.getLevelName(level)), handlers=[handler], force=True)
    logging.getLogger("eventbus").setLevel(level)
    # They log each request, and the Kubernetes sink makes one or more requests for each event.
    logging.getLogger("httpx2").setLevel(logging.WARNING)
    logging.getLogger("mcp").setLevel(logging.WARNING)


def log_command_to_stderr(settings: Settings, command: str) -> None:
    """Write the log of eventbus to standard error for *command*, by `log_level` (warning) and `log_format`."""
    handler = logging.StreamHandler()
    handler.setFormatter(JsonFormatter() if settings.log_format is LogFormat.JSON else CommandFormatter(command))
    logger = logging.getLogger("eventbus")
    logger.setLevel((settings.log_level or "warning").upper())
    logger.addHandler(handler)
    logger.propagate = False


def _time(record: logging.LogRecord) -> str:
    moment = datetime.fromtimestamp(record.created, UTC).replace(tzinfo=None)
    return moment.isoformat(timespec="milliseconds") + "Z"
