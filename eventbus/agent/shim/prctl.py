"""Settings of the kernel about the parent and the children of a process."""

from __future__ import annotations

import ctypes
import os
import signal

_SET_DEATH_SIGNAL, _SET_CHILD_SUBREAPER = 1, 36
_prctl = ctypes.CDLL(None, use_errno=True).prctl


def become_subreaper() -> None:
    """Have descendants that lose their parent become children of this process.

    Raises: OSError: the kernel refuses.
    """
    _ask("have orphans as children", _SET_CHILD_SUBREAPER, 1)


def die_with(parent: int) -> bool:
    """Have the kernel kill this process when its parent dies. Returns: False if *parent* is dead already.

    Raises: OSError: the kernel refuses.
    """
    _ask("die with the parent", _SET_DEATH_SIGNAL, signal.SIGKILL)
    return os.getppid() == parent


def outlive_parent() -> None:
    """Undo `die_with`. Raises: OSError."""
    _ask("outlive the parent", _SET_DEATH_SIGNAL, 0)


def _ask(action: str, option: int, value: int) -> None:
    if _prctl(option, value, 0, 0, 0):
        number = ctypes.get_errno()
        raise OSError(number, f"cannot {action}, prctl refuses: {os.strerror(number)}")
