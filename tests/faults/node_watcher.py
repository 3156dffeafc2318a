"""A watcher of nodes, as a process: it prints each event with its position, and starts at the last printed position."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from eventbus.errors import BusUnavailable, Expired
from eventbus.model.kinds import NODE
from eventbus.model.list_watch import ListOptions
from eventbus.store import change_hub, changes
from eventbus.store.object_store import ObjectStore

#: What a control run does: it goes on one version too far on, or does not look whether versions follow each other.
ONE_TOO_FAR, NO_HOLES = "one-too-far", "no-holes"

follow = changes.follow


def believe(storage: Any, partition: int, after: int, entries: Sequence[Any]) -> changes.Followed:
    """Read as `follow` does, but never find that anything is missing."""
    found: list[Any] = []
    for entry in entries:
        told, after, _ = follow(storage, partition, max(after, int(entry[1][b"f"]) - 1), [entry])
        found += told
    return changes.Followed(found, after, None)


def watch_nodes(seen: Path, position: str, broken: str) -> None:
    """Print each event with its position in one write, so that a kill comes before or after it, for ever."""
    output = os.open(seen, os.O_WRONLY | os.O_APPEND)
    if broken == NO_HOLES:
        for module in (changes, change_hub):
            vars(module)["follow"] = believe
    if position and broken == ONE_TOO_FAR:
        position = "-".join(str(int(part) + 1) for part in position.split("-"))
    with ObjectStore.open() as store:
        nodes = store.objects(NODE)
        while True:
            try:
                if not position:
                    found = nodes.list()
                    lines = [f"L {node.metadata.name} {node.metadata.labels['n']}" for node in found.items]
                    position = found.resource_version
                    os.write(output, "".join(f"{line}\n" for line in [*lines, f"V {position}"]).encode())
                for event in nodes.watch(ListOptions(resource_version=position)):
                    if event.object is not None:
                        about, position = event.object.metadata, event.resource_version
                        line = f"E {position} {event.type[0]} {about.name} {about.labels['n']}\n"
                        os.write(output, line.encode())
            except Expired:
                os.write(output, b"X\n")
                position = ""
            except BusUnavailable:
                time.sleep(0.05)


if __name__ == "__main__":
    watch_nodes(Path(sys.argv[1]), sys.argv[2], sys.argv[3])
