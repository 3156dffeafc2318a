"""`eventbus up`: the server, the workers and a Procfile in one foreground command that ends cleanly."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from eventbus.broker.embedded.server import EmbeddedServer
from eventbus.errors import ConfigError
from tests.acceptance.programs import COMMAND, Program, environment, run
from tests.acceptance.recorded import recorded_on
from tests.acceptance.terminal import Terminal
from tests.waiting import eventually
from workers.up import metrics_options

TICKS = "web: while :; do echo tick; sleep 0.2; done"
#: Ends neither by SIGTERM nor by itself before the test is over.
STUBBORN = "web: trap '' TERM; echo pid=$$; i=0; while [ $i -lt 900 ]; do sleep 0.1; i=$((i+1)); done"
#: Sinks and logs are at work.
READY = ("INFO eventbus-sink", "INFO eventbus-log", "INFO the API answers at")


@pytest.fixture
def state(short_path: Path) -> Iterator[Path]:
    """The directory of a server that does not outlive the test."""
    yield short_path / "state"
    EmbeddedServer(short_path / "state").stop()


@pytest.fixture
def env(state: Path) -> dict[str, str]:
    settings = {name: value for name, value in environment("", "eb").items() if name != "EVENTBUS_REDIS_URL"}
    return settings | {"EVENTBUS_STATE_DIR": str(state), "EVENTBUS_WORKER_BLOCK_MS": "100"}


@pytest.fixture
def procfile(tmp_path: Path) -> Path:
    return tmp_path / "Procfile"


def wait_for_workers(terminal: Terminal) -> None:
    for line in READY:
        terminal.wait_for(line)


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def pid_of(text: str) -> int:
    found = re.search(r"pid=(\d+)", text)
    assert found
    return int(found[1])


def metrics_at(port: str) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=50) as reply:
        text: str = reply.read().decode()
    return text


def test_each_worker_has_a_metrics_port_of_its_own(env: dict[str, str]) -> None:
    with Terminal("up", "--metrics-port", "127.0.0.1:0", env=env) as terminal:
        wait_for_workers(terminal)
        ports = dict(
            re.findall(r"(log|sink|lifecycle|agent) +\| \S+ INFO metrics and health on port (\d+) of", terminal.text)
        )
        assert set(ports) == {"log", "sink", "lifecycle", "agent"}
        for name, port in ports.items():
            # while a worker opens the bus it has nothing to tell
            eventually(lambda port=port, name=name: f'component="eventbus-{name}"' in metrics_at(port))  # type: ignore[misc]


def test_metrics_ports_follow_one_another() -> None:
    assert metrics_options("9100") == {
        name: ["--metrics-port", f"127.0.0.1:{port}"]
        for port, name in enumerate(("log", "sink", "lifecycle", "agent"), 9100)
    }
    assert metrics_options("[::1]:9100")["sink"] == ["--metrics-port", "[::1]:9101"]
    assert metrics_options("") == {"log": [], "sink": [], "lifecycle": [], "agent": []}
    with pytest.raises(ConfigError, match="65536"):
        metrics_options("65535")


# -- on a terminal ---------------------------------------------------------------------------------------------------


def test_ctrl_c_ends_the_procfile_first_then_the_workers_then_the_server(
    env: dict[str, str], state: Path, procfile: Path
) -> None:
    procfile.write_text(TICKS)
    with Terminal("up", "--procfile", str(procfile), env=env) as terminal:
        wait_for_workers(terminal)
        terminal.wait_for("web       | tick\n")
        assert EmbeddedServer(state).running()
        terminal.interrupt()
        assert terminal.wait() == 0
        text = terminal.text
    assert f"up        | bus: unix://{state}/server.sock\n" in text
    assert "up        | stopping; Ctrl-C again ends at once\n" in text
    ended = re.findall(r"(?m)up +\| (\w+): (ended by SIGTERM|ended$)", text)
    assert ended[0] == ("web", "ended by SIGTERM")
    assert sorted(ended[1:]) == [(name, "ended") for name in ("agent", "api", "lifecycle", "log", "sink")]
    assert not EmbeddedServer(state).running()


def test_names_are_coloured_on_a_terminal_alone_and_not_with_no_color(env: dict[str, str], tmp_path: Path) -> None:
    with Terminal("up", env=env) as terminal:
        wait_for_workers(terminal)
        terminal.interrupt()
        terminal.wait()
        assert re.search(r"\x1b\[\d+mup +\| \x1b\[0mbus:", terminal.raw)
    with Terminal("up", env=env | {"NO_COLOR": "1"}) as terminal:
        wait_for_workers(terminal)
        terminal.interrupt()
        terminal.wait()
        assert "\x1b" not in terminal.raw
    with Program("up", env=env, folder=tmp_path) as program:
        eventually(lambda: all(line in program.out for line in READY))
        assert program.stop() == 0
        assert "\x1b" not in program.out
        assert program.err == ""


def test_a_second_ctrl_c_ends_everything_at_once(env: dict[str, str], state: Path, procfile: Path) -> None:
    procfile.write_text(STUBBORN)
    with Terminal("up", "--procfile", str(procfile), env=env | {"EVENTBUS_DRAIN_S": "60"}) as terminal:
        terminal.wait_for("web       | pid=")
        terminal.interrupt()
        terminal.wait_for("stopping")
        terminal.interrupt()
        assert terminal.wait() == 130
        eventually(lambda: not alive(pid_of(terminal.text)))
    assert not EmbeddedServer(state).running()


def test_what_is_not_done_in_time_is_killed_and_that_is_exit_code_1(
    env: dict[str, str], state: Path, procfile: Path
) -> None:
    procfile.write_text(STUBBORN)
    with Terminal("up", "--procfile", str(procfile), env=env | {"EVENTBUS_DRAIN_S": "0.1"}) as terminal:
        terminal.wait_for("web       | pid=")
        wait_for_workers(terminal)
        terminal.interrupt()
        assert terminal.wait() == 1
        assert "up        | web: not done within 2s: killed\n" in terminal.text
        assert "up        | sink: ended\n" in terminal.text
        assert not alive(pid_of(terminal.text))
    assert not EmbeddedServer(state).running()


@pytest.mark.parametrize("ends", ["TERM", "HUP", "INT"])
def test_a_paused_terminal_holds_up_no_end(ends: str, env: dict[str, str], state: Path, procfile: Path) -> None:
    procfile.write_text("web: yes")  # more than any queue holds
    with Terminal("up", "--procfile", str(procfile), env=env) as terminal:
        wait_for_workers(terminal)
        terminal.press("\x13")  # Ctrl-S
        eventually(lambda: is_still(terminal))
        os.kill(terminal.pid, signal.Signals[f"SIG{ends}"])
        assert terminal.wait(60) == 0
    assert not EmbeddedServer(state).running()


def is_still(terminal: Terminal) -> bool:
    """Return True if it has written nothing for half a second."""
    before = len(terminal.raw)
    time.sleep(0.5)
    return len(terminal.raw) == before


def test_the_signal_of_a_terminal_that_goes_away_ends_everything(
    env: dict[str, str], state: Path, procfile: Path
) -> None:
    procfile.write_text(STUBBORN.replace("''", "'exit 0'"))
    terminal = Terminal("up", "--procfile", str(procfile), env=env)
    with terminal:
        terminal.wait_for("web       | pid=")
        os.kill(terminal.pid, signal.SIGHUP)
        assert terminal.wait() == 0
    assert not EmbeddedServer(state).running()


# -- processes that end ----------------------------------------------------------------------------------------------


def test_what_fails_is_started_again_and_told_and_recorded(
    embedded_url: str, prefix: str, procfile: Path, tmp_path: Path
) -> None:
    env = environment(embedded_url, prefix, worker_block_ms="100")
    procfile.write_text(
        f"crash: echo x >> {tmp_path}/runs; test $(wc -l < {tmp_path}/runs) -ge 3 || {{ echo dying; exit 4; }}"
    )
    pauses = ("--backoff-base", "0.1", "--backoff-max", "0.1")
    with (
        recorded_on(embedded_url, prefix) as recorded,
        Program("up", "--procfile", str(procfile), *pauses, env=env, folder=tmp_path) as program,
    ):
        eventually(lambda: "up        | crash: completed after" in program.out)
        crash = ["Started", "Failed", "BackOff"]
        events = recorded.wait_for("crash", *crash, *crash, "Started", "Completed")
        assert program.stop() == 0
    told = [line for line in program.out.splitlines() if line.startswith(("up        | crash", "crash "))]
    assert told[:3] == [
        "crash     | dying",
        "up        | crash: exit code 4 after <1s: dying; back-off 0.1s",
        "up        | crash: starting it again",
    ]
    assert events[1].message == "crash: exit code 4 after <1s: dying"
    assert (events[1].type, events[2].type) == ("Warning", "Warning")
    assert events[0].involved_object.kind == "Process"
    assert events[0].source.component == "eventbus-up"


def test_it_records_its_own_life_as_workers_do(env: dict[str, str], state: Path, tmp_path: Path) -> None:
    def own() -> list[str]:
        listed = run("get", "events", "-n", "eventbus-system", "-o", "json", env=env)
        events = json.loads(listed.stdout)["items"] if listed.returncode == 0 else []
        return [event["reason"] for event in events if event["source"]["component"] == "eventbus-up"]

    with Program("up", env=env, folder=tmp_path) as program:
        eventually(lambda: "Starting" in own())
        pid = EmbeddedServer(state).pid
        assert pid
        os.kill(pid, signal.SIGSTOP)
        eventually(lambda: "up        | lost Redis: " in program.out)
        os.kill(pid, signal.SIGCONT)
        eventually(lambda: {"LostRedis", "Reconnected"} <= set(own()), within_s=60)
        assert program.stop() == 0
    with Program("worker", "sink", env=env, folder=tmp_path) as sink:  # the store has the last word only now
        eventually(lambda: "Stopping" in own())
        sink.stop()


def test_a_worker_that_is_killed_is_started_again(env: dict[str, str], tmp_path: Path) -> None:
    with Program("up", "--backoff-base", "0.1", env=env, folder=tmp_path) as program:
        eventually(lambda: all(line in program.out for line in READY))
        found = re.search(r"INFO eventbus-sink \S+-(\d+)-\w+ works", program.out)
        assert found
        os.kill(int(found[1]), signal.SIGKILL)
        eventually(lambda: len(re.findall(r"(?m)^sink +\| .*INFO eventbus-sink", program.out)) == 2)
        assert "up        | sink: ended by SIGKILL" in program.out
        assert program.stop() == 0


def test_a_server_that_is_killed_is_started_again(env: dict[str, str], state: Path, tmp_path: Path) -> None:
    with Program("up", env=env, folder=tmp_path) as program:
        eventually(lambda: all(line in program.out for line in READY))
        server = EmbeddedServer(state)
        first = server.pid
        assert first
        os.kill(first, signal.SIGKILL)
        eventually(lambda: server.pid not in (None, first))
        done = run("record", "Thing/x", "--reason", "Seen", "--message", "after it came back", env=env)
        assert done.returncode == 0, done.stderr
        eventually(lambda: "after it came back" in program.out)
        assert program.stop() == 0
    assert "up        | the embedded server is gone; starting it again\n" in program.out
    assert not server.running()


@pytest.mark.parametrize("end", ["wait", "exit 3", "exit 0"])
def test_what_a_line_has_started_ends_with_it(end: str, env: dict[str, str], procfile: Path, tmp_path: Path) -> None:
    procfile.write_text(f"web: sleep 900 & echo pid=$!; {end}")
    with Program("up", "--procfile", str(procfile), env=env, folder=tmp_path) as program:
        eventually(lambda: "pid=" in program.out)
        if end == "wait":
            assert program.stop() == 0
        eventually(lambda: not alive(pid_of(program.out)))
        if end != "wait":
            assert program.stop() == 0


# -- the bus ---------------------------------------------------------------------------------------------------------


def test_everything_finds_the_bus_and_a_procfile_finds_the_command(
    env: dict[str, str], procfile: Path, tmp_path: Path
) -> None:
    procfile.write_text("once: eventbus record Thing/x --reason Seen --message from-a-line; echo code=$?")
    bare = env | {"PATH": "/usr/bin:/bin"}
    with Program("up", "--procfile", str(procfile), env=bare, folder=tmp_path) as program:
        eventually(lambda: "once      | code=0\n" in program.out)
        eventually(lambda: "from-a-line" in run("get", "events", env=env).stdout)
        assert program.stop() == 0


def test_a_line_named_like_a_worker_takes_its_place(env: dict[str, str], procfile: Path, tmp_path: Path) -> None:
    procfile.write_text("log: echo mine; exec sleep 900")
    with Program("up", "--procfile", str(procfile), env=env, folder=tmp_path) as program:
        eventually(lambda: "log       | mine\n" in program.out and "INFO eventbus-sink" in program.out)
        assert program.stop() == 0
    assert "INFO eventbus-log" not in program.out


def test_with_a_url_there_is_no_embedded_server(embedded_url: str, prefix: str, state: Path, tmp_path: Path) -> None:
    env = environment(embedded_url, prefix, state_dir=str(state), worker_block_ms="100")
    with Program("up", env=env, folder=tmp_path) as program:
        eventually(lambda: all(line in program.out for line in READY))
        assert program.stop() == 0
    assert not state.exists()
    assert run("status", env=env).returncode == 0, "the server that was given is left running"


def test_a_server_that_was_there_is_used_and_left_running(env: dict[str, str], state: Path, tmp_path: Path) -> None:
    server = EmbeddedServer(state)
    server.start()
    pid = server.pid
    with Program("up", env=env, folder=tmp_path) as program:
        eventually(lambda: all(line in program.out for line in READY))
        assert program.stop() == 0
    assert server.pid == pid


def test_a_second_one_in_the_same_directory_says_whom_it_joins(env: dict[str, str], tmp_path: Path) -> None:
    with Program("up", env=env, folder=tmp_path) as first:
        eventually(lambda: all(line in first.out for line in READY))
        with Program("up", env=env, folder=tmp_path) as second:
            eventually(lambda: all(line in second.out for line in READY))
            joins = f"up        | another eventbus up (process {first.pid}) runs here; these workers join it\n"
            assert joins in second.out
            assert second.stop() == 0
        assert "another" not in first.out
        assert first.stop() == 0


def test_workers_end_by_themselves_when_theirs_is_killed(env: dict[str, str], tmp_path: Path) -> None:
    with Program("up", env=env, folder=tmp_path) as program:
        eventually(lambda: all(line in program.out for line in READY))
        pids = [int(pid) for pid in re.findall(r"INFO eventbus-\w+ \S+-(\d+)-\w+ works", program.out)]
        assert len(pids) == 5
        program.kill()
        eventually(lambda: not any(map(alive, pids)), within_s=60)


def test_down_leaves_a_server_that_up_keeps_running_and_says_what_to_do(
    env: dict[str, str], state: Path, tmp_path: Path
) -> None:
    with Program("up", env=env, folder=tmp_path) as program:
        eventually(lambda: all(line in program.out for line in READY))
        pid = EmbeddedServer(state).pid
        done = run("down", env=env)
        assert (done.returncode, done.stdout) == (1, "")
        assert f"`eventbus up` (process {program.pid}) keeps the server in {state} running" in done.stderr
        assert f"kill {program.pid}\n" in done.stderr
        assert EmbeddedServer(state).pid == pid
        assert program.stop() == 0
    assert run("down", env=env).stdout == f"no embedded server is running in {state}\n"


def test_a_directory_of_ones_own_is_told_for_the_other_terminals(
    env: dict[str, str], short_path: Path, tmp_path: Path
) -> None:
    own = short_path / "own"
    with Program("up", "--state-dir", str(own), env=env, folder=tmp_path) as program:
        eventually(lambda: all(line in program.out for line in READY))
        assert f"(elsewhere: export EVENTBUS_STATE_DIR={own})\n" in program.out
        assert run("status", env=env | {"EVENTBUS_STATE_DIR": str(own)}).returncode == 0
        assert program.stop() == 0
    assert not EmbeddedServer(own).running()


def test_with_redis_away_everything_runs_and_waits(prefix: str, procfile: Path, tmp_path: Path) -> None:
    env = environment("redis://127.0.0.1:1/0", prefix)
    procfile.write_text(TICKS)
    with Program("up", "--procfile", str(procfile), env=env, folder=tmp_path) as program:
        eventually(lambda: program.out.count("waiting for Redis") >= 2 and "web       | tick" in program.out)
        assert program.stop() == 0


@pytest.mark.parametrize("words", [("up",), ("down",), ("status",), ("doctor",)], ids=" ".join)
def test_a_folder_that_others_may_write_to_is_told_in_one_line(
    env: dict[str, str], short_path: Path, words: tuple[str, ...]
) -> None:
    folder = short_path / "open"
    folder.mkdir()
    folder.chmod(0o777)
    ran = run(*words, env=env | {"EVENTBUS_STATE_DIR": str(folder)})
    assert ran.returncode == 2
    assert "Traceback" not in ran.stderr
    said = ran.stdout if words == ("doctor",) else ran.stderr
    assert "others may write to it (mode 777)" in said
    assert "chmod 700" in said
    if words != ("doctor",):
        assert said.startswith("error: ")
        assert said.count("\n") == 1
    assert not list(folder.iterdir())


# -- what cannot be --------------------------------------------------------------------------------------------------


def test_a_reader_that_goes_away_ends_everything(env: dict[str, str], state: Path) -> None:
    with subprocess.Popen([*COMMAND, "up"], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as program:
        assert program.stdout is not None
        assert program.stderr is not None
        assert program.stdout.readline().startswith(b"up        | bus:")
        program.stdout.close()
        assert program.wait(30) == 0
        assert program.stderr.read() == b""
    assert not EmbeddedServer(state).running()


@pytest.mark.parametrize(
    ("text", "problem"), [("no colon", ":1: not of the form"), (None, "cannot be read: No such file or directory")]
)
def test_a_procfile_that_cannot_be_used_starts_nothing(
    text: str | None, problem: str, env: dict[str, str], state: Path, procfile: Path
) -> None:
    if text is not None:
        procfile.write_text(text)
    done = run("up", "--procfile", str(procfile), env=env)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: ")
    assert problem in done.stderr
    assert not state.exists()


def test_a_server_that_cannot_be_started_is_told_before_anything_runs(
    env: dict[str, str], procfile: Path, tmp_path: Path
) -> None:
    procfile.write_text(f"web: touch {tmp_path}/ran")
    done = run("up", "--procfile", str(procfile), "--state-dir", "/dev/null/state", env=env)
    assert done.returncode == 2
    assert "the state directory /dev/null/state cannot be used" in done.stderr
    assert not (tmp_path / "ran").exists()


def test_a_program_of_ours_named_workers_elsewhere_is_not_taken_for_it(
    env: dict[str, str], state: Path, tmp_path: Path
) -> None:
    (tmp_path / "workers").mkdir()
    (tmp_path / "workers" / "__init__.py").write_text("raise SystemExit('not ours')")
    words = [str(Path(sys.executable).with_name("eventbus")), "up"]
    with subprocess.Popen(words, env=env, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as program:
        assert program.stdout is not None
        lines = iter(program.stdout.readline, "")
        assert any("INFO eventbus-sink" in line for line in lines)
        program.send_signal(signal.SIGTERM)
        assert "not ours" not in program.stdout.read()
        assert program.wait(30) == 0
