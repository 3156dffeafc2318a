"""`python -m examples.demo`: starts everything, shows what is written as it is written, sums up, stops everything."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from eventbus import EventBusError, Options, Settings
from eventbus.broker.bus import LOG_GROUP, Bus, open_bus
from eventbus.broker.embedded.server import EmbeddedServer
from eventbus.store.object_store import ObjectStore
from examples.demo.processes import DemoFailed, Process, Processes
from examples.demo.producer import NAMESPACE, interrupt
from examples.demo.reader import Reader
from examples.demo.screen import BOLD, FAINT, HEADER, Screen
from examples.demo.summary import Line, Totals, missing, tell

PROGRAMS = {
    "commands": "runs real commands under `eventbus exec`; one of them crashes again and again",
    "packages": "follows the log of this machine's package manager",
    "program": "hashes Python's standard library in four threads",
}
#: client-go's defaults, but a held back source may speak again after 5 s instead of 5 min: a demo is short.
OPTIONS = Options(qps=1 / 5)
#: A few seconds each, on a machine that has nothing else to do; past these nothing will come any more.
START_S, PLAY_S, DRAIN_S = 60.0, 120.0, 60.0


def main() -> int:
    """Play the demo and clean up, however it ends; return the exit code."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, interrupt)
    screen = Screen()
    folder = Path(tempfile.mkdtemp(prefix="eventbus-demo-"))
    server = EmbeddedServer(folder / "server")
    processes: list[Processes] = []
    try:
        play(screen, folder, server, processes)
        return 0
    except KeyboardInterrupt:
        screen.say("interrupted: stopping what was started")
        return 130
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # nobody reads any more: the rest goes nowhere
        return 1
    except (DemoFailed, EventBusError) as error:
        print(f"demo: {error}", file=sys.stderr)
        return error.exit_code if isinstance(error, EventBusError) else 1
    finally:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)  # cleaning up takes seconds and is bounded; let it be done
        for group in processes:
            group.stop()
        server.stop()
        shutil.rmtree(folder, ignore_errors=True)


def play(screen: Screen, folder: Path, server: EmbeddedServer, processes: list[Processes]) -> None:
    """Start server, workers and programs, show what comes, and compare what was recorded with what is stored."""
    url = server.start()
    bus = open_bus(url, Settings(), options=OPTIONS)
    children = Processes(folder, environment_of(url))
    processes.append(children)
    client = bus.client(name="eventbus-demo")
    store = ObjectStore(bus, client)
    reader = Reader(store)
    try:
        screen.say("A bus of its own", BOLD)
        screen.say(f"  server      embedded, process {server.pid}, in {folder}")
        log = folder / "events.jsonl"
        start_workers(screen, children, bus, client, log)
        programs = {name: start_program(screen, children, name) for name in PROGRAMS}
        show(screen, reader, children, programs.values())
        settle(screen, reader, children, bus, client, log)
        for name, program in programs.items():
            for line in program.output[:-1]:
                screen.say(f"  {name}: {line}", FAINT)
        totals, logged, stored = Totals.read(bus, client), lines_of(log), store.list().items
        tell(screen, recorded=recorded_by(programs), totals=totals, logged=logged, stored=stored)
        ask(screen, children)
        if missed := missing(stored):
            raise DemoFailed(f"the store holds no {' and no '.join(missed)} event")
    finally:
        reader.stop()
        store.close()
        client.close()
    codes = children.stop()
    server.stop()
    if failed := {name: code for name, code in codes.items() if code}:
        raise DemoFailed(f"did not end well: {failed}")
    screen.say("  see it live eventbus up --procfile examples/Procfile says where the web page is")
    screen.say(f"  stopped     the server and {len(codes)} processes, each with exit code 0")


def environment_of(url: str) -> dict[str, str]:
    """For the children: this bus, and nothing of what the user has set for others."""
    mine = {name: value for name, value in os.environ.items() if not name.startswith("EVENTBUS_")}
    # On a machine that has much else to do, an event takes longer than a command would wait for it at its end.
    return mine | {"EVENTBUS_REDIS_URL": url, "EVENTBUS_FLUSH_S": "60", "PYTHONUNBUFFERED": "1"}


def start_workers(screen: Screen, children: Processes, bus: Bus, client: Any, log: Path) -> None:
    """The two workers; the programs begin when the log's group stands, so that its log is whole."""
    worker = ("-m", "eventbus", "worker")
    children.start("worker-log", *worker, "log", "--format", "json", "--output", str(log))
    children.start("worker-sink", *worker, "sink")
    screen.say("  workers     eventbus worker log, eventbus worker sink")

    def group_stands() -> bool:
        groups = client.xinfo_groups(bus.keys[0].incoming)
        return any(group["name"] == LOG_GROUP.encode() for group in groups)

    wait_for(group_stands, children, START_S, "the log worker did not start")


def start_program(screen: Screen, children: Processes, name: str) -> Process:
    screen.say(f"  {name:<11} {PROGRAMS[name]}")
    return children.start(name, "-m", f"examples.demo.{name}")


def show(screen: Screen, reader: Reader, children: Processes, programs: Iterable[Process]) -> None:
    """Print every change of the store until the programs have ended."""
    screen.say()
    screen.say(HEADER, BOLD)
    deadline = time.monotonic() + PLAY_S
    while any(program.exit_code is None for program in programs):
        screen.show(reader.take(timeout_s=0.2))
        children.check()
        if time.monotonic() > deadline:
            raise DemoFailed(f"the programs were not done after {PLAY_S:g} s")
    children.check()


def settle(screen: Screen, reader: Reader, children: Processes, bus: Bus, client: Any, log: Path) -> None:
    """Wait until both groups have done all there is, and print the rest of the changes."""

    def done() -> bool:
        totals = Totals.read(bus, client)
        return totals.recorded == totals.published == len(lines_of(log))

    wait_for(done, children, DRAIN_S, "the workers did not catch up")
    while events := reader.take(timeout_s=0.5):
        screen.show(events)


def ask(screen: Screen, children: Processes) -> None:
    """Run a command that a person would type now."""
    question = ("describe", "job/crash-loop", "--namespace", NAMESPACE)
    screen.say()
    screen.say(f"$ eventbus {' '.join(question)}", BOLD)
    answer = children.start("describe", "-m", "eventbus", *question)
    answer.end(START_S)
    children.check()
    for line in answer.output:
        screen.say(line)
    screen.say()


def recorded_by(programs: Mapping[str, Process]) -> dict[str, int]:
    """Return how many events each program recorded, by its own report. Raises: DemoFailed: one of them lost events."""
    reports = {name: json.loads(program.output[-1]) for name, program in programs.items()}
    if lost := {name: report["lost"] for name, report in reports.items() if report["lost"]}:
        raise DemoFailed(f"events were lost: {lost}")
    return {name: report["recorded"] for name, report in reports.items()}


def lines_of(log: Path) -> list[Line]:
    """Each whole line that the log worker has written."""
    if not log.exists():
        return []
    lines = log.read_text("utf-8").splitlines(keepends=True)
    return [Line.parse(line) for line in lines if line.endswith("\n")]


def wait_for(condition: Callable[[], bool], children: Processes, timeout_s: float, problem: str) -> None:
    """Wait until *condition* holds. Raises: DemoFailed: a child has ended, or it took too long."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        children.check()
        if time.monotonic() > deadline:
            raise DemoFailed(f"{problem} within {timeout_s:g} s")
        time.sleep(0.05)


if __name__ == "__main__":
    sys.exit(main())
