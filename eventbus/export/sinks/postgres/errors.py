"""Translates errors of PostgreSQL for the export loop, by their SQLSTATE (PostgreSQL, appendix A)."""

from __future__ import annotations

from typing import Final

import psycopg

from eventbus.errors import EventRejected, SinkError, SinkUnreachable, Throttled, UnexpectedReply
from eventbus.util.text import cut_bytes, printable

#: This row will never do: data exceptions, broken constraints, program limits (a value too long for an index), RAISE
#: of a trigger. 21: two rows of one batch are the same event, which splitting cures.
_ROW: Final = frozenset({"21", "22", "23", "44", "54", "P0"})
#: Another transaction was in the way; nothing was written.
_BUSY: Final = frozenset({"40", "55"})
#: The server answers, but fails on this row: retried, then a dead letter.
_ODD: Final = frozenset({"XX"})
#: All other classes concern every row: 08 connection, 25 read-only standby, 28 and 42 no permission or no table, 3D no
#: database, 53 out of disk, memory or connections, 57 shut down or statement_timeout, 58 input or output failed.

_PAUSE_S: Final = 0.2


def translate(error: psycopg.Error) -> SinkError:
    """Return the error to raise or, if it concerns only one row (`hits_one_row`), to return as the row's answer.

    It contains no values of a row."""
    text = _describe(error)
    kind = (error.sqlstate or "")[:2]
    if kind in _BUSY:
        return Throttled(text, retry_after_s=_PAUSE_S)
    if kind in _ROW or _is_refused_by_client(error):
        return EventRejected(text)
    if kind in _ODD:
        return UnexpectedReply(text)
    return SinkUnreachable(text)


def hits_one_row(error: SinkError) -> bool:
    """Return True if the others of a batch may be written: the fault is of one row."""
    return isinstance(error, EventRejected | UnexpectedReply)


def _is_refused_by_client(error: psycopg.Error) -> bool:
    return error.sqlstate is None and isinstance(error, psycopg.DataError)


def _describe(error: psycopg.Error) -> str:
    # Only the primary message: detail and context quote the row's values.
    text = error.diag.message_primary or str(error)
    return cut_bytes(printable(f"{error.sqlstate or 'connection'}: {text}"), 300)
