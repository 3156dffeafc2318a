"""Detects environments that change threads: servers that run none, libraries that replace them."""

from __future__ import annotations

import sys
from typing import Any


def describe_thread_support() -> tuple[bool, str] | None:
    """Describe in one line what is unusual about threads here, and whether events are sent; None: nothing.

    Looks only at what the program has imported itself.
    """
    if (uwsgi := sys.modules.get("uwsgi")) and not _uwsgi_runs_threads(getattr(uwsgi, "opt", {})):
        return False, "uWSGI runs no threads, so events are not sent before the process ends: say --enable-threads"
    if (gevent := sys.modules.get("gevent.monkey")) and gevent.is_module_patched("threading"):
        return True, "gevent has replaced threads: events are sent while the program waits, and not while it computes"
    if (eventlet := sys.modules.get("eventlet.patcher")) and eventlet.is_monkey_patched("thread"):
        return True, "eventlet has replaced threads: events are sent while the program waits, and not while it computes"
    return None


def _uwsgi_runs_threads(options: dict[Any, Any]) -> bool:
    """uWSGI gives options as True, or as the text of its configuration; names and texts as bytes."""
    found = {_text(name): _text(value) for name, value in options.items()}
    return found.get("enable-threads", "false") in ("true", "1") or "threads" in found


def _text(value: object) -> str:
    return (value.decode() if isinstance(value, bytes) else str(value)).lower()
