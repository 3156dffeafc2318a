"""Second program: follows the package manager's log and records each line as an event about its package.

Where no such log can be read, the output of the installer that made this environment takes its place: what pip said
during `make install`.
"""

from __future__ import annotations

import os
import re
import sys
import time
from collections import deque
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

from examples.demo.producer import CountingRecorder, named, recording

#: Lines already there that are told, and how slowly, so that a person can read along.
OLD_LINES, PAUSE_S = 40, 0.2
FOLLOW_S = 15.0

#: Where `make install` keeps what pip says.
INSTALLER = Path(sys.prefix, "install.log")

WHEN = r"\[?(?P<when>\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(?:[+-]\d\d:?\d\d|Z)?)\]?"


class Log(NamedTuple):
    """A log of a package manager; *line* finds when, what, package and version in it."""

    path: str
    line: re.Pattern[str]


LOGS = (
    # 2025-06-24 10:18:53 status installed man-db:amd64 2.11.2-2
    Log(
        "/var/log/dpkg.log",
        re.compile(
            WHEN + r" (?:status )?(?!startup|conffile)(?P<what>[a-z-]+) (?P<package>[^\s:]+)(?::\S+)? (?P<rest>.*)"
        ),
    ),
    # 2025-06-24T10:18:53+0000 SUBDEBUG Installed: tmux-3.3a-7.fc40.x86_64
    Log("/var/log/dnf.rpm.log", re.compile(WHEN + r" \S+ (?P<what>[A-Z][a-z]+): (?P<package>\S+?)-(?P<rest>\d\S*)")),
    # [2025-06-24T10:18:53+0000] [ALPM] upgraded zlib (1:1.3-1 -> 1:1.3.1-1)
    Log("/var/log/pacman.log", re.compile(WHEN + r" \[ALPM\] (?P<what>[a-z]+) (?P<package>\S+) (?P<rest>\(.*\))")),
    # 2025-06-24 10:18:53|install|tmux|3.3a-1.1|x86_64|…
    Log(
        "/var/log/zypp/history",
        re.compile(WHEN + r"\|(?P<what>install|remove) *\|(?P<package>[^|]+)\|(?P<rest>[^|]+)\|.*"),
    ),
    # 2025-06-24 10:18:53+02 host installd[528]: Installed "XProtectPayloads" (140)
    Log(
        "/var/log/install.log",
        re.compile(WHEN + r"\S* .*: (?P<what>Installed) \"(?P<package>[^\"]+)\" \((?P<rest>[^)]*)\)"),
    ),
)


def main() -> None:
    """Record the last lines of the package manager's log and those that come, or what pip has installed."""
    with recording("packages") as recorder:
        log = find_log()
        if log is None:
            print("no package manager's log can be read here: what pip said during `make install`", flush=True)
            for package, version in installed(INSTALLER):
                recorder.event(named("Package", package), "Normal", "Installed", f"installed {package} {version}")
                time.sleep(PAUSE_S)
        else:
            print(f"{log.path}: its last {OLD_LINES} lines, then whatever comes", flush=True)
            for line in follow(Path(log.path), time.monotonic() + FOLLOW_S):
                tell(recorder, log, line)


def find_log() -> Log | None:
    """The first log that can be read and says something about packages."""
    for log in LOGS:
        try:
            with open(log.path, encoding="utf-8", errors="replace") as file:
                if any(log.line.match(line) for line in deque(file, OLD_LINES)):
                    return log
        except OSError:
            continue
    return None


def follow(path: Path, deadline: float) -> Iterator[str]:
    """The last lines, then new ones as they are written, until *deadline*; a log that was rotated is begun again."""
    file = path.open("rb")
    try:
        for line in deque(file, OLD_LINES):
            yield line.decode("utf-8", "replace")
            time.sleep(PAUSE_S)
        half = b""
        while time.monotonic() < deadline:
            half += file.readline()
            if half.endswith(b"\n"):
                yield half.decode("utf-8", "replace")
                half = b""
                continue
            time.sleep(0.2)
            if was_rotated(path, file.fileno()):
                file.close()
                file, half = path.open("rb"), b""
    finally:
        file.close()


def was_rotated(path: Path, descriptor: int) -> bool:
    try:
        return not os.path.samestat(path.stat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False  # between the move and the new file


def tell(recorder: CountingRecorder, log: Log, line: str) -> None:
    """Record the line, with its own time, about its package."""
    found = log.line.match(line)
    if not found:
        return
    when = datetime.fromisoformat(found["when"])
    recorder.past_event(
        named("Package", found["package"]),
        when if when.tzinfo else when.astimezone(),
        "Normal",
        "".join(word.capitalize() for word in found["what"].split("-")),
        f"{found['what']} {found['package']} {found['rest']}".strip(),
    )


def installed(output: Path) -> list[tuple[str, str]]:
    """The last packages, with version, that pip says it has installed: `Successfully installed click-8.1.8 …`."""
    try:
        lines = output.read_text("utf-8", "replace").splitlines()
    except OSError:
        return []
    words = [word for line in lines if line.startswith("Successfully installed ") for word in line.split()[2:]]
    return [(name, version) for name, _, version in (word.rpartition("-") for word in words)][-OLD_LINES:]


if __name__ == "__main__":
    main()
