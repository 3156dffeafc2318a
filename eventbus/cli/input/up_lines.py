"""Finds the lines of an `eventbus up` of this machine: they are pods that no store has."""

from __future__ import annotations

import os


def up_lines(namespace: str) -> list[str]:
    """Return the names of the pods of lines that run; *namespace*: "" is any."""
    from eventbus.broker.embedded.server import default_directory

    directory = default_directory(os.environ)
    if not any(directory.glob("up*.lock")):
        return []
    from eventbus.agent.pods.left_lines import running_lines

    return running_lines(directory, namespace)


__all__ = ["up_lines"]
