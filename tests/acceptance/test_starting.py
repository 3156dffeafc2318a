"""A process that the forkserver forks is like one of a new interpreter: no other test may see a difference."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests.acceptance.programs import Program, environment, run
from tests.acceptance.terminal import Terminal
from tests.starting import STRICT, Forked, Process, start
from tests.waiting import PATIENCE_S, eventually

AFRESH = pytest.mark.parametrize("afresh", [False, True], ids=["forked", "afresh"])
#: Everything that a process has from its starter.
TELL = """
import os, signal, sys, warnings
print(sorted(os.listdir("/proc/self/fd")) if os.path.exists("/proc/self/fd") else "", file=sys.stderr)
print(__name__, sys.argv[1:], os.getcwd(), sorted(n for n in os.environ if n.startswith("EVENTBUS_")), warnings.filters)
print([signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM, signal.SIGCHLD, signal.SIGPIPE)])
print(signal.set_wakeup_fd(-1), sys.stdout.line_buffering, sys.stdout.encoding, sys.stdin.read())
sys.exit(int(sys.argv[1]))
"""
#: A program's last acts, which the interpreter waits for or tells of.
END = """
import atexit, socket, sys, threading, time
atexit.register(print, "left")
threading.Thread(target=lambda: (time.sleep(0.05), print("worked"))).start()
circle = [socket.socket()]
circle.append(circle)
del circle
sys.exit(eval(sys.argv[1]))
"""


@pytest.fixture
def env() -> dict[str, str]:
    return environment("none", "eb")


def tell(folder: Path, env: dict[str, str], *words: str, afresh: bool) -> tuple[int, str, str]:
    with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        given.write(b"of standard input")
        given.seek(0)
        process = start(
            [sys.executable, "-m", "tell", *words],
            env=env,
            stdin=given.fileno(),
            stdout=out,
            stderr=err,
            folder=folder,
            afresh=afresh,
        )
        assert isinstance(process, Forked) is not afresh
        code = process.wait(PATIENCE_S)
        return code, _all(out.fileno()), _all(err.fileno())


def _all(descriptor: int) -> str:
    return os.pread(descriptor, 1 << 20, 0).decode()


def test_it_has_the_same_from_its_starter_as_a_new_interpreter(tmp_path: Path, env: dict[str, str]) -> None:
    (tmp_path / "tell.py").write_text(TELL)
    forked = tell(tmp_path, env, "7", "words", afresh=False)
    assert forked == tell(tmp_path, env, "7", "words", afresh=True)
    assert forked[0] == 7
    assert "of standard input" in forked[1]


@pytest.mark.parametrize("code", ["None", "7", "'told'"])
def test_its_end_is_that_of_a_new_interpreter(tmp_path: Path, env: dict[str, str], code: str) -> None:
    (tmp_path / "tell.py").write_text(END)
    forked, afresh = tell(tmp_path, env, code, afresh=False), tell(tmp_path, env, code, afresh=True)
    assert forked[:2] == afresh[:2]
    assert forked[1] == "worked\nleft\n"
    assert "unclosed <socket" in forked[2]
    assert "unclosed <socket" in afresh[2]
    assert ("told" in forked[2]) is ("told" in afresh[2]) is (code == "'told'")


def test_output_that_cannot_be_written_is_told_as_by_a_new_interpreter(tmp_path: Path, env: dict[str, str]) -> None:
    (tmp_path / "tell.py").write_text("import sys; sys.stdout = open('/dev/full', 'w'); print('lost'); sys.exit()")
    forked = tell(tmp_path, env, afresh=False)
    assert forked == tell(tmp_path, env, afresh=True)
    assert forked[0] == 120


@AFRESH
def test_a_signal_ends_it_with_its_number(env: dict[str, str], tmp_path: Path, afresh: bool) -> None:
    env |= {"EVENTBUS_REDIS_URL": "redis://127.0.0.1:1/0"}
    with Program("worker", "sink", env=env, folder=tmp_path, afresh=afresh) as sink:
        eventually(lambda: sink.err)
        with pytest.raises(subprocess.TimeoutExpired):
            sink.wait(0.01)
        sink.signal(signal.SIGKILL)
        assert sink.wait() == -signal.SIGKILL


@AFRESH
def test_ctrl_c_on_its_terminal_reaches_it(env: dict[str, str], afresh: bool) -> None:
    with Terminal("exec", "--", "sh", "-c", "echo runs; exec sleep 60", env=env, afresh=afresh) as terminal:
        terminal.wait_for("runs")
        assert os.getsid(terminal.pid) == terminal.pid
        terminal.interrupt()
        assert terminal.wait() == -signal.SIGINT


@AFRESH
def test_an_order_to_crash_is_obeyed_at_its_place_alone(embedded_url: str, prefix: str, afresh: bool) -> None:
    env = environment(embedded_url, prefix)
    words = ("record", "Thing/x", "--reason", "Seen", "--message", "m")
    ends = {
        order: run(*words, env=env | {"EVENTBUS_CRASH": order}, afresh=afresh).returncode
        for order in ("", "kill:published", "kill:published:2", "kill:publish")
    }
    assert list(ends.values()) == [0, -signal.SIGKILL, 0, -signal.SIGKILL]


def test_what_may_be_read_by_an_import_is_not_forked(env: dict[str, str]) -> None:
    def started(**more: str) -> Process:
        words = [sys.executable, "-m", "eventbus", "--version"]
        with tempfile.TemporaryFile() as out:
            process = start(words, env=env | more, stdout=out, stderr=out)
            assert process.wait(PATIENCE_S) == 0
        return process

    assert isinstance(started(), Forked)
    assert isinstance(started(EVENTBUS_PREFIX="other"), Forked)
    for name in ("PYTHONPATH", "LD_LIBRARY_PATH", "LC_ALL", "SSL_CERT_FILE"):
        assert isinstance(started(**{name: "C"}), subprocess.Popen)
    for name, text in STRICT.items():
        assert env[name] == text


def test_what_it_writes_is_read_to_its_end(env: dict[str, str]) -> None:
    words = ("exec", "--", "sh", "-c", "yes 0123456789abcde | head -c 1000000; echo end >&2; exit 3")
    forked, afresh = run(*words, env=env), run(*words, env=env, afresh=True)
    assert (forked.returncode, len(forked.stdout)) == (3, 1_000_000)
    assert (forked.stdout, "end" in forked.stderr) == (afresh.stdout, "end" in afresh.stderr)


def test_one_that_does_not_end_in_time_is_killed(env: dict[str, str]) -> None:
    with pytest.raises(subprocess.TimeoutExpired):
        run("exec", "--", "sleep", "60", env=env, timeout_s=0.5)
