"""Measures how cost grows with what is there. It takes minutes, so only `make bench ONLY=growth` runs it.

python -m benchmarks.growth [objects|groups|restart|relist]
"""

from __future__ import annotations

import sys

from benchmarks.parts import Failed, run_ours
from benchmarks.table import Collected, render

ROWS = (
    *(("objects", 1_000), ("objects", 10_000), ("objects", 100_000), ("objects", 1_000_000)),
    *(("groups", 1), ("groups", 4), ("groups", 16)),
    *(("restart", 1_000_000), ("restart", 10_000_000)),
    ("relist", 100_000),
)


def main(words: list[str]) -> int:
    """One table. Returns: 1 if a row could not be measured."""
    collected, failed = Collected(), 0
    for what, number in ROWS:
        if words and what not in words:
            continue
        print(f"{what} {number:,}", file=sys.stderr, flush=True)
        try:
            collected.add(run_ours("growth", what, str(number)))
        except Failed as error:
            print(f"* {what} {number:,} was not measured: {error}")
            failed = 1
    print(render(collected).strip())
    return failed


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
