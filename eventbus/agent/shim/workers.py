"""Workers of a shim: each does one piece of work, and the memory that it used is freed with it.

A page that a process writes to is its own from then on, be it a count of references; so a shim that did its work itself
would hold almost another megabyte for as long as its pod runs.
"""

from __future__ import annotations

import marshal
import os
import traceback
from collections.abc import Callable
from typing import Any, NoReturn, cast

from eventbus.agent.shim.prctl import die_with
from eventbus.agent.shim.signals import be_no_zygote


class WorkerLost(Exception):
    """A worker died before its word. Its progress is unknown, so the shim has to die as well."""


def work(piece: Callable[..., tuple[Any, ...]], *given: Any) -> tuple[Any, ...]:
    """Have a worker do *piece*, and wait for it; do it here if there can be none.

    A shim and its worker die together, so that no worker changes a pod after its shim is gone.

    Returns: the result of *piece*, of types that `marshal` knows. Raises: WorkerLost.
    """
    shim = os.getpid()
    try:
        hear, say = os.pipe()
    except OSError:
        return piece(*given)
    try:
        worker = os.fork()
    except OSError:
        os.close(hear)
        os.close(say)
        return piece(*given)
    if not worker:
        _work(shim, say, piece, given)
    try:
        os.close(say)
        said = b""
        while data := os.read(hear, 65536):
            said += data
        os.close(hear)
        if os.waitpid(worker, 0)[1] == 0:
            return cast(tuple[Any, ...], marshal.loads(said))
    except Exception as error:  # its progress is unknown then
        raise WorkerLost from error
    raise WorkerLost


def _work(shim: int, say: int, piece: Callable[..., tuple[Any, ...]], given: tuple[Any, ...]) -> NoReturn:
    try:
        be_no_zygote()
        if die_with(shim):
            left = memoryview(marshal.dumps(piece(*given)))
            while left:
                left = left[os.write(say, left) :]
            os._exit(0)
    except Exception:
        traceback.print_exc()
    finally:
        os._exit(1)
