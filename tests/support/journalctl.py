"""A stand-in for journalctl: prints the entries of a file, with the options and matches that eventbus uses.

Run as a program, it reads JOURNAL, a file with one entry in JSON a line. It refuses other options. Matches of one field
are alternatives, and those of different fields must all be true, as journalctl has it.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

Entry = dict[str, Any]
BOOT = "da7cfa37e1df4cb6b6983466dd9119d9"
OPTIONS = (
    "--output",
    "--no-pager",
    "--quiet",
    "--follow",
    "--no-tail",
    "--lines",
    "--after-cursor",
    "--cursor",
    "--reverse",
)
STARTED, STOPPED, FAILED, JOB_FAILED, RESTARTING, EXITED = (
    "39f53479d3a045ac8e11786248231fbf",
    "7ad2d189f7e94e70a38c781354912448",
    "d9b373ed55a64feb8242e02dbe79a49c",
    "be02cf6855d2428ba40df7e9d022f03d",
    "5eb03494b6584870a536b337290809b3",
    "98e322203f7a4ed290d09fe03c09fe15",
)


class JournalFile:
    """A journal, written in the form of systemd 252, from which the entries were recorded."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "journal"
        self.path.touch()
        self.programs = folder / "bin"
        self.programs.mkdir()
        script = f'#!/bin/sh\nJOURNAL={self.path} exec {sys.executable} {__file__} "$@"\n'
        (self.programs / "journalctl").write_text(script)
        (self.programs / "journalctl").chmod(0o755)
        self._number = 0

    def add(self, **fields: Any) -> str:
        """Add an entry. Returns: its cursor."""
        self._number += 1
        now_us = time.time_ns() // 1000
        cursor = f"s=dbed73b8182a4a318aa3daf5900291be;i={self._number:x};b={BOOT};m={self._number:x};t={now_us:x};x=1"
        entry = {"__CURSOR": cursor, "__REALTIME_TIMESTAMP": str(now_us), "_BOOT_ID": BOOT, **fields}
        with self.path.open("a") as file:
            file.write(json.dumps(entry) + "\n")
        return cursor

    def manage(self, unit: str, id_: str, message: str, invocation: str, **fields: str) -> None:
        """Add a message of the service manager."""
        known = {"_PID": "1", "_COMM": "systemd", "_UID": "0", "UNIT": unit, "INVOCATION_ID": invocation}
        self.add(**known | {"MESSAGE_ID": id_, "MESSAGE": message} | fields)

    def say(self, unit: str, message: Any, invocation: str = "") -> None:
        """Add a line of output of a unit."""
        known = {"_PID": "71", "_TRANSPORT": "stdout", "_SYSTEMD_UNIT": unit, "MESSAGE": message}
        self.add(**known | ({"_SYSTEMD_INVOCATION_ID": invocation} if invocation else {}))

    def start(self, unit: str, invocation: str, message: str = "") -> None:
        text = message or f"Started {unit} - A daemon."
        self.manage(unit, STARTED, text, invocation, JOB_TYPE="start", JOB_RESULT="done")

    def fail(self, unit: str, invocation: str, code: str = "exited", status: str = "3") -> None:
        text = f"{unit}: Main process exited, code={code}, status={status}"
        self.manage(unit, EXITED, text, invocation, EXIT_CODE=code, EXIT_STATUS=status, COMMAND="ExecStart")
        result = {"exited": "exit-code", "killed": "signal", "dumped": "core-dump"}[code]
        self.manage(unit, FAILED, f"{unit}: Failed with result '{result}'.", invocation, UNIT_RESULT=result)

    def restart(self, unit: str, invocation: str, number: int) -> None:
        text = f"{unit}: Scheduled restart job, restart counter is at {number}."
        self.manage(unit, RESTARTING, text, invocation, N_RESTARTS=str(number))


def main(words: list[str]) -> int:
    options, matches = dict[str, str](), dict[str, set[str]]()
    for word in words:
        name, _, value = word.partition("=")
        if not word.startswith("--"):
            matches.setdefault(name, set()).add(value)
        elif name in OPTIONS:
            options[name] = value
        else:
            sys.stderr.write(f"journalctl: unrecognized option '{word}'\n")
            return 1
    assert options["--output"] == "json"
    found = _entries(Path(os.environ["JOURNAL"]), follow="--follow" in options)
    passed = "--after-cursor" not in options
    taken: list[Entry] = []
    for entry in found:
        here, passed = passed, passed or entry["__CURSOR"] == options["--after-cursor"]
        if here and all(entry.get(name, "") in values for name, values in matches.items()):
            if "--lines" in options:
                taken.append(entry)
            else:
                print(json.dumps(entry), flush=True)
        if entry["__CURSOR"] == options.get("--cursor"):
            break
    if "--lines" in options:
        taken = taken[-int(options["--lines"]) :]
        for entry in reversed(taken) if "--reverse" in options else taken:
            print(json.dumps(entry))
    return 0


def _entries(path: Path, *, follow: bool) -> Iterator[Entry]:
    with path.open() as file:
        while True:
            line = file.readline()
            if line:
                yield json.loads(line)
            elif follow and os.getppid() != 1:
                time.sleep(0.02)
            else:
                return


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
