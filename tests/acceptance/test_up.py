"""`eventbus up`: the server, the workers and a Procfile in one foreground command that ends cleanly."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from eventbus.agent.logs import LocalPods
from eventbus.agent.node.factory import node_name
from eventbus.agent.shim.procfs import read_process
from eventbus.broker.connection.connect import make_client
from eventbus.broker.embedded.server import EmbeddedServer
from eventbus.errors import ConfigError
from eventbus.workers.up_run import WORKERS, metrics_options
from tests.acceptance.programs import COMMAND, Program, environment, run
from tests.acceptance.recorded import recorded_on
from tests.acceptance.terminal import Terminal
from tests.thin import one
from tests.waiting import eventually

TICKS = "web: while :; do echo tick; sleep 0.2; done"
#: Ends neither by SIGTERM nor by itself before the test is over.
STUBBORN = "web: trap '' TERM; echo pid=$$; i=0; while [ $i -lt 900 ]; do sleep 0.1; i=$((i+1)); done"
#: Everything but the API, which takes as long to start as the others together.
UP = ("up", "--api", "none")
#: Sinks and logs are at work.
SINK = ("INFO eventbus-sink",)
READY = (*SINK, "INFO eventbus-log")
OF_UP = (*READY, "INFO eventbus-lifecycle", "INFO eventbus-agent")
ALL = (*OF_UP, "INFO eventbus-api")


def instead_of_workers(*real: str) -> str:
    """Lines in the places of all workers but the *real* ones: to start these takes longer than all else in a test."""
    return "".join(f"\n{name}: echo works; exec sleep 900" for name in WORKERS if name not in real)


@pytest.fixture
def state(short_path: Path) -> Iterator[Path]:
    """The directory of a server that does not outlive the test, and neither do lines that a killed `up` has left."""
    yield short_path / "state"
    EmbeddedServer(short_path / "state").stop()
    for pod in LocalPods(short_path / "state" / "up").all():
        if pod.sandbox is not None and pod.sandbox.ready:
            os.kill(pod.sandbox.shim_pid, signal.SIGTERM)


@pytest.fixture
def env(state: Path) -> dict[str, str]:
    settings = {name: value for name, value in environment("", "eb").items() if name != "EVENTBUS_REDIS_URL"}
    return settings | {"EVENTBUS_STATE_DIR": str(state), "EVENTBUS_WORKER_BLOCK_MS": "100"}


@pytest.fixture
def procfile(tmp_path: Path) -> Path:
    return tmp_path / "Procfile"


def wait_for_workers(terminal: Terminal, lines: Sequence[str]) -> None:
    for line in lines:
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


@pytest.mark.volume
def test_each_worker_has_a_metrics_port_of_its_own(env: dict[str, str]) -> None:
    def ports() -> dict[str, str]:
        return dict(re.findall(r"(\w+) +\| \S+ INFO metrics and health on port (\d+) of", terminal.text))

    with Terminal(*UP, "--metrics-port", "127.0.0.1:0", env=env) as terminal:
        eventually(lambda: set(ports()) == {"log", "sink", "lifecycle", "agent"})
        for name, port in ports().items():
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
    with Terminal(*UP, "--procfile", str(procfile), env=env | {"EVENTBUS_DRAIN_S": "60"}) as terminal:
        wait_for_workers(terminal, OF_UP)
        terminal.wait_for("web       | tick\n")
        assert EmbeddedServer(state).running()
        terminal.interrupt()
        assert terminal.wait() == 0
        text = terminal.text
        assert re.search(r"\x1b\[\d+mup +\| \x1b\[0mbus:", terminal.raw)
    assert f"up        | bus: unix://{state}/server.sock\n" in text
    assert "up        | stopping; Ctrl-C again ends everything at once\n" in text
    ended = re.findall(r"(?m)up +\| (\w+): (ended by SIGTERM|ended$)", text)
    assert ended[0] == ("web", "ended by SIGTERM")
    assert sorted(ended[1:]) == [(name, "ended") for name in ("agent", "lifecycle", "log", "sink")]
    assert not EmbeddedServer(state).running()


def test_a_second_ctrl_c_ends_everything_at_once(env: dict[str, str], state: Path, procfile: Path) -> None:
    procfile.write_text(STUBBORN + instead_of_workers())
    with Terminal(*UP, "--procfile", str(procfile), env=env | {"EVENTBUS_DRAIN_S": "60"}) as terminal:
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
    procfile.write_text(STUBBORN + instead_of_workers())
    with Terminal(*UP, "--procfile", str(procfile), env=env | {"EVENTBUS_DRAIN_S": "1"}) as terminal:
        terminal.wait_for("web       | pid=")
        terminal.interrupt()
        assert terminal.wait() == 1
        assert "up        | web: not done in time: ended by SIGKILL after " in terminal.text
        assert "up        | sink: ended by SIGTERM" in terminal.text
        assert not alive(pid_of(terminal.text))
    assert not EmbeddedServer(state).running()


@pytest.mark.parametrize("ends", one(["TERM", "HUP", "INT"]))
def test_a_paused_terminal_holds_up_no_end(ends: str, env: dict[str, str], state: Path, procfile: Path) -> None:
    procfile.write_text("web: while :; do seq 2000; sleep 0.05; done" + instead_of_workers())
    with Terminal(*UP, "--procfile", str(procfile), env=env) as terminal:
        terminal.wait_for("web       | 2000\n")  # more than the queue holds, and it goes on
        terminal.press("\x13")  # Ctrl-S
        eventually(lambda: is_still(terminal))
        os.kill(terminal.pid, signal.Signals[f"SIG{ends}"])
        assert terminal.wait() == 0
    assert not EmbeddedServer(state).running()


def is_still(terminal: Terminal) -> bool:
    """Return True if it has written nothing for half a second."""
    before = len(terminal.raw)
    time.sleep(0.5)
    return len(terminal.raw) == before


# -- processes that end ----------------------------------------------------------------------------------------------


def test_what_fails_is_started_again_and_told_and_recorded(
    embedded_url: str, prefix: str, procfile: Path, tmp_path: Path
) -> None:
    env = environment(embedded_url, prefix, worker_block_ms="100")
    procfile.write_text(
        f"crash: echo x >> {tmp_path}/runs; test $(wc -l < {tmp_path}/runs) -ge 3 || {{ echo dying; exit 4; }}"
        + instead_of_workers()
    )
    pauses = ("--backoff-base", "0.1", "--backoff-max", "0.1")
    with (
        recorded_on(embedded_url, prefix) as recorded,
        Program(*UP, "--procfile", str(procfile), *pauses, env=env, folder=tmp_path) as program,
    ):
        eventually(lambda: "up        | crash: completed after" in program.out)
        pod = f"crash-{node_name(os.uname().nodename)}"
        wanted = {"Created": 3, "Started": 3, "Failed": 2, "Completed": 1}
        # As the kubelet, it says BackOff as often as it looks.
        eventually(lambda: Counter(recorded.reasons(pod)) - Counter(BackOff=99) == Counter(wanted))
        events = recorded.about(pod)
        assert program.stop() == 0
    out = re.sub(r" after \S+:", " after TIME:", program.out)
    told = [line for line in out.splitlines() if line.startswith(("up        | crash", "crash "))]
    assert told[:3] == [
        "crash     | dying",
        "up        | crash: exit code 4 after TIME: dying",
        "up        | crash: starting it again",
    ]
    failed = next(event for event in events if event.reason == "Failed")
    assert failed.type == "Warning"
    assert re.fullmatch(r"crash: exit code 4 after \S+: dying", failed.message)
    assert failed.involved_object.kind == "Pod"
    assert failed.involved_object.field_path == "spec.containers{crash}"
    assert failed.source.component == "eventbus-up"


def shims_in(state: Path) -> list[int]:
    pods = LocalPods(state / "up").all()
    return [pod.sandbox.shim_pid for pod in pods if pod.sandbox is not None and pod.sandbox.ready]


def test_what_a_killed_one_has_left_is_named_by_doctor_and_ended_by_down(
    env: dict[str, str], state: Path, procfile: Path, tmp_path: Path
) -> None:
    procfile.write_text("web: echo pid=$$; exec sleep 900" + instead_of_workers())
    with Program(*UP, "--procfile", str(procfile), env=env, folder=tmp_path) as first:
        eventually(lambda: "pid=" in first.out and "web-" in run("get", "pods", env=env).stdout)
        left = pid_of(first.out)
        assert "has left running" not in run("doctor", env=env).stdout
        assert "ended what" not in run("down", env=env).stdout
        assert alive(left)
        first.kill()
    assert alive(left)
    web = f"web-{node_name(os.uname().nodename)}"
    assert re.search(rf"has left running: .*{web}\n", run("doctor", env=env).stdout)
    shims = shims_in(state)
    ended = run("down", env=env).stdout
    assert re.search(rf"ended processes of a killed `eventbus up`: .*{web}\n", ended)
    assert shims
    assert all((found := read_process(pid)) is None or found.gone for pid in (left, *shims))
    assert "has left running" not in run("doctor", env=env).stdout
    assert "web-" not in run("get", "pods", env=env).stdout


def test_get_pods_shows_what_runs_under_it_until_it_ends(env: dict[str, str], procfile: Path, tmp_path: Path) -> None:
    procfile.write_text("web: echo hello; exec sleep 900" + instead_of_workers())
    pod = f"web-{node_name(os.uname().nodename)}"
    secret = {"OF_MINE_PASSWORD": "kept-to-myself"}
    with Program(*UP, "--procfile", str(procfile), env=env | secret, folder=tmp_path) as program:
        eventually(lambda: re.search(rf"{pod} +1/1 +Running", run("get", "pods", env=env).stdout) is not None)

        def everywhere() -> str:
            return run("get", "pods", "-A", "-o", "json", env=env).stdout

        def names() -> set[str]:
            return {item["metadata"]["name"].partition("-")[0] for item in json.loads(everywhere())["items"]}

        eventually(lambda: {"web", *WORKERS} <= names())
        assert "OF_MINE_PASSWORD" not in everywhere()
        assert run("get", "pods", "-n", "elsewhere", env=env).stdout == ""
        assert run("logs", "web", env=env).stdout == "hello\n"
        deleted = run("delete", f"pod/{pod}", env=env)
        assert deleted.stderr.splitlines()[0].startswith(f"{pod} is a process of `eventbus up`")
        assert program.stop() == 0
    assert run("get", "pods", "-A", env=env).stdout == ""


def test_the_address_of_the_page_comes_last_again_on_a_signal_and_in_status(
    env: dict[str, str], procfile: Path, tmp_path: Path
) -> None:
    procfile.write_text("web: exec sleep 900" + instead_of_workers())
    with Program("up", "--api", "127.0.0.1:0", "--procfile", str(procfile), env=env, folder=tmp_path) as program:
        last = re.compile(r"^up +\| the web page is at (http\S+)$", re.MULTILINE)
        eventually(lambda: last.search(program.out) is not None)
        told = last.search(program.out)
        assert told is not None
        assert program.out.index("INFO the API answers at") < told.start()
        assert "Page:     " + told[1] in run("status", env=env).stdout.splitlines()
        assert json.loads(run("status", "-o", "json", env=env).stdout)["page"] == told[1]
        program.signal(signal.SIGUSR1)
        eventually(lambda: len(re.findall(r"^up +\| the web page is at http", program.out, re.MULTILINE)) == 2)
        assert program.stop() == 0
    assert "Page:" not in run("status", env=env).stdout


def test_a_quiet_one_shows_what_lines_print_and_of_workers_what_is_wrong_alone(
    env: dict[str, str], procfile: Path, tmp_path: Path
) -> None:
    at = "2026-01-01T00:00:00.000Z"
    said = (f"{at} INFO fine", f"{at}  default  Normal  Started  pod/x", f"{at} WARNING odd", "Traceback")
    procfile.write_text(
        "web: echo hello; exec sleep 900\n"
        + f"sink: {'; '.join(f'echo {line!r}' for line in said)}; exec sleep 900"
        + instead_of_workers("sink")
    )
    with Program(*UP, "--quiet", "--procfile", str(procfile), env=env, folder=tmp_path) as program:
        eventually(lambda: "Traceback" in program.out and "hello" in program.out)
        assert "WARNING odd" in program.out
        assert "INFO fine" not in program.out
        assert "pod/x" not in program.out
        assert "\x1b" not in program.out
        assert program.stop() == 0


def test_what_a_killed_one_has_left_is_ended_and_taken_out_by_the_next(
    env: dict[str, str], procfile: Path, tmp_path: Path
) -> None:
    procfile.write_text("web: echo pid=$$; exec sleep 900" + instead_of_workers())
    other = tmp_path / "Other"
    other.write_text("other: exec sleep 900" + instead_of_workers())

    def shown() -> set[str]:
        return {line.split("-")[0] for line in run("get", "pods", "--no-headers", env=env).stdout.splitlines()}

    with Program(*UP, "--procfile", str(procfile), env=env, folder=tmp_path) as first:
        eventually(lambda: "pid=" in first.out and "web" in shown())
        left = pid_of(first.out)
        first.kill()
    assert alive(left)
    with Program(*UP, "--procfile", str(other), env=env, folder=tmp_path) as second:
        eventually(lambda: "other" in shown())
        assert "web" not in shown()
        assert not alive(left)
        assert "left running by an `eventbus up` that was killed; ended" in second.out
        assert second.stop() == 0


def test_two_lines_of_the_same_name_as_pods_are_refused(env: dict[str, str], procfile: Path) -> None:
    procfile.write_text("my_web: exec sleep 900\nmy-web: exec sleep 900")
    done = run(*UP, "--procfile", str(procfile), env=env)

    assert done.returncode == 2
    assert "two lines, my_web and my-web, are called my-web as pods" in done.stderr


def test_lines_have_the_env_file_and_a_port_each_and_a_second_up_is_refused(
    env: dict[str, str], procfile: Path, tmp_path: Path
) -> None:
    procfile.write_text("web: echo $COLOUR at $PORT, $$HOME\nwork: echo $COLOUR at $PORT" + instead_of_workers())
    (procfile.parent / ".env").write_text("COLOUR='$(blue)'\n")
    with Program(*UP, "--procfile", str(procfile), env=env, folder=tmp_path) as program:
        eventually(
            lambda: "web       | $(blue) at 5000, " in program.out and "work      | $(blue) at 5100" in program.out
        )
        second = run("up", env=env)
        assert program.stop() == 0
    assert (second.returncode, second.stdout) == (2, "")
    assert f"`eventbus up` already runs for this bus (process {program.pid}; " in second.stderr


def test_a_port_that_a_line_cannot_have_starts_nothing(env: dict[str, str], state: Path, procfile: Path) -> None:
    procfile.write_text(TICKS)
    ended = run(*UP, "--procfile", str(procfile), env=env | {"PORT": "tcp://10.0.0.7:80"})
    assert (ended.returncode, "PORT='tcp://10.0.0.7:80' is not a port" in ended.stderr) == (2, True)
    assert not state.exists()


def test_where_a_part_does_not_start_those_before_it_end(env: dict[str, str], state: Path) -> None:
    state.mkdir(mode=0o700)
    (state / "up").write_text("in the place of a folder")
    ended = run(*UP, env=env)
    assert (ended.returncode, ended.stderr.count("\n")) == (2, 1)
    assert f"{state}/up cannot be used: File exists" in ended.stderr
    assert not EmbeddedServer(state).running()


@pytest.mark.volume
def test_a_worker_that_is_killed_is_started_again(env: dict[str, str], procfile: Path, tmp_path: Path) -> None:
    procfile.write_text(instead_of_workers("sink"))
    words = (*UP, "--procfile", str(procfile), "--backoff-base", "0.1")
    with Program(*words, env=env, folder=tmp_path) as program:
        eventually(lambda: all(line in program.out for line in SINK))
        found = re.search(r"INFO eventbus-sink \S+-(\d+)-\w+ works", program.out)
        assert found
        os.kill(int(found[1]), signal.SIGKILL)
        eventually(lambda: len(re.findall(r"(?m)^sink +\| .*INFO eventbus-sink", program.out)) == 2)
        assert "up        | sink: ended by SIGKILL" in program.out
        assert program.stop() == 0


@pytest.mark.volume
def test_a_server_that_is_killed_is_started_again(env: dict[str, str], state: Path, tmp_path: Path) -> None:
    with Program(*UP, env=env, folder=tmp_path) as program:
        eventually(lambda: all(line in program.out for line in READY))
        server = EmbeddedServer(state)
        first, url = server.pid, server.url
        assert first
        assert url
        with make_client(url) as client:  # a kill loses writes that wait for a busy disk, such as the log's group
            client.config_set("appendfsync", "always")
        os.kill(first, signal.SIGKILL)
        eventually(lambda: server.pid not in (None, first))
        done = run("record", "Thing/x", "--reason", "Seen", "--message", "after it came back", env=env)
        assert done.returncode == 0, done.stderr
        eventually(lambda: "after it came back" in program.out)
        assert program.stop() == 0
    assert "up        | the embedded server has exited; starting it again\n" in program.out
    assert not server.running()


@pytest.mark.parametrize("end", one(["wait", "exit 3", "exit 0"]))
def test_what_a_line_has_started_ends_with_it(end: str, env: dict[str, str], procfile: Path, tmp_path: Path) -> None:
    procfile.write_text(f"web: sleep 900 & echo pid=$!; {end}" + instead_of_workers())
    with Program(*UP, "--procfile", str(procfile), env=env, folder=tmp_path) as program:
        eventually(lambda: "pid=" in program.out)
        if end == "wait":
            assert program.stop() == 0
        eventually(lambda: not alive(pid_of(program.out)))
        if end != "wait":
            assert program.stop() == 0


# -- the bus ---------------------------------------------------------------------------------------------------------


@pytest.mark.volume
def test_everything_finds_the_bus_and_a_procfile_finds_the_command(
    env: dict[str, str], procfile: Path, tmp_path: Path
) -> None:
    procfile.write_text("once: eventbus record Thing/x --reason Seen --message from-a-line; echo code=$?")
    bare = env | {"PATH": "/usr/bin:/bin"}
    with Program(*UP, "--procfile", str(procfile), env=bare, folder=tmp_path) as program:
        eventually(lambda: "once      | code=0\n" in program.out)
        eventually(lambda: "from-a-line" in run("get", "events", env=env).stdout)
        assert program.stop() == 0


@pytest.mark.volume
def test_with_a_url_there_is_no_embedded_server(embedded_url: str, prefix: str, state: Path, tmp_path: Path) -> None:
    env = environment(embedded_url, prefix, state_dir=str(state), worker_block_ms="100")
    with Program(*UP, env=env, folder=tmp_path) as program:
        eventually(lambda: all(line in program.out for line in READY))
        for url in (embedded_url, f"{embedded_url}?db=0"):
            second = run("up", "--state-dir", str(state.parent / "other"), env=env | {"EVENTBUS_REDIS_URL": url})
            assert (second.returncode, second.stdout) == (2, "")
            assert f"`eventbus up` already runs for this bus (process {program.pid}; " in second.stderr
        assert program.stop() == 0
    assert not EmbeddedServer(state).running()
    assert run("status", env=env).returncode == 0, "the server that was given is left running"


@pytest.mark.volume
def test_workers_end_by_themselves_when_theirs_is_killed(env: dict[str, str], tmp_path: Path) -> None:
    with Program("up", env=env, folder=tmp_path) as program:
        eventually(lambda: all(line in program.out for line in ALL))
        pids = [int(pid) for pid in re.findall(r"INFO eventbus-\w+ \S+-(\d+)-\w+ works", program.out)]
        assert len(pids) == 5
        program.kill()
        eventually(lambda: not any(map(alive, pids)), within_s=60)


@pytest.mark.volume
def test_down_leaves_a_server_that_up_keeps_running_and_says_what_to_do(
    env: dict[str, str], state: Path, tmp_path: Path
) -> None:
    with Program(*UP, env=env, folder=tmp_path) as program:
        eventually(lambda: all(line in program.out for line in READY))
        pid = EmbeddedServer(state).pid
        done = run("down", env=env)
        assert (done.returncode, done.stdout) == (1, "")
        assert f"`eventbus up` (process {program.pid}) keeps the server in {state} running" in done.stderr
        assert f"kill {program.pid}\n" in done.stderr
        assert EmbeddedServer(state).pid == pid
        assert program.stop() == 0
    assert run("down", env=env).stdout == f"no embedded server is running in {state}\n"


def test_with_redis_away_lines_run(prefix: str, procfile: Path, tmp_path: Path) -> None:
    env = environment("redis://127.0.0.1:1/0", prefix)
    procfile.write_text(TICKS + instead_of_workers())
    with Program(*UP, "--procfile", str(procfile), env=env, folder=tmp_path) as program:
        eventually(lambda: program.out.count("web       | tick") > 10)  # it has looked for Redis meanwhile
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


@pytest.mark.volume
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
