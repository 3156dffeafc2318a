"""The ways in which a Python program can end, one a row, and how to have `ending_program.py` end like that."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

from eventbus.broker.embedded.server import EmbeddedServer
from tests.acceptance.programs import read_to_the_end
from tests.starting import STRICT, start_piped
from tests.support.harness import frozen, own_server, read_incoming, settings_of
from tests.support.ports import free_port
from tests.waiting import eventually

PROGRAM = "tests.integration.ending_program"
ROOT = Path(__file__).parents[2]
EVENTS = 50
#: as many as the program makes mistakes, and what is said of them: the first at once, all others at the end
REFUSED = 3_000
REFUSED_SAID = f"{REFUSED - 1} events refused: type: Unsupported event type 'Info'; use Normal or Warning"
TERM, INT, HUP, QUIT, KILL = signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGKILL
ALL = ("fork", "spawn", "forkserver")


class Fate(StrEnum):
    """The fate of the events."""

    KEPT = "kept"
    TOLD = "counted as lost"
    LOST = "lost"


class Row(NamedTuple):
    """One row of the page's table."""

    name: str
    way: str  #: function of ending_program.py
    fate: Fate = Fate.KEPT
    events: int = EVENTS  #: recorded
    methods: tuple[str, ...] = ("-",)  #: how children are started
    signals: tuple[int, ...] = ()  #: sent one after the other once it is ending
    still: bool = (
        False  #: Redis stands still from the first event until all signals have come, or the process has ended
    )
    code: int = 0  #: exit code
    said: str = ""  #: on standard error
    flush_s: float = 30.0
    afresh: bool = False  #: in an interpreter of its own, which takes its modules down at its end

    @property
    def arrives(self) -> int:
        """Events that are in Redis in the end."""
        return self.events if self.fate is Fate.KEPT else 0


ROWS = [
    # one process
    Row("returns from main", "returns", afresh=True),
    Row("`sys.exit`", "exits", code=3),
    Row("an uncaught exception", "raises", code=1),
    Row("end of a `with` block", "with_block"),
    Row("threads that still record", "threads", events=4 * EVENTS),
    Row("a pool of threads", "thread_pool", events=8 * EVENTS),
    Row("events of exit callbacks, also after the flush", "records_in_late_callbacks", events=2 * EVENTS),
    Row("SIGTERM", "waits", signals=(TERM,), code=-TERM),
    Row("SIGTERM, with a handler that calls `sys.exit`", "own_handler_exits", signals=(TERM,)),
    Row("SIGTERM, with a handler that calls `shutdown`", "own_handler_shuts_down", signals=(TERM,)),
    Row("Ctrl-C", "waits", signals=(INT,), code=-INT),
    Row("Ctrl-C in `asyncio.run`", "asyncio_waits", signals=(INT,), code=-INT),
    Row("SIGTERM in `asyncio.run`", "asyncio_waits", signals=(TERM,), code=-TERM),
    Row("SIGTERM during the flush at exit", "returns", signals=(TERM,), still=True, code=-TERM),
    Row("SIGTERM during the flush of `with`", "with_block", signals=(TERM,), still=True, code=-TERM),
    Row("SIGTERM during `shutdown()`", "shuts_down", signals=(TERM,), still=True, code=-TERM),
    Row("SIGTERM twice", "waits", signals=(TERM, TERM), still=True, code=-TERM),
    Row("SIGTERM three times during the flush at exit", "returns", signals=(TERM,) * 3, still=True, code=-TERM),
    Row("Ctrl-C during the flush at exit", "returns", signals=(INT,), still=True),
    Row("Ctrl-C three times during the flush at exit", "returns", signals=(INT,) * 3, still=True),
    Row("Ctrl-C during the flush of `with`", "with_block", signals=(INT,), still=True, code=-INT),
    Row("Ctrl-C during `shutdown()`", "shuts_down", signals=(INT,), still=True, code=-INT),
    Row("Ctrl-C, then SIGTERM, during `shutdown()`", "shuts_down", signals=(INT, TERM), still=True, code=-TERM),
    Row("SIGHUP, after `install_signal_handlers(SIGHUP)`", "asked_for_hangup", signals=(HUP,), code=-HUP),
    Row(
        "SIGTERM, recorded in a thread only, after `install_signal_handlers()`",
        "in_a_thread_with_handlers",
        signals=(TERM,),
        code=-TERM,
    ),
    Row("`flush()`, then `os._exit`", "flushes_then_os_exit"),
    Row(
        "Redis away longer than `flush_s`",
        "returns",
        Fate.TOLD,
        still=True,
        flush_s=0.3,
        said=f"{EVENTS} events unsent: closed before Redis had them",
    ),
    Row(
        "SIGTERM, Redis away longer than `flush_s`",
        "waits",
        Fate.TOLD,
        signals=(TERM,),
        still=True,
        flush_s=0.3,
        code=-TERM,
        said=f"{EVENTS} events unsent: closed before Redis had them",
    ),
    Row(
        "recorded after `shutdown()`",
        "shuts_down_then_records",
        Fate.TOLD,
        said=f"{EVENTS - 1} events refused: the broadcaster is shut down",
    ),
    Row("3 000 events that are refused", "refused", Fate.TOLD, events=REFUSED, said=REFUSED_SAID),
    Row(
        "3 000 events that are refused, SIGTERM",
        "refused_until_signalled",
        Fate.TOLD,
        events=REFUSED,
        signals=(TERM,),
        code=-TERM,
        said=REFUSED_SAID,
    ),
    Row(
        "3 000 events that are refused, SIGTERM in the midst of the flush at exit",
        "refused_then_signalled_at_work",
        Fate.TOLD,
        events=REFUSED,
        code=-TERM,
        said=REFUSED_SAID,
    ),
    Row(
        "3 000 events that are refused, SIGTERM while they are reported",
        "refused_then_signalled_while_telling",
        Fate.TOLD,
        events=REFUSED,
        code=-TERM,
        said=REFUSED_SAID,
    ),
    Row(
        "SIGTERM, recorded in a thread only",
        "in_a_thread",
        Fate.LOST,
        signals=(TERM,),
        still=True,
        code=-TERM,
        said="call eventbus.install_signal_handlers() in the main thread",
    ),
    Row("SIGHUP", "waits", Fate.LOST, signals=(HUP,), still=True, code=-HUP),
    Row("SIGQUIT", "waits", Fate.LOST, signals=(QUIT,), still=True, code=-QUIT),
    Row("SIGKILL", "waits", Fate.LOST, signals=(KILL,), still=True, code=-KILL),
    Row("`os._exit`", "os_exit", Fate.LOST, still=True),
    Row("`os.exec*`", "execs", Fate.LOST, still=True),
    Row("`os.abort`, a segmentation fault", "aborts", Fate.LOST, still=True, code=-signal.SIGABRT),
    # children
    Row("`Process` that returns", "process", events=2 * EVENTS, methods=ALL),
    Row("`Process.terminate()`", "process_terminated", methods=ALL),
    Row("`Process` that is terminated as it goes to sleep", "process_waits_in_c", methods=ALL),
    Row("daemon `Process`, its parent exits", "process_daemon", methods=ALL),
    Row("`with Pool(…)`", "pool", events=8 * EVENTS, methods=ALL),
    Row("`with Pool(…)`, warm", "pool_warm", events=8 * EVENTS, methods=ALL),
    Row("`Pool.close()`, `join()`", "pool_closed", events=8 * EVENTS, methods=ALL),
    Row("`Pool(maxtasksperchild=1)`", "pool_renewed", events=8 * EVENTS, methods=ALL),
    Row("`ProcessPoolExecutor`", "executor", events=8 * EVENTS, methods=ALL),
    Row("`os.fork`, then `sys.exit`", "forks", events=2 * EVENTS),
    Row("`os.fork` at the first event", "forks_at_the_first_event", events=8 * EVENTS + 1),
    Row("workers of a preforking server, ended by SIGTERM", "prefork", events=3 * EVENTS),
    Row("a fork made in C, nothing waiting", "forks_in_c", events=3 * EVENTS),
    Row(
        "a fork made in C, events waiting",
        "forks_in_c_at_work",
        Fate.TOLD,
        still=True,
        flush_s=0.5,
        said="events lost: waiting when this process, forked by C code, noticed the fork",
    ),
    Row("`os.fork`, then `os._exit`", "forks_then_os_exit", Fate.LOST, still=True),
    Row(
        "3 000 events that are refused, in a `Pool`",
        "refused_in_pool",
        Fate.TOLD,
        events=REFUSED,
        methods=ALL,
        said=REFUSED_SAID,
    ),
    Row("`Process.kill()`", "process_killed", Fate.LOST, methods=ALL, still=True),
]


class Ended(NamedTuple):
    """The end of a program."""

    code: int
    arrived: int  #: events in Redis
    said: str  #: on standard error
    seconds: float  #: from the first sign of the end, or from when Redis answered again

    def is_right(self, row: Row) -> bool:
        return (self.code, self.arrived) == (row.code, row.arrives) and row.said in self.said


@contextmanager
def tcp_server(folder: Path) -> Iterator[EmbeddedServer]:
    """A server over TCP: connecting takes longer, and a host's name has to be resolved."""
    with own_server(folder, port=str(free_port()), bind="127.0.0.1") as server:
        yield server


def end(row: Row, method: str, server: EmbeddedServer, prefix: str, python: str = sys.executable) -> Ended:
    """Have the program end as *row* says; whatever it leaves behind is killed."""
    url = f"redis://localhost:{server._config['port']}/0"
    command = [python, "-m", PROGRAM, url, prefix, row.way, method, str(row.flush_s)]
    environ = {name: value for name, value in os.environ.items() if not name.startswith("EVENTBUS_")} | STRICT
    with start_piped(command, env=environ, afresh=row.afresh) as program, ExitStack() as stack:
        process = program.process
        assert program.stdout.readline() == b"ready\n"
        stack.callback(_kill_group, process.pid)
        still = stack.enter_context(ExitStack())
        if row.still:
            still.enter_context(frozen(server.pid))
        program.stdin.write(b"go\n")
        assert program.stdout.readline() == b"ending\n"
        began = time.monotonic()
        for number in row.signals:
            process.send_signal(number)
            eventually(lambda number=number: process.poll() is not None or not _is_pending(process.pid, number))  # type: ignore[misc]
        if row.still and row.fate is Fate.KEPT:
            still.close()
            began = time.monotonic()
        _, said = read_to_the_end((program.stdout.fileno(), program.stderr.fileno()), 50)
        code = process.wait(50)
        seconds = time.monotonic() - began
    if row.code == -INT and code == 1:
        code = -INT  # CPython forgets how it ended if a module that calls `eval` is imported meanwhile, as redis does
    return Ended(code, len(read_incoming(server.url or "", settings_of(prefix))), said, seconds)


def _kill_group(leader: int) -> None:
    with suppress(ProcessLookupError):
        os.killpg(leader, KILL)


def _is_pending(pid: int, number: int) -> bool:
    """Return True if the process has not yet been interrupted by a signal that was sent to it."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):  # it has ended: before it was opened, or before it was read
        return False
    masks = [int(line.split()[1], 16) for line in status.splitlines() if line.startswith(("SigPnd", "ShdPnd"))]
    return any(mask >> (number - 1) & 1 for mask in masks)
