"""`eventbus exec`: a command lives as it would without us, on a terminal and off it, and its life is recorded."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from io import FileIO
from pathlib import Path
from typing import NamedTuple

import pytest

from eventbus import ObjectReference
from eventbus.broker.embedded.server import EmbeddedServer
from tests.acceptance.programs import COMMAND, Program, environment, run
from tests.acceptance.recorded import Recorded, recorded_on
from tests.acceptance.terminal import Terminal
from tests.starting import Process, start, start_piped
from tests.thin import one
from tests.waiting import PATIENCE_S, eventually

#: Says that it is ready, then waits for signals; $1 is what it does with them.
WAITING = "{trap}; echo ready; i=0; while [ $i -lt 300 ]; do sleep 0.1; i=$((i+1)); done"


@pytest.fixture
def env(request: pytest.FixtureRequest, embedded_url: str, prefix: str) -> dict[str, str]:
    """With a bus where a test reads what is recorded. Without one, the recording process need not import redis."""
    return environment(embedded_url if "recorded" in request.fixturenames else "none", prefix)


@pytest.fixture
def recorded(embedded_url: str, prefix: str) -> Iterator[Recorded]:
    with recorded_on(embedded_url, prefix) as found:
        yield found


def sh(script: str) -> tuple[str, ...]:
    return ("--", "sh", "-c", script)


def waiting(trap: str) -> tuple[str, ...]:
    return sh(WAITING.format(trap=trap))


# -- what is recorded ------------------------------------------------------------------------------------------------


def test_a_command_that_succeeds_is_started_and_completed(env: dict[str, str], recorded: Recorded) -> None:
    done = run("exec", "true", env=env)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    started, completed = recorded.wait_for("true", "Started", "Completed")
    assert (started.type, completed.type) == ("Normal", "Normal")
    assert completed.message == "Completed true after <1s"
    assert completed.involved_object == ObjectReference("Command", "default", "true")
    assert completed.source.component == "eventbus-exec"


def test_a_command_that_fails_is_recorded_with_code_and_last_line(env: dict[str, str], recorded: Recorded) -> None:
    done = run("exec", "--object", "Job/nightly", "-n", "ops", *sh("echo one; echo two >&2; exit 3"), env=env)
    assert (done.returncode, done.stdout, done.stderr) == (3, "one\n", "two\n")
    _, failed = recorded.wait_for("nightly", "Started", "Failed")
    assert (failed.type, failed.message) == ("Warning", "sh: exit code 3 after <1s: two")
    assert failed.involved_object == ObjectReference("Job", "ops", "nightly")


def test_arguments_are_not_recorded_for_they_may_hold_secrets(env: dict[str, str], recorded: Recorded) -> None:
    run("exec", "--", "ls", "/no/such/s3cret", env=env)
    run("exec", "--keep-stderr", "--", "ls", "/no/such/s3cret", env=env)
    events = recorded.wait_for("ls", "Started", "Failed", "Started", "Failed")
    assert "s3cret" in events[1].message, "it said so itself"
    assert "s3cret" not in events[3].message


def test_a_command_that_a_signal_ends_takes_us_with_it(env: dict[str, str], recorded: Recorded) -> None:
    done = run("exec", *sh("kill -SEGV $$"), env=env)
    assert done.returncode == -signal.SIGSEGV
    _, failed = recorded.wait_for("sh", "Started", "Failed")
    assert failed.message == "sh: ended by SIGSEGV after <1s"


def test_a_command_that_is_not_there_is_127_and_failed(env: dict[str, str], recorded: Recorded) -> None:
    done = run("exec", "no-such-command", env=env)
    assert (done.returncode, done.stderr) == (127, "error: no-such-command: No such file or directory\n")
    (failed,) = recorded.wait_for("no-such-command", "Failed")
    assert failed.message == "no-such-command cannot be started: No such file or directory"


@pytest.mark.parametrize("command", one(["./no-program", "/", ""]))
def test_what_is_no_program_ends_as_in_a_shell(
    command: str, env: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "no-program").write_text("text")
    monkeypatch.chdir(tmp_path)
    assert run("exec", "--", command, env=env).returncode == (126 if command else 127)


@pytest.mark.parametrize(
    "arguments",
    [(), ("--",), ("--object", "no-slash", "true"), ("--restart", "sometimes", "true"), ("-n", "No Label", "true")],
)
def test_wrong_usage_is_2_and_runs_nothing(arguments: tuple[str, ...], env: dict[str, str]) -> None:
    done = run("exec", *arguments, env=env)
    assert done.returncode == 2
    assert done.stderr


def test_a_mistyped_option_is_no_command(env: dict[str, str]) -> None:
    done = run("exec", "--objct", "Job/x", "--", "true", env=env)
    assert (done.returncode, done.stdout) == (2, "")
    assert "No such option '--objct'" in done.stderr


def test_options_behind_the_command_are_its_own(env: dict[str, str]) -> None:
    done = run("exec", "echo", "--object", "-n", "--", env=env)
    assert (done.returncode, done.stdout) == (0, "--object -n --\n")


# -- signals ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", one(["TERM", "INT", "HUP", "QUIT", "ABRT", "XCPU"]))
def test_a_signal_that_asks_to_end_is_passed_on_and_recorded(
    name: str, env: dict[str, str], recorded: Recorded, tmp_path: Path
) -> None:
    with Program("exec", *waiting(f"trap 'echo got {name}; exit 9' {name}"), env=env, folder=tmp_path) as program:
        eventually(lambda: "ready\n" in program.out)
        program.signal(signal.Signals[f"SIG{name}"])
        assert program.wait() == 9
        assert program.out == f"ready\ngot {name}\n"
    _, killing, failed = recorded.wait_for("sh", "Started", "Killing", "Failed")
    assert (killing.type, killing.message) == ("Normal", f"Stopping sh: passed on SIG{name}")
    assert failed.message.startswith("sh: exit code 9")


@pytest.mark.parametrize(
    "number", one([signal.SIGUSR1, signal.SIGUSR2, signal.SIGWINCH, signal.SIGXFSZ, signal.SIGRTMIN + 1])
)
def test_any_other_signal_is_passed_on_and_not_recorded(
    number: int, env: dict[str, str], recorded: Recorded, tmp_path: Path
) -> None:
    program_text = (
        "import signal, sys, time\n"
        f"signal.signal({int(number)}, lambda *_: (print('got it', flush=True), sys.exit(0)))\n"
        "print('ready', flush=True); time.sleep(30)"
    )
    with Program("exec", "--", sys.executable, "-c", program_text, env=env, folder=tmp_path) as program:
        eventually(lambda: "ready\n" in program.out)
        os.kill(program.pid, number)
        assert program.wait() == 0
        assert program.out == "ready\ngot it\n"
    recorded.wait_for(Path(sys.executable).name, "Started", "Completed")


#: Does not stop, for a process without a shell above it would not be; says what it was sent.
JOB = """
import signal, sys, time
for name in ("TSTP", "CONT"):
    signal.signal(getattr(signal, "SIG" + name), lambda number, _: print(signal.Signals(number).name, flush=True))
print("ready", flush=True)
for _ in range(300):  # not in one wait: of a signal that comes the moment before it Python learns when it ends
    time.sleep(0.2)
"""


def test_stop_and_continue_are_passed_on(env: dict[str, str], tmp_path: Path) -> None:
    def goes_on() -> bool:
        program.signal(signal.SIGCONT)  # the first may come before it has stopped itself
        return "SIGCONT" in program.out

    with Program("exec", "--", sys.executable, "-c", JOB, env=env, folder=tmp_path) as program:
        eventually(lambda: "ready\n" in program.out)
        program.signal(signal.SIGTSTP)
        eventually(lambda: "SIGTSTP" in program.out)
        eventually(goes_on)
        assert program.stop() == -signal.SIGTERM
        assert program.out.count("SIGTSTP") == 1


def test_a_signal_that_was_ignored_stays_ignored(env: dict[str, str]) -> None:
    inner = "kill -HUP $$; kill -INT $$; echo survived"
    ours = " ".join((*COMMAND, "exec", "--", "sh", "-c", f"'{inner}'"))
    done = subprocess.run(
        ["sh", "-c", f"trap '' HUP INT; {ours}"], env=env, capture_output=True, text=True, timeout=50, check=False
    )
    assert (done.returncode, done.stdout) == (0, "survived\n")


def test_the_command_starts_with_the_signals_as_we_were_given_them(env: dict[str, str]) -> None:
    show = "import signal; print(signal.pthread_sigmask(0, ()), signal.getsignal(signal.SIGINT).__name__)"
    direct = subprocess.run([sys.executable, "-c", show], capture_output=True, text=True, timeout=50, check=True)
    assert run("exec", "--", sys.executable, "-c", show, env=env).stdout == direct.stdout
    assert run("exec", *sh("kill -PIPE $$; echo alive"), env=env).returncode == -signal.SIGPIPE


# -- streams ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", one([(), ("--keep-stderr",)]))
def test_every_byte_of_the_three_streams_passes(options: tuple[str, ...], env: dict[str, str]) -> None:
    data = os.urandom(1_000_000)
    done = subprocess.run(
        [*COMMAND, "exec", *options, *sh("tee /dev/stderr")],
        env=env,
        input=data,
        capture_output=True,
        timeout=50,
        check=False,
    )
    assert done.returncode == 0
    assert done.stdout == data
    assert done.stderr == data


def test_a_reader_that_goes_away_is_the_commands_to_notice(env: dict[str, str]) -> None:
    words = [*COMMAND, "exec", *sh("yes >&2")]
    with subprocess.Popen(words, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as program:
        assert program.stderr is not None
        assert program.stderr.readline() == b"y\n"
        program.stderr.close()
        assert program.wait(PATIENCE_S) in (-signal.SIGPIPE, 128 + signal.SIGPIPE)


BURSTS = "for i in 1 2 3 4 5 6; do echo out$i; done; for i in 1 2 3 4 5 6; do echo err$i >&2; done; "
WRITTEN = [f"{name}{number}" for _ in range(3) for name in ("out", "err") for number in range(1, 7)]


def test_two_streams_that_are_one_pipe_keep_their_order(env: dict[str, str]) -> None:
    reader, writer = os.pipe()
    with os.fdopen(reader) as pipe:
        words = [*COMMAND, "exec", *sh(BURSTS * 3 + "exit 3")]
        process = start(words, env=env, stdout=writer, stderr=writer)
        os.close(writer)
        assert pipe.read().splitlines() == WRITTEN
        assert process.wait() == 3


def test_what_it_leaves_in_the_background_does_not_hold_us(env: dict[str, str], tmp_path: Path) -> None:
    with Program("exec", *sh("sleep 60 >&2 & echo $!"), env=env, folder=tmp_path) as program:
        code = program.wait()
        os.kill(int(program.out), signal.SIGKILL)
    assert code == 0


#: As with a limit of processes (`ulimit -u`), which does not hold for root.
FEW_THREADS = """
import sys, threading
left, start = int(sys.argv.pop(1)), threading.Thread.start
def limited(thread):
    global left
    if not left:
        raise RuntimeError("can't start new thread")
    left -= 1
    start(thread)
threading.Thread.start = limited
from eventbus.__main__ import main
sys.exit(main())
"""


@pytest.mark.parametrize(("threads", "problems"), [(0, 1), (1, 1), (2, 0)])
def test_a_command_runs_also_if_no_more_threads_can_be_started(
    threads: int, problems: int, env: dict[str, str]
) -> None:
    words = [sys.executable, "-c", FEW_THREADS, str(threads), "exec", *sh("echo out; echo err >&2; exit 3")]
    ran = subprocess.run(words, env=env, capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout) == (3, "out\n"), ran.stderr
    *said, last = ran.stderr.splitlines()
    assert last == "err"
    problem = "eventbus exec: can't start new thread: sh runs without events and restarts; raise the limit of processes"
    assert [line.startswith(problem) for line in said] == [True] * problems


def test_closed_streams_stay_closed(env: dict[str, str]) -> None:
    ours = " ".join((*COMMAND, "exec", "--", "sh", "-c", "'echo lost >&2; echo seen'"))
    done = subprocess.run(
        ["sh", "-c", f"{ours} <&- 2>&-"], env=env, capture_output=True, text=True, timeout=50, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "seen\n", "")


# -- on a terminal ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [(), ("--read-stderr",)])
def test_on_a_terminal_all_three_are_terminals_of_its_size(options: tuple[str, ...], env: dict[str, str]) -> None:
    script = "test -t 0 && test -t 1 && test -t 2 && stty size && stty size <&2; echo 'größer' >&2; exit 1"
    with Terminal("exec", *options, *sh(script), env=env, columns=77) as terminal:
        assert terminal.wait() == 1
        assert terminal.raw.split("\n") == ["40 77", "40 77", "größer", ""]  # none ends with a second \r


def test_a_terminal_is_not_read_along_unless_that_is_asked_for(env: dict[str, str], recorded: Recorded) -> None:
    for options in ((), ("--read-stderr",)):
        with Terminal("exec", *options, *sh("echo said >&2; exit 1"), env=env) as terminal:
            assert terminal.wait() == 1
            assert terminal.text == "said\n"
    _, kept, _, read = recorded.wait_for("sh", "Started", "Failed", "Started", "Failed")
    assert (kept.message, read.message) == ("sh: exit code 1 after <1s", "sh: exit code 1 after <1s: said")


#: As `less`, which takes its keys from the terminal that is its standard error.
PAGER = (
    "import os, sys, termios, tty; sys.stdin.read(); tty.setcbreak(os.open(os.ttyname(2), os.O_RDWR));"
    "print('more?', flush=True); key = os.read(2, 1); print('key', key.decode())"
)


def test_a_pager_that_reads_the_keyboard_from_standard_error_gets_it(env: dict[str, str]) -> None:
    with Terminal("exec", *sh(f'seq 200 | {sys.executable} -c "{PAGER}"'), env=env) as terminal:
        terminal.wait_for("more?")
        terminal.press("q")
        assert terminal.wait() == 0
        assert terminal.text == "more?\nkey q\n"


def test_ctrl_c_reaches_it_once_and_is_not_ours_to_pass_on(env: dict[str, str], recorded: Recorded) -> None:
    with Terminal("exec", *sh(COUNTING), env=env) as terminal:
        terminal.wait_for("ready\n")
        terminal.interrupt()
        assert terminal.wait() == 1, "as often as it had the signal"
    _, killing, _ = recorded.wait_for("sh", "Started", "Killing", "Failed")
    assert killing.message == "Stopping sh: SIGINT from the terminal"


#: Its exit code is how often it had SIGINT in the second after the first one.
COUNTING = "n=0; trap 'n=$((n+1))' INT; echo ready; while [ $n = 0 ]; do sleep 0.1; done; sleep 0.5; sleep 0.5; exit $n"


def test_ctrl_c_ends_a_command_and_us_by_the_same_signal(env: dict[str, str]) -> None:
    with Terminal("exec", *waiting(":"), env=env) as terminal:
        terminal.wait_for("ready\n")
        terminal.interrupt()
        assert terminal.wait() == -signal.SIGINT


@pytest.mark.parametrize("options", [(), ("--read-stderr",)])
def test_a_window_that_is_resized_is_resized_for_standard_error_too(
    options: tuple[str, ...], env: dict[str, str]
) -> None:
    # The program and we are told at the same time: we may be the later ones.
    trap = (
        'trap \'until [ "$(stty size <&2)" = "33 111" ]; do sleep 0.05; done; stty size; stty size <&2; exit 0\' WINCH'
    )
    with Terminal("exec", *options, *waiting(trap), env=env) as terminal:
        terminal.wait_for("ready\n")
        terminal.resize(33, 111)
        assert terminal.wait() == 0
        assert terminal.text.splitlines() == ["ready", "33 111", "33 111"]


def test_it_stops_and_goes_on_as_a_job_of_a_shell(env: dict[str, str]) -> None:
    bash = shutil.which("bash")
    assert bash, "the shell this test drives"
    ours = " ".join(COMMAND)
    with Terminal("exec", "--", bash, "--norc", "--noprofile", env=env | {"PS1": "$ "}) as terminal:
        terminal.wait_for("$ ")
        terminal.press(f"{ours} exec -- sh -c 'echo ready; read line; echo \"read $line\"; exit 6'\n")
        terminal.wait_for("ready\n")
        terminal.press("\x1a")
        terminal.wait_for("Stopped")
        # What is typed before may get lost between the two terminals' modes, or to `read`, which has yet to stop.
        # Processes that end meanwhile are looked at too.
        eventually(lambda: terminal.text.endswith("\n$ ") and stopped_below(terminal.pid) == 2, despite=OSError)
        terminal.press("fg\n")
        terminal.press("a word\n")
        terminal.wait_for("read a word\n")
        terminal.press("echo code=$?\n")
        terminal.wait_for("code=6\n")
        terminal.press("exit 7\n")
        assert terminal.wait() == 7
        assert "no job control" not in terminal.text


# -- the recording process -------------------------------------------------------------------------------------------


def children(pid: int) -> list[int]:
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return [int(child) for task in tasks for child in (task / "children").read_text().split()]


def stopped_below(pid: int) -> int:
    """Count the descendants of *pid* that are stopped."""
    stopped = [Path(f"/proc/{child}/stat").read_text().rpartition(") ")[2][0] == "T" for child in children(pid)]
    return sum(stopped) + sum(map(stopped_below, children(pid)))


def recording_of(pid: int) -> list[int]:
    """Return the recording processes of the exec *pid*."""
    return [child for child in children(pid) if b"exec_recording" in Path(f"/proc/{child}/cmdline").read_bytes()]


class Reading(NamedTuple):
    """An exec whose command ends when it has read a line."""

    process: Process
    stdin: FileIO
    stderr: FileIO

    @property
    def pid(self) -> int:
        return self.process.pid

    def end(self) -> tuple[int, bytes]:
        """Have the command end; return the exit code, and what stands on standard error."""
        self.stdin.write(b"go\n")
        errors = self.stderr.read()
        return self.process.wait(PATIENCE_S), errors


@contextmanager
def reading(env: dict[str, str], *, afresh: bool = False) -> Iterator[Reading]:
    """*afresh*: it is not forked by the tests, so it has only the modules that it imports."""
    with start_piped([*COMMAND, "exec", *sh("read line; exit 4")], env=env, afresh=afresh) as piped:
        yield Reading(piped.process, piped.stdin, piped.stderr)


needs_proc = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
AWAY = "redis://127.0.0.1:1/0"


@needs_proc
def test_while_the_command_runs_one_small_process_waits(env: dict[str, str], recorded: Recorded) -> None:
    with reading(env, afresh=True) as process:
        recorded.wait_for("sh", "Started")
        eventually(lambda: len(children(process.pid)) == 1, despite=OSError)
        status = Path(f"/proc/{process.pid}/status").read_text()
        (resident_kib,) = (int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS:"))
        assert resident_kib * 1024 <= 30_000_000
        assert process.end() == (4, b"")
    recorded.wait_for("sh", "Started", "Failed")


@needs_proc
def test_a_killed_recording_process_loses_its_events_only(env: dict[str, str], recorded: Recorded) -> None:
    with reading(env | {"EVENTBUS_REDIS_URL": AWAY}) as process:
        eventually(lambda: recording_of(process.pid), despite=OSError)
        (killed,) = recording_of(process.pid)
        os.kill(killed, signal.SIGKILL)
        eventually(lambda: killed not in children(process.pid), despite=OSError)
        code, errors = process.end()
    assert code == 4
    assert errors.startswith(b"eventbus exec: 2 events not sent: the recording process was ended by SIGKILL, and may ")
    assert b"127.0.0.1:1" in errors, "from the second recording process"
    assert errors.count(b"\n") == 1


@needs_proc
def test_a_signal_to_all_processes_of_a_unit_loses_no_event(
    env: dict[str, str], recorded: Recorded, tmp_path: Path
) -> None:
    with Program("exec", *waiting("trap 'exit 9' TERM"), env=env, folder=tmp_path) as program:
        eventually(lambda: "ready\n" in program.out and recording_of(program.pid), despite=OSError)
        for pid in [*recording_of(program.pid), program.pid]:  # as systemd does
            os.kill(pid, signal.SIGTERM)
        assert program.wait() == 9
        assert program.err == ""
    recorded.wait_for("sh", "Started", "Killing", "Failed")


@needs_proc
def test_the_recording_process_of_a_killed_exec_ends(env: dict[str, str]) -> None:
    with reading(env | {"EVENTBUS_REDIS_URL": AWAY}) as process:
        eventually(lambda: recording_of(process.pid), despite=OSError)
        (recording,) = recording_of(process.pid)
        process.process.send_signal(signal.SIGKILL)
        process.process.wait(PATIENCE_S)
    eventually(lambda: not _runs(recording))


def _runs(pid: int) -> bool:
    """Return True if the process *pid* exists, and has not ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] != "Z"
    except OSError:
        return False


@pytest.mark.parametrize("option", one(["-I", "-E"]))
def test_an_isolated_interpreter_starts_an_isolated_recording_process(
    option: str, env: dict[str, str], recorded: Recorded, tmp_path: Path
) -> None:
    (tmp_path / "eventbus.py").write_text("raise SystemExit('imported from PYTHONPATH')")
    words = [sys.executable, option, "-m", "eventbus", "exec", "true"]
    done = subprocess.run(words, env=env | {"PYTHONPATH": str(tmp_path)}, capture_output=True, timeout=50, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
    recorded.wait_for("true", "Started", "Completed")


@needs_proc
def test_a_bus_that_comes_back_while_the_command_runs_gets_all_events(prefix: str, short_path: Path) -> None:
    server = EmbeddedServer(short_path / "state")
    url = server.start()
    server.stop()
    began = datetime.now(UTC)
    env = environment(url, prefix)
    try:
        with reading(env) as process:
            eventually(lambda: recording_of(process.pid), despite=OSError)
            server.start()
            eventually(lambda: not recording_of(process.pid), despite=OSError)
            with recorded_on(url, prefix, since=began) as recorded:
                recorded.wait_for("sh", "Started")
                assert process.end() == (4, b"")
                recorded.wait_for("sh", "Started", "Failed")
    finally:
        server.stop()


# -- without a bus ---------------------------------------------------------------------------------------------------


def test_a_bus_that_never_will_do_is_told_in_one_line(env: dict[str, str]) -> None:
    done = run("exec", *sh("exit 3"), env=env | {"EVENTBUS_REDIS_URL": "redis://127.0.0.1:99999/0"})
    assert done.returncode == 3
    assert done.stderr.startswith("eventbus exec: 2 events not sent: ")
    assert "is the port a number?" in done.stderr
    assert done.stderr.count("\n") == 1


def test_events_that_are_kept_in_the_spool_are_told(env: dict[str, str], tmp_path: Path) -> None:
    done = run("exec", "true", env=env | {"EVENTBUS_REDIS_URL": AWAY, "EVENTBUS_SPOOL": str(tmp_path / "spool")})
    assert done.returncode == 0
    assert done.stderr.startswith(f"eventbus exec: 2 events are kept in {tmp_path}/spool/")


#: Takes longer to import redis than the bus has to answer. A part of it: for redis itself it is looked several times.
SLOW = """
import sys, time
class Slow:
    def find_spec(self, name, path=None, target=None):
        if name == "redis.client":
            time.sleep(6)
sys.meta_path.insert(0, Slow())
"""


def test_a_machine_too_busy_to_import_in_time_loses_nothing(
    env: dict[str, str], recorded: Recorded, tmp_path: Path
) -> None:
    (tmp_path / "sitecustomize.py").write_text(SLOW)
    done = run("exec", "true", env=env | {"PYTHONPATH": str(tmp_path)}, timeout_s=60)
    assert (done.returncode, done.stderr) == (0, "")
    recorded.wait_for("true", "Started", "Completed")


def test_a_setting_that_cannot_be_used_does_not_keep_it_from_running(env: dict[str, str]) -> None:
    done = run("exec", *sh("exit 3"), env=env | {"EVENTBUS_BUFFER_EVENTS": "many"})
    assert done.returncode == 3
    assert done.stderr.startswith("eventbus exec: 2 events not sent: EVENTBUS_BUFFER_EVENTS='many'")


# -- again and again -------------------------------------------------------------------------------------------------


def test_on_failure_it_is_run_again_at_once_and_then_after_pauses_until_it_succeeds(
    env: dict[str, str], recorded: Recorded, tmp_path: Path
) -> None:
    script = f"echo x >> {tmp_path}/runs; test $(wc -l < {tmp_path}/runs) -ge 4"
    # Whoever runs for twice the longest pause begins anew, so that one is long.
    pauses = ("--backoff-base", "0.05", "--backoff-max", "60")
    done = run("exec", "--object", "Service/web", "--restart", "on-failure", *pauses, *sh(script), env=env)
    assert done.returncode == 0
    crash = ["Started", "Failed", "BackOff"]
    events = recorded.wait_for("web", "Started", "Failed", *crash, *crash, "Started", "Completed")
    backoffs = [event for event in events if event.reason == "BackOff"]
    assert {event.message for event in backoffs} == {"Back-off restarting failed command sh"}, "so that they count"
    assert {event.type for event in backoffs} == {"Warning"}


# -- the embedded server ---------------------------------------------------------------------------------------------


def test_it_starts_the_embedded_server_which_outlives_it_until_down(env: dict[str, str], short_path: Path) -> None:
    settings = {name: value for name, value in env.items() if name != "EVENTBUS_REDIS_URL"}
    settings["EVENTBUS_STATE_DIR"] = str(short_path / "state")
    settings["EVENTBUS_FLUSH_S"] = str(PATIENCE_S)  # in which the server starts as well
    try:
        done = run("exec", "true", env=settings)
        assert (done.returncode, done.stderr) == (0, "")
        listed = run("status", "-o", "json", env=settings)
        assert listed.returncode == 0, listed.stderr
    finally:
        stopped, again = run("down", env=settings), run("down", "--state-dir", str(short_path / "state"), env=env)
    assert (stopped.returncode, again.returncode) == (0, 0)
    assert stopped.stdout == f"stopped the embedded server in {short_path}/state; its data stays there\n"
    assert again.stdout == f"no embedded server is running in {short_path}/state\n"
