"""Sends one statement and waits for its answer later: what psycopg's `execute` does in one go, with a limit of time.

psycopg's pipeline mode is shorter but has no such limit, and leaves what the socket does not take at once until it is
waited for: a statement of 700 KB was then waited for 1.6 times as long, at three times the work.
"""

from __future__ import annotations

import select
import time
from collections.abc import Callable, Sequence
from typing import Any, LiteralString

import psycopg
from psycopg.pq import ExecStatus


def send(
    connection: psycopg.Connection[Any], statement: LiteralString, parameters: Sequence[str], *, timeout_s: float
) -> Callable[[], int]:
    """Send *statement* with its parameters, $1 and on. What is returned waits for its end and returns how many rows.

    Nothing else may be done with the connection in between. Raises: psycopg.Error, both of them.
    """
    line, until = connection.pgconn, time.monotonic() + timeout_s
    line.send_query_params(statement.encode(), [parameter.encode() for parameter in parameters])
    while line.flush():  # some of it is still to be taken
        if _wait(line.socket, select.POLLIN | select.POLLOUT, until) & select.POLLIN:
            line.consume_input()

    def rows_written() -> int:
        until, rows, failed = time.monotonic() + timeout_s, 0, None
        while True:
            while line.is_busy():
                _wait(line.socket, select.POLLIN, until)
                line.consume_input()
            result = line.get_result()
            if result is None:  # only now it can be sent another
                break
            if result.status == ExecStatus.COMMAND_OK:
                rows = result.command_tuples or 0
            else:
                failed = psycopg.errors.error_from_result(result, connection.info.encoding)
        if failed is not None:
            raise failed
        return rows

    return rows_written


def _wait(fileno: int, events: int, until: float) -> int:
    """Wait until one of *events* is there. A frozen server keeps its connections alive: nothing else ends the wait."""
    poll = select.poll()
    poll.register(fileno, events)
    found = poll.poll(max(0.0, until - time.monotonic()) * 1000)
    if not found:
        raise psycopg.OperationalError("no answer in time")
    return found[0][1]


__all__ = ["send"]
