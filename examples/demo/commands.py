"""First program: real commands under `eventbus exec`, which records their lives. One of them crashes again and again.

Nothing is recorded here. How many events there must be follows from how the commands ended and from what they wrote to
standard error, which `exec` passes through; the demo compares that with what arrived.
"""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from examples.demo.producer import NAMESPACE, interrupt, report

CLOCK_RUNS, PAUSE_S = 4, 2.0
#: So that there is something to see in the eight seconds before the cure; the kubelet's are 10 s to 300 s. After a run
#: of twice the longest pause they begin anew, without the BackOff that is counted here: no run takes two minutes.
RESTARTS = ("--restart", "on-failure", "--backoff-base", "0.4", "--backoff-max", "60")
NOT_FOUND = 127
#: It is cured once it has crashed so often, on a machine that is not starved.
CRASHES = 3
CURE_S = 60.0


class Job(NamedTuple):
    name: str
    command: tuple[str, ...]
    options: tuple[str, ...] = ()


class Run(NamedTuple):
    """A job under `eventbus exec`. *errors*: the file of its standard error."""

    job: Job
    process: subprocess.Popen[bytes]
    errors: Path

    @property
    def said(self) -> list[str]:
        return self.errors.read_text("utf-8", "replace").splitlines()


class Report(NamedTuple):
    """The events that one run must have recorded, and the lines by which `exec` said that something was not sent."""

    recorded: int
    lost: list[str]


CLOCK = Job("clock", ("date", "-u"))
ONCE = (
    Job("kernel", ("uname", "-s", "-r")),
    Job("lost-directory", ("ls", "/no-such-directory")),
    Job("not-installed", ("no-such-program", "--version")),
)


def main() -> None:
    """Run the jobs under `eventbus exec` until the one that crashes is cured, and report what was recorded."""
    signal.signal(signal.SIGTERM, interrupt)
    with tempfile.TemporaryDirectory() as folder, running() as runs:
        config = Path(folder, "crash-loop.conf")
        crashing = start(runs, Job("crash-loop", ("cat", str(config)), RESTARTS), folder)
        for number in range(CLOCK_RUNS):
            start(runs, CLOCK, folder)
            if number < len(ONCE):
                start(runs, ONCE[number], folder)
            time.sleep(PAUSE_S)
        deadline = time.monotonic() + CURE_S
        while len(crashing.said) < CRASHES and time.monotonic() < deadline:
            time.sleep(PAUSE_S)
        config.write_text("patience = 1\n")  # what it was missing: the next run completes
        crashing.process.wait(CURE_S)
        reports = [report_of(run) for run in runs]
    lost = [line for each in reports for line in each.lost]
    report(sum(each.recorded for each in reports), {f"not sent, first: {lost[0]}": len(lost)} if lost else {})


@contextlib.contextmanager
def running() -> Iterator[list[Run]]:
    """A list for what is started; what still runs in the end is ended."""
    runs: list[Run] = []
    try:
        yield runs
    finally:
        left = [run.process for run in runs if run.process.returncode is None]
        for process in left:
            process.terminate()
        for process in left:
            process.wait()


def start(runs: list[Run], job: Job, folder: str) -> Run:
    """Start *job* under `eventbus exec` and add it to *runs*."""
    words = (sys.executable, "-m", "eventbus", "exec", "--namespace", NAMESPACE, "--object", f"Job/{job.name}")
    errors = Path(folder, f"{len(runs)}.err")
    with errors.open("wb") as file:
        process = subprocess.Popen((*words, *job.options, "--", *job.command), stdout=subprocess.DEVNULL, stderr=file)
    runs.append(run := Run(job, process, errors))
    return run


def report_of(run: Run) -> Report:
    """Wait for its end, and count: a failure is Started and Failed, and but for the first one BackOff."""
    run.process.wait()
    said = run.said
    lost = [line for line in said if line.startswith("eventbus exec: ")]
    if run.process.returncode == NOT_FOUND:
        return Report(1, lost)
    failures = len(said) - len(lost) if run.job.options else 0  # each wrote a line
    return Report(2 * failures + max(0, failures - 1) + 2, lost)


if __name__ == "__main__":
    main()
