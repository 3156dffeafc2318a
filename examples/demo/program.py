"""Third program: uses the library from threads. Four of them read Python's own standard library and hash its files.

It records more about one object than anyone wants to read: that is what aggregates and the spam filter are for.
"""

from __future__ import annotations

import hashlib
import sysconfig
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from examples.demo.producer import CountingRecorder, named, recording

LIBRARY = Path(sysconfig.get_path("stdlib"))
SMALL, CHATTY = ("json", "logging", "sqlite3"), "encodings"
CHATTY_FILES = 60
THREADS = 4
#: Longer than a new token takes with the demo's options (5 s): the next event ends the silence.
QUIET_S = 6.0


def main() -> None:
    """Hash small packages, a missing one and a chatty one, and record each file."""
    with recording("program") as recorder, ThreadPoolExecutor(THREADS) as pool:
        for package in SMALL:
            hash_all(recorder, pool, package, files_of(package), pause_s=0.6)
        hash_all(recorder, pool, "no-such-module", [LIBRARY / "no-such-module" / "__init__.py"], pause_s=0.6)
        hash_all(recorder, pool, CHATTY, files_of(CHATTY)[:CHATTY_FILES], pause_s=0.25)
        recorder.flush()  # what the bus gets late begins the silence late
        time.sleep(QUIET_S)
        recorder.event(named("Module", CHATTY), "Normal", "Finished", f"{CHATTY_FILES} files hashed")


def files_of(package: str) -> list[Path]:
    return sorted((LIBRARY / package).glob("*.py"))


def hash_all(
    recorder: CountingRecorder, pool: ThreadPoolExecutor, package: str, files: Sequence[Path], *, pause_s: float
) -> None:
    """Have every thread take a share of the files."""
    for _ in pool.map(lambda file: hash_one(recorder, package, file, pause_s), files):
        pass


def hash_one(recorder: CountingRecorder, package: str, file: Path, pause_s: float) -> None:
    """Record the hash of *file*, or a Warning if it cannot be read; then pause."""
    obj = named("Module", package)
    try:
        data = file.read_bytes()
    except OSError as error:
        recorder.event(obj, "Warning", "Unreadable", f"{file.name}: {error.strerror}")
        return
    digest = hashlib.sha256(data).hexdigest()[:12]
    recorder.event(obj, "Normal", "Hashed", f"{file.name}: {len(data)} bytes, sha256 {digest}…")
    time.sleep(pause_s)


if __name__ == "__main__":
    main()
