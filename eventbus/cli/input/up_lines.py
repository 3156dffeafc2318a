"""Finds the lines and the page of an `eventbus up` on this machine."""

from __future__ import annotations

import os


def up_lines(namespace: str) -> list[str]:
    """Return the pod names of running lines; *namespace*: "" is any."""
    from eventbus.broker.embedded.server import default_directory

    directory = default_directory(os.environ)
    if not any(directory.glob("up*.lock")):
        return []
    from eventbus.agent.procfile.orphaned_processes import running_lines

    return running_lines(directory, namespace)


def up_page(bus: str) -> str:
    """Return the address of the page that an `up` on this machine serves for the bus with that id; "": none."""
    from eventbus.broker.embedded.server import default_directory

    directory = default_directory(os.environ)
    if not any(directory.glob("up*.lock")):
        return ""
    from eventbus.agent.procfile.orphaned_processes import page_of

    return page_of(directory, bus)
