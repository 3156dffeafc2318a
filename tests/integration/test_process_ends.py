"""Every way a Python program can end: what it recorded is kept, told as lost, or lost, as docs/reliability.md says.

`EVENTBUS_TEST_PYTHONS=/path/python3.12:/path/python3.13` runs each row with these interpreters as well.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from eventbus.broker.embedded.server import EmbeddedServer
from tests.integration.process_ends import ROOT, ROWS, Fate, Row, end, tcp_server
from tests.support.harness import read_incoming, settings_of

PYTHONS = [sys.executable, *filter(None, os.environ.get("EVENTBUS_TEST_PYTHONS", "").split(":"))]

#: Rows of which another one is the same but for one thing, which does not end the process: in `make test-long`.
ALIKE = {
    "`sys.exit`",
    "end of a `with` block",
    "an uncaught exception",
    "a pool of threads",
    "SIGTERM, with a handler that calls `shutdown`",
    "Ctrl-C in `asyncio.run`",
    "SIGTERM during the flush of `with`",
    "SIGTERM three times during the flush at exit",
    "Ctrl-C during the flush at exit",
    "Ctrl-C during the flush of `with`",
    "Ctrl-C during `shutdown()`",
    "SIGTERM, recorded in a thread only, after `install_signal_handlers()`",
    "3 000 events that are refused",
    "3 000 events that are refused, SIGTERM in the midst of the flush at exit",
    "3 000 events that are refused, SIGTERM while they are reported",
    "SIGTERM, with a handler that calls `sys.exit`",
    "SIGTERM, Redis away longer than `flush_s`",
    "Ctrl-C, then SIGTERM, during `shutdown()`",
    "recorded after `shutdown()`",
    "SIGKILL",
    "`os._exit`",
    "SIGHUP",
    "SIGQUIT",
    "`os.exec*`",
    "`os.abort`, a segmentation fault",
    "`Process` that is terminated as it goes to sleep",
    "daemon `Process`, its parent exits",
    "`with Pool(…)`, warm",
    "`Pool.close()`, `join()`",
    "`Pool(maxtasksperchild=1)`",
    "`os.fork`, then `os._exit`",
    "`Process.kill()`",
    "`os.fork` at the first event",
    "3 000 events that are refused, in a `Pool`",
}
#: `make test` has one way to end of each other row.
CASES = [
    pytest.param(
        *(row, method, python),
        id=f"{row.name}: {method}: {Path(python).parents[1].name}",
        marks=[] if method == row.methods[0] and row.name not in ALIKE else pytest.mark.volume,
    )
    for row in ROWS
    for method in row.methods
    for python in PYTHONS
]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedServer]:
    with tcp_server(tmp_path_factory.mktemp("tcp")) as server:
        yield server


@pytest.mark.parametrize(("row", "method", "python"), CASES)
def test_what_is_recorded_ends_as_the_table_says(
    server: EmbeddedServer, prefix: str, row: Row, method: str, python: str
) -> None:
    ended = end(row, method, server, prefix, python)
    assert (ended.code, ended.arrived) == (row.code, row.arrives), ended.said
    assert row.said in ended.said
    if row.fate is Fate.KEPT:
        assert "unsent" not in ended.said


def test_the_first_process_of_a_container_ends_by_sigterm_too(server: EmbeddedServer, prefix: str) -> None:
    """The default action of a signal does nothing to it."""
    alone = ["unshare", "--fork", "--pid", "--kill-child"]
    if subprocess.run([*alone, "true"], capture_output=True, check=False).returncode:
        pytest.skip("only root may start a process that is the first of its namespace")
    program = (
        "import os, signal, sys\n"
        "from eventbus import EventBroadcaster, ObjectReference, Settings\n"
        "broadcaster = EventBroadcaster(sys.argv[1], settings=Settings(prefix=sys.argv[2], flush_s=30))\n"
        "broadcaster.new_recorder('c').event(ObjectReference('Pod', 'default', 'web-0'), 'Normal', 'Said', 'x')\n"
        "assert os.getpid() == 1\n"
        "os.kill(1, signal.SIGTERM)\n"
    )
    ran = subprocess.run([*alone, sys.executable, "-c", program, server.url or "", prefix], timeout=50, check=False)
    assert ran.returncode == 128 + signal.SIGTERM
    assert len(read_incoming(server.url or "", settings_of(prefix))) == 1


def test_the_page_has_the_same_table() -> None:
    page = (ROOT / "docs" / "reliability.md").read_text()
    lines = [f"| {row.name} | {_methods(row)} | {row.fate} |" for row in ROWS]
    assert [line for line in lines if line not in page] == []


def _methods(row: Row) -> str:
    return "–" if row.methods == ("-",) else ", ".join(row.methods)
