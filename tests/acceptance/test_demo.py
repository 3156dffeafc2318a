"""`make demo` as a process: it shows each thing it promises, its numbers add up, and it leaves nothing behind."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import pytest

from examples.demo.packages import LOGS, Log, installed
from tests.waiting import PATIENCE_S

ROOT = Path(__file__).parents[2]
COMMAND = [sys.executable, "-m", "examples.demo"]
COLUMNS = 100


class Run(NamedTuple):
    code: int
    output: str
    errors: str
    folder: Path

    def numbers(self, pattern: str) -> list[int]:
        """The numbers that the groups of *pattern* find in one line of the output."""
        found = re.search(rf"^ +{pattern}", self.output, re.MULTILINE)
        assert found, f"no line like {pattern!r} in:\n{self.output}"
        return [int(number) for number in found.groups()]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """The whole demo, once: its summary is looked at from several sides."""
    folder = tmp_path_factory.mktemp("demo")
    done = subprocess.run(
        COMMAND, cwd=ROOT, env=environment(folder), capture_output=True, text=True, timeout=270, check=False
    )
    return Run(done.returncode, done.stdout, done.stderr, folder)


def environment(folder: Path) -> dict[str, str]:
    return os.environ | {"TMPDIR": str(folder), "COLUMNS": str(COLUMNS), "EVENTBUS_REDIS_URL": "redis://127.0.0.1:1/0"}


def test_it_ends_by_itself_without_complaints(run: Run) -> None:
    assert (run.code, run.errors) == (0, ""), run.output


def test_what_the_programs_recorded_and_the_workers_own_events_is_what_was_published(run: Run) -> None:
    total, *parts = run.numbers(r"recorded +(\d+) events: (\d+) by commands, (\d+) by packages, (\d+) by program$")
    published, own = run.numbers(r"published +(\d+) events: those, and (\d+) of the workers about themselves$")

    assert total == sum(parts)
    assert all(part > 0 for part in parts)
    assert published == total + own
    assert own == 2, "each of the two workers says that it starts"


def test_the_log_has_every_event_once_and_the_store_accounts_for_every_one(run: Run) -> None:
    (published,) = run.numbers(r"published +(\d+) ")
    lines, uids = run.numbers(r"group log +(\d+) lines in the log, (\d+) different uids$")
    handled, *fates = run.numbers(r"group sink +(\d+) events: (\d+) created, (\d+) patched, (\d+) suppressed as spam$")

    assert lines == uids == published
    assert handled == sum(fates) == published


def test_the_store_holds_plain_repeated_aggregated_and_suppressed_events(run: Run) -> None:
    (stored,) = run.numbers(r"stored +(\d+) events$")
    created, held_back = run.numbers(r"group sink .* (\d+) created, .* (\d+) suppressed")
    plain, once = run.numbers(r"plain +(\d+), e\.g\. (\d+) × ")
    repeated, times = run.numbers(r"repeated +(\d+), e\.g\. (\d+) × ")
    aggregates, folded = run.numbers(
        r"aggregate +(\d+), e\.g\. (\d+) × \w+ \w+/\S+: \(combined from similar events\): "
    )
    suppressed, told = run.numbers(r"suppressed +(\d+), e\.g\. (\d+) × EventsSuppressed \w+/\S+: ")

    assert stored == plain + repeated + aggregates + suppressed
    assert stored == created + suppressed, "EventsSuppressed is written besides what was recorded"
    assert once == 1
    assert times > 1
    assert folded > 1
    assert (suppressed, told) == (1, held_back), "one source was held back, and its event says how often"


def test_events_are_shown_as_they_come_with_their_counts(run: Run) -> None:
    table = run.output.partition("LAST SEEN")[2].partition("Summary")[0]

    for shown in (
        r"^\d+s +Warning +Failed +Job/lost-directory +ls: exit code \d after \S+ ls: ",
        r"^\d+s +Warning +Failed +Job/not-installed +no-such-program cannot be started:",
        r"^\d+s .*Warning +BackOff +Job/crash-loop +Back-off restarting failed command",
        r"^\d+s \(x\d+ over \d+s\) +Warning +Failed +Job/crash-loop +cat: exit code 1 ",
        r"^\d+s \(x4 over \d+s\) +Normal +Started +Job/clock ",
        r"^\d+s +Normal +Completed +Job/crash-loop +Completed cat ",
        r"^\d+s .* Module/encodings +\(combined from similar events\): ",
        r"^\w+ .* Package/",
        r"^\d+s .* EventsSuppressed +Module/encodings ",
    ):
        assert re.search(shown, table, re.MULTILINE), f"{shown!r} was not shown:\n{table}"


def test_nothing_is_left_behind(run: Run) -> None:
    found = re.search(r"embedded, process \d+, in (\S+)$", run.output, re.MULTILINE)

    assert found
    assert Path(found[1]).parent == run.folder
    assert list(run.folder.iterdir()) == []
    assert processes_naming(run.folder) == []


@pytest.mark.volume
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["Ctrl-C", "SIGTERM"])
def test_an_interrupted_demo_stops_what_it_started(number: signal.Signals, short_path: Path) -> None:
    demo = subprocess.Popen(COMMAND, cwd=ROOT, env=environment(short_path), stdout=subprocess.PIPE, text=True)
    assert demo.stdout is not None
    try:
        wait_for_line(demo.stdout, " Job/crash-loop ")
        demo.send_signal(number)
        rest = demo.stdout.read()
        code = demo.wait(PATIENCE_S)
    finally:
        demo.kill()
        demo.stdout.close()

    assert code == 130
    assert "interrupted: stopping what was started" in rest
    assert list(short_path.iterdir()) == []
    assert processes_naming(short_path) == []


def wait_for_line(lines: Iterable[str], mark: str) -> None:
    seen = []
    for line in lines:
        seen.append(line)
        if mark in line:
            return
    pytest.fail(f"the demo ended before it showed {mark!r}: {''.join(seen)}")


def processes_naming(folder: Path) -> list[str]:
    """Command lines and environments that name the folder: the server, the workers, the programs."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            said = (process / "cmdline").read_bytes() + (process / "environ").read_bytes()
        except OSError:
            continue
        if os.fsencode(folder) in said:
            found.append(f"{process.name}: {said[:200].decode('utf-8', 'replace')}")
    return found


# -- the log of the package manager ----------------------------------------------------------------------------------


LINES = [
    ("dpkg", "2025-06-24 10:18:53 upgrade libc6:amd64 2.36-9 2.36-10", "upgrade", "libc6"),
    ("dnf", "2025-06-24T10:18:53+0000 SUBDEBUG Upgrade: tmux-3.3a-7.fc40.x86_64", "Upgrade", "tmux"),
    ("pacman", "[2025-06-24T10:18:53+0000] [ALPM] upgraded zlib (1:1.3-1 -> 1:1.3.1-1)", "upgraded", "zlib"),
    ("zypp", "2025-06-24 10:18:53|install|tmux|3.3a-1.1|x86_64||repo|sum|", "install", "tmux"),
]


def log_named(part: str) -> Log:
    (log,) = (log for log in LOGS if part in log.path)
    return log


@pytest.mark.parametrize(("name", "line", "what", "package"), LINES)
def test_a_line_of_a_package_managers_log_is_understood(name: str, line: str, what: str, package: str) -> None:
    found = log_named(name).line.match(line)

    assert found
    assert (found["what"], found["package"]) == (what, package)
    assert datetime.fromisoformat(found["when"]).replace(tzinfo=UTC) == datetime(2025, 6, 24, 10, 18, 53, tzinfo=UTC)


def test_without_a_package_managers_log_the_installers_output_is_told(tmp_path: Path) -> None:
    log = tmp_path / "install.log"
    assert installed(log) == []
    log.write_text(
        "Collecting click==8.1.8\n  Downloading click-8.1.8-py3-none-any.whl (98 kB)\n"
        "Installing collected packages: click, import-linter\n"
        "Successfully installed click-8.1.8 import-linter-2.3\nSuccessfully installed eventbus-0.1.0\n"
    )
    assert installed(log) == [("click", "8.1.8"), ("import-linter", "2.3"), ("eventbus", "0.1.0")]
