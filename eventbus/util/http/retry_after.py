"""The Retry-After header. Separate from `guarded_http`, because it is read without the HTTP client, too."""

from __future__ import annotations

import time
from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import Final

#: The maximum wait. With a longer Retry-After, the export would not notice in time that the sink is back.
MAX_RETRY_AFTER_S: Final = 600.0


def retry_after_s(header: str | None) -> float | None:
    """Parse a Retry-After header, a number or a date (RFC 9110, 10.2.3), into seconds; None: absent, or neither."""
    if not header:
        return None
    text = header.strip()
    if text.isascii() and text.isdecimal():
        return min(float(text), MAX_RETRY_AFTER_S)
    try:
        moment = parsedate_to_datetime(text)
    except ValueError:
        return None
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return min(max(moment.timestamp() - time.time(), 0.0), MAX_RETRY_AFTER_S)
