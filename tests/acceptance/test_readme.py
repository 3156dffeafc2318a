"""The program and the commands of the README and of the tour do what the pages show."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from eventbus import EventBroadcaster, Settings
from eventbus.broker.bus import open_bus
from eventbus.broker.embedded.server import EmbeddedServer
from eventbus.store.object_store import ObjectStore
from tests.acceptance.terminal import Terminal, run_on_terminal
from tests.waiting import eventually, reached

ROOT = Path(__file__).parents[2]
#: A command that is typed again and again starts a few processes meanwhile.
ANSWER_S = 45.0
README = (ROOT / "README.md").read_text(encoding="utf-8")
TOUR = (ROOT / "docs" / "walkthrough.md").read_text(encoding="utf-8")


def example() -> str:
    (found,) = re.findall(r"^```python\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
    return str(found)


def test_the_store_counts_the_events_of_the_example(short_path: Path) -> None:
    server = EmbeddedServer(short_path)
    environment = os.environ | {"EVENTBUS_STATE_DIR": str(short_path)}
    environment.pop("EVENTBUS_REDIS_URL", None)
    try:
        done = subprocess.run(
            [sys.executable, "-c", example()], env=environment, capture_output=True, text=True, timeout=50, check=False
        )

        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
        assert counts(server.start()) == {"Scheduled": 1, "BackOff": 12}
    finally:
        server.stop()


def counts(url: str) -> dict[str, int]:
    """Return the counts by reason after a worker has stored all events."""
    client = (bus := open_bus(url, Settings())).client()
    store = ObjectStore(bus, client)
    try:
        with EventBroadcaster(url) as broadcaster:
            broadcaster.start_recording_to_sink()
            eventually(lambda: sum(counted(store).values()) >= 13)
        return counted(store)
    finally:
        client.close()


def counted(store: ObjectStore) -> dict[str, int]:
    return {event.reason: event.count for event in store.list("default").items}


# -- the walkthrough -------------------------------------------------------------------------------------------------


class Step(NamedTuple):
    """A command of a page, and the lines that the page shows below it."""

    command: str
    shown: list[str]


#: What differs from run to run: ages, counts, the ends of names, folders, hosts.
VARYING = re.compile(r"\(?x?\d+[smh]?\)?|[\w-]+\.[0-9a-f]{16}|/\S+;|-+|…")


def walkthrough(page: str) -> list[list[Step]]:
    """Return the console blocks of a page, each with its steps."""
    blocks = re.findall(r"^```console\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    return [
        [Step(first.partition("  #")[0].strip(), shown) for first, *shown in map(str.splitlines, steps)]
        for steps in (re.split(r"^\$ ", block, flags=re.MULTILINE)[1:] for block in blocks)
    ]


def missing_lines(shown: Sequence[str], answer: str) -> list[str]:
    """Return the shown lines that no line of *answer* resembles."""
    found = [set(line.split()) for line in answer.splitlines()]
    wanted = [{word for word in line.split() if not VARYING.fullmatch(word)} for line in shown]
    return [line for line, words in zip(shown, wanted, strict=True) if not any(words <= line for line in found)]


@pytest.fixture
def shell(short_path: Path) -> Iterator[tuple[Path, dict[str, str]]]:
    """A folder with the examples in it, and an environment with the command and a state of its own."""
    (folder := short_path / "here").mkdir()
    (folder / "examples").symlink_to(ROOT / "examples")
    ours = {name: value for name, value in os.environ.items() if not name.startswith("EVENTBUS_")}
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    yield folder, ours | {"PATH": path, "EVENTBUS_STATE_DIR": str(short_path / "state"), "COLUMNS": "200"}
    EmbeddedServer(short_path / "state").stop()


@contextmanager
def typed(command: str, folder: Path, env: dict[str, str]) -> Iterator[Path]:
    """A command that runs until Ctrl-C, which the end of the block is; the file with its output."""
    output = folder / f"output-{len(list(folder.iterdir()))}"
    with output.open("wb") as file:
        process = subprocess.Popen(shlex.split(command), cwd=folder, env=env, stdout=file, stderr=subprocess.STDOUT)
    try:
        yield output
        assert process.poll() is None, f"{command} ended by itself: {output.read_text()}"
        process.send_signal(signal.SIGINT)
        assert process.wait(30) in (0, 130), output.read_text()
    finally:
        process.kill()
        process.wait()


def wait_for_text(file: Path, text: str) -> None:
    there = reached(lambda: file.exists() and text in file.read_text("utf-8"), ANSWER_S)
    assert there, f"{text!r} is not in {file}: {file.exists() and file.read_text('utf-8')}"


def answer_to(step: Step, folder: Path, env: dict[str, str]) -> None:
    """Run it again until it answers as the page shows: workers need a moment."""
    text = ""

    def answered() -> bool:
        nonlocal text
        code, text = ran(step.command, folder, env)
        assert code == 0, text
        return not missing_lines(step.shown, text)

    there = reached(answered, ANSWER_S)
    assert there, f"{step.command} does not say {missing_lines(step.shown, text)}, but:\n{text}"
    assert step.shown or not text, f"the page shows nothing under {step.command}, which says {text}"


def ran(command: str, folder: Path, env: dict[str, str]) -> tuple[int, str]:
    """The exit code, and what stands on the terminal."""
    first, *rest = shlex.split(command)
    if first == "eventbus":
        code, terminal = run_on_terminal(*rest, env=env, columns=200, folder=folder)
        return code, terminal.text
    done = subprocess.run([first, *rest], cwd=folder, env=env, capture_output=True, text=True, timeout=60, check=False)
    return done.returncode, done.stdout + done.stderr


@pytest.mark.volume
@pytest.mark.timeout(240)
def test_the_commands_answer_as_the_pages_show(shell: tuple[Path, dict[str, str]]) -> None:
    folder, env = shell
    (first,) = walkthrough(README)
    (procfile, up), questions, afterwards = walkthrough(TOUR)
    answer_to(procfile, folder, env)
    with typed(up.command, folder, env) as output:
        wait_for_text(output, "INFO eventbus-sink")
        for step in [*first, *questions]:
            if step.command.endswith(" -w"):
                with Terminal(*shlex.split(step.command)[1:], env=env, columns=200, folder=folder) as terminal:
                    wanted = step.shown
                    eventually(lambda: not missing_lines(wanted, terminal.text), within_s=ANSWER_S)  # noqa: B023
                    terminal.interrupt()
                    assert terminal.wait() == 130
            elif " worker export " in step.command:
                with typed(step.command, folder, env):
                    wait_for_text(folder / "events.jsonl", "readiness probe failed")
            else:
                answer_to(step, folder, env)
    for step in afterwards:
        answer_to(step, folder, env)
