"""Problems that workers report about their own configuration, for `eventbus doctor`: written here, and checked here."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import msgspec

from eventbus.broker.bus import Bus
from eventbus.broker.connection.connect import Client, node_of
from eventbus.broker.health.findings import Finding, ok, warning
from eventbus.broker.health.status import execute
from eventbus.broker.keys import Keys
from eventbus.broker.redis_errors import redis_errors
from eventbus.errors import BusRefused
from eventbus.model.decodable import decodable
from eventbus.util.text import cut_bytes, printable

#: A worker reports a problem again every ten seconds, as long as it lasts. An older report is of a dead worker.
VALID_MS: Final = 60_000
#: Bytes of a problem that are kept.
MOST_BYTES: Final = 1000


class _Problem(msgspec.Struct, frozen=True, array_like=True):
    at_ms: int  #: since 1970, by the server's clock
    text: str


def report_problem(bus: Bus, client: Client, worker: str, text: str) -> None:
    """Report the problem of *worker* to `doctor`, or with "" that it is solved. Repeat it within VALID_MS.

    Raises: BusUnavailable: call again.  BusRefused: this user's rights are of an earlier version.
    Redis:  TIME, HSET and PEXPIRE, or HDEL, on problems.
    """
    key = bus.keys[0].problems
    with redis_errors():
        if not text:
            client.hdel(key, worker)
            return
        now = node_of(client, key).time()
        problem = _Problem(now[0] * 1000 + now[1] // 1000, cut_bytes(text, MOST_BYTES))
        client.hset(key, worker, msgspec.json.encode(problem))
        client.pexpire(key, VALID_MS)


def check_worker_problems(client: Client, prefix: str) -> Iterator[Finding]:
    """Find the problems that live workers report. Redis: TIME, HGETALL on problems."""
    key = Keys(prefix, 0).problems
    pipe: Any = node_of(client, key).pipeline(transaction=False)
    pipe.time()
    pipe.hgetall(key)
    try:
        now, found = execute(pipe)
    except BusRefused:
        yield ok("files", "not checked: this user may not read the reports of workers (role metrics)")
        return
    problems = {name: problem for name, text in (found or {}).items() if (problem := _decode(text)) is not None}
    now_ms = now[0] * 1000
    current = {name: one for name, one in sorted(problems.items()) if now_ms - one.at_ms < VALID_MS}
    for name, problem in current.items():
        worker = printable(name.decode("utf-8", "replace"))
        cure = "correct the file; the worker reads it again within ten seconds"
        yield warning("files", f"{worker}: {printable(problem.text)}; the previous content stays in use", cure)
    if not current:
        yield ok("files", "no worker reports a configuration file with an error")


def _decode(text: bytes) -> _Problem | None:
    try:
        return msgspec.json.decode(text, type=decodable(_Problem))
    except msgspec.DecodeError:
        return None
