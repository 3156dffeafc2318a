"""A point in time as `kubectl describe` prints it: RFC 1123 with a numeric zone, in the reader's own zone."""

from __future__ import annotations

from datetime import datetime


def local_time(time: datetime) -> str:
    """Format as `Mon, 02 Jan 2006 15:04:05 -0700`; TZ says which zone. *time*: aware."""
    from email.utils import format_datetime  # it takes long to import, and few commands print a date

    return format_datetime(time.astimezone())
