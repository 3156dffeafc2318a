"""The worker's own log: plain lines on standard error, so that standard output has only events."""

from __future__ import annotations

import logging
import traceback
from datetime import UTC, datetime
from types import TracebackType
from typing import TypeAlias

from eventbus.util.text import printable

_Info: TypeAlias = tuple[type[BaseException], BaseException, TracebackType | None] | tuple[None, None, None]


class PlainFormatter(logging.Formatter):
    """Formats as `2024-01-01T12:00:00.123Z WARNING text`: one line unless there is a traceback, safe for terminals."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(message)s")

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:
        moment = datetime.fromtimestamp(record.created, UTC).replace(tzinfo=None)
        return moment.isoformat(timespec="milliseconds") + "Z"

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


def log_plainly() -> None:
    """Send everything logged in this process, from INFO up, to standard error; of the HTTP client from WARNING up."""
    handler = logging.StreamHandler()
    handler.setFormatter(PlainFormatter())
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
    # It logs each request, and the Kubernetes sink makes one or more requests for each event.
    logging.getLogger("httpx2").setLevel(logging.WARNING)
