"""Runs benchmarks: `python -m benchmarks [--list] [WORD…]`.

Without words the comparison and then all others but the long ones; with words those of these names, or that have one in
their names. `ours` is the comparison without the peers, quick."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

#: Modules here that are not run: parts of benchmarks, and what takes minutes.
_PARTS = {"__init__", "__main__", "environments", "loads", "meter", "parts", "plot", "record_bounds", "sample"}
_PARTS |= {"servers", "sink_worker", "table", "targets"}
FIRST = "comparison"
#: Only when they are named: they take long, download packages, or need a server that is not ours.
LONG = {"api_beside", "growth", "install_sizes", "nodes", "scale"}


def main(words: list[str]) -> int:
    """Run each benchmark in a process of its own, so that none inherits another's memory.

    Returns: 1 if one could not measure; a target that was missed is a row of its table.
    """
    names = sorted(path.stem for path in Path(__file__).parent.glob("*.py") if path.stem not in _PARTS)
    names.sort(key=lambda name: name != FIRST)
    if "--list" in words:
        print("\n".join(["ours", *names]))
        return 0
    wanted = {name for word in words for name in names if name == word or (word not in names and word in name)}
    chosen = [[name] for name in names if (name in wanted if words else name not in LONG)]
    if "ours" in words:
        chosen.insert(0, [FIRST, "ours"])
    if not chosen:
        print(f"no benchmark is called {' or '.join(words)}; there are: ours, {', '.join(names)}", file=sys.stderr)
        return 2
    failed = 0
    for name, *arguments in chosen:
        print(f"\n## {name}\n", flush=True)
        command = [sys.executable, "-m", f"benchmarks.{name}", *arguments]
        failed |= subprocess.run(command, check=False).returncode != 0
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:] or os.environ.get("ONLY", "").split()))
