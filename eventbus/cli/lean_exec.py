"""`eventbus exec` in its basic form, without click and Redis, which it does not need while it waits.

The full command, `commands/exec.py`, handles all other forms and reports errors.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

#: A subset of the references that `reference_to` accepts. The full command checks all others.
_OBJECT: Final = re.compile(r"[A-Za-z][A-Za-z0-9]{0,60}/[A-Za-z0-9](?:[A-Za-z0-9._-]{0,200}[A-Za-z0-9])?")
_NAMESPACE: Final = re.compile(r"(?:[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?)?")


class Asked(NamedTuple):
    """A command to run, and the object of its events; *about* None: the command itself."""

    words: tuple[str, ...]
    about: str | None = None
    namespace: str = "default"
    read_stderr: bool | None = None


def run_lean(arguments: Sequence[str], *, on_imported: Callable[[], object]) -> None:
    """Run the command and exit as it did; return if the full command is needed. *on_imported*: called before."""
    asked = read(arguments, os.environ)
    if asked is None:
        return
    from eventbus.cli.commands.exec_events import CommandEvents
    from eventbus.process.command import CannotStart, Command
    from eventbus.process.outcome import end_as, say
    from eventbus.process.signal_queue import SignalQueue, passed_on
    from eventbus.util.clock import SystemClock
    from eventbus.util.text import printable

    on_imported()
    read_stderr = not os.isatty(2) if asked.read_stderr is None else asked.read_stderr
    diary = CommandEvents(asked.about, asked.namespace, printable(asked.words[0].rpartition("/")[2]))
    signals = SignalQueue(passed_on())
    command = Command(
        asked.words, signals=signals, clock=SystemClock(), read_stderr=read_stderr, on_signal=diary.killing
    )
    try:
        outcome = command.run(diary.started)
        diary.ended(outcome)
    except CannotStart as error:
        outcome = error.outcome
        diary.cannot_start(outcome)
        say(f"error: {printable(asked.words[0])}: {error}")
    if unsent := diary.close():
        say(f"eventbus exec: {unsent}")
    end_as(outcome)


def read(arguments: Sequence[str], environ: os._Environ[str] | dict[str, str]) -> Asked | None:
    """Parse the command line; None: it may need the full command."""
    if _has_contexts(environ):
        return None
    about, namespace, read_stderr = None, environ.get("EVENTBUS_NAMESPACE") or "default", None
    words = list(arguments)
    while words and words[0].startswith("-") and words[0] != "--":
        name, equals, value = words.pop(0).partition("=")
        if name in ("--read-stderr", "--keep-stderr") and not equals:
            read_stderr = name == "--read-stderr"
            continue
        if name not in ("--object", "-n", "--namespace") or (not equals and not words) or (name == "-n" and equals):
            return None
        value = value if equals else words.pop(0)
        if name == "--object":
            about = value
        else:
            namespace = value
    words = words[1:] if words[:1] == ["--"] else words
    if not words or not words[0] or words[0].endswith(("/", "/.")) or not _NAMESPACE.fullmatch(namespace):
        return None
    if about is not None and not _OBJECT.fullmatch(about):
        return None
    return Asked(tuple(words), about, namespace, read_stderr)


def _has_contexts(environ: os._Environ[str] | dict[str, str]) -> bool:
    """Return True if a context may set the bus: see `contexts.py`."""
    if environ.get("EVENTBUS_CONTEXT"):
        return True
    if named := environ.get("EVENTBUS_CONFIG"):
        return os.path.lexists(named)
    home = environ.get("XDG_CONFIG_HOME") or os.path.join(environ.get("HOME") or os.path.expanduser("~"), ".config")
    return os.path.lexists(os.path.join(home, "eventbus", "config.json"))
