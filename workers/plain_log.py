"""The worker's own log: plain lines on standard error, so that standard output is only the events'."""

from __future__ import annotations

import logging
from datetime import UTC, datetime

from eventbus.text import printable


class PlainFormatter(logging.Formatter):
    """`2024-01-01T12:00:00.123Z WARNING text`: one line unless there is a traceback, and nothing a terminal obeys."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(message)s")

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:
        moment = datetime.fromtimestamp(record.created, UTC).replace(tzinfo=None)
        return moment.isoformat(timespec="milliseconds") + "Z"

    def formatMessage(self, record: logging.LogRecord) -> str:
        record.message = printable(record.message)
        return super().formatMessage(record)


def log_plainly() -> None:
    """Send everything logged in this process, from INFO up, to standard error."""
    handler = logging.StreamHandler()
    handler.setFormatter(PlainFormatter())
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
