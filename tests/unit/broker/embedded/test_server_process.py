"""Finds the process that has a file open, the one at the other end of a socket, and the one to signal."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from eventbus.agent.procfile.orphaned_processes import LINES
from eventbus.agent.procfile.procfile_runner import claim
from eventbus.broker.embedded.server_process import (
    has_open,
    other_user_of,
    peer_of,
    processes_with,
    send_signal,
    take_reference,
)
from eventbus.errors import ConfigError

needs_proc = pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="no /proc")


@needs_proc
def test_a_process_has_open_what_it_holds_and_nothing_else(tmp_path: Path) -> None:
    held, other = tmp_path / "held", tmp_path / "other"
    other.touch()
    with held.open("w") as file:
        with subprocess.Popen(
            [sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE, pass_fds=[file.fileno()]
        ) as child:
            assert (has_open(child.pid, held), has_open(child.pid, other)) == (True, False)
            assert processes_with(held) == [child.pid]
            assert processes_with(other) == []
            assert has_open(child.pid, tmp_path / "gone") is False
        assert has_open(os.getpid(), held)
        assert has_open(child.pid, held) is False


def test_a_signal_goes_only_to_whom_the_question_finds_right() -> None:
    with subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE) as child:
        assert not send_signal(child.pid, signal.SIGTERM, if_true=lambda: False)
        assert child.poll() is None
        assert send_signal(child.pid, signal.SIGTERM, if_true=lambda: True)
        assert child.wait() == -signal.SIGTERM
    assert not send_signal(child.pid, signal.SIGTERM, if_true=lambda: True), "it is gone"


@pytest.mark.parametrize("pid", [1, 0, -1, -17])
def test_groups_of_processes_are_not_even_asked_about(pid: int) -> None:
    def never() -> bool:
        raise AssertionError

    assert not send_signal(pid, signal.SIGCONT, if_true=never)


def test_the_peer_is_who_listens(short_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server, socket.socket(socket.AF_UNIX) as client:
        server.bind(str(short_path / "s"))
        server.listen()
        client.connect(str(short_path / "s"))
        pid, uid = peer_of(client)
    assert pid in (os.getpid(), None)
    assert uid in (os.geteuid(), None)


USER = """
import os, signal, sys
from pathlib import Path
from eventbus.broker.embedded.server_process import take_reference
take_reference(Path(sys.argv[1]))
if not os.fork():
    signal.pause()
print("taken", flush=True)
signal.pause()
"""


def _user(directory: Path) -> subprocess.Popen[str]:
    """Start a process with a reference, and with a child that outlives it, in a group of their own."""
    user = subprocess.Popen(
        [sys.executable, "-c", USER, directory], stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    assert user.stdout
    assert user.stdout.readline() == "taken\n"
    return user


def test_another_user_of_the_server_is_named_as_long_as_it_lives_and_its_children_are_none(tmp_path: Path) -> None:
    assert other_user_of(tmp_path) is None
    with _user(tmp_path) as first, _user(tmp_path) as second:
        try:
            assert other_user_of(tmp_path) in (first.pid, second.pid)
            second.kill()
            second.wait()
            assert other_user_of(tmp_path) == first.pid
            first.kill()
            first.wait()
            assert other_user_of(tmp_path) is None
        finally:
            for user in (first, second):
                os.killpg(user.pid, signal.SIGKILL)


def _seen(directory: Path) -> str:
    """Return the other user of the server, as another process sees it."""
    code = (
        "import sys; from pathlib import Path; from eventbus.broker.embedded.server_process import other_user_of; "
        "print(other_user_of(Path(sys.argv[1])))"
    )
    return subprocess.run([sys.executable, "-c", code, directory], capture_output=True, text=True, check=True).stdout


def test_a_process_that_closes_its_reference_uses_the_server_no_more(tmp_path: Path) -> None:
    reference = take_reference(tmp_path)
    assert _seen(tmp_path) == f"{os.getpid()}\n"
    os.close(reference)
    assert _seen(tmp_path) == "None\n"


def test_a_process_keeps_its_reference_if_another_one_has_the_folder_of_lines(tmp_path: Path) -> None:
    reference = take_reference(tmp_path)
    claims = [claim(tmp_path / LINES) for _ in range(2)]  # the second one finds the first folder locked
    assert _seen(tmp_path) == f"{os.getpid()}\n"
    for file in (reference, *(lock for _, lock in claims)):
        os.close(file)


def test_a_folder_that_is_gone_has_no_user_and_takes_none(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file or directory"):
        take_reference(tmp_path / "gone")
    assert other_user_of(tmp_path / "gone") is None
