"""Keeps out of a command's process what it does not need: a module is loaded at the first look at what is in it."""

from __future__ import annotations

import gc
import os
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import find_spec
from types import FrameType, ModuleType
from typing import Any, Final

#: `import redis` imports them: a third of the CPU that a command takes to start, and 8 MB.
_LATER: Final = ("redis.asyncio", "importlib.metadata")
_OF_KEYSPACES: Final = (
    *("ChannelType", "ClusterKeyspaceNotifications", "EventType", "KeyeventChannel", "KeyNotification"),
    *("KeyspaceChannel", "KeyspaceNotifications", "KeyspaceNotificationsInterface", "KeyspaceWorkerThread"),
    *("SubkeyeventChannel", "SubkeyspaceChannel", "SubkeyspaceeventChannel", "SubkeyspaceitemChannel"),
    "get_channel_type",
)
#: What redis-py looks up in modules to define its classes: names for annotations, for an `except` of its asyncio
#: client, which nobody here uses, and two errors that are made in C; and what it shows of its own clients of clusters
#: and of key spaces: ours is another. A name that is not here loads the module. A hack; it goes when redis-py imports
#: them later.
_FOR_REDIS: Final[Mapping[str, Mapping[str, Callable[[], Any]]]] = {
    "asyncio": {"IncompleteReadError": lambda: EOFError, "StreamReader": lambda: object, "Lock": lambda: object},
    "ssl": {
        "VerifyFlags": lambda: object,
        "SSLWantReadError": lambda: import_module("_ssl").SSLWantReadError,
        "SSLWantWriteError": lambda: import_module("_ssl").SSLWantWriteError,
    },
    "redis.cluster": {"RedisCluster": lambda: object},
    "redis.keyspace_notifications": dict.fromkeys(_OF_KEYSPACES, lambda: object),
}
#: How many objects a short command makes before the collector looks: most end before that, and a watch frees its own.
_BETWEEN_LOOKS: Final = 100_000


class _LaterModule(ModuleType):
    """A stand-in for a module that has not been imported. importlib's LazyLoader is loaded by any `import` of it."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]
        return getattr(import_module(self.__name__), name)


class _LaterForRedis(_LaterModule):
    """A stand-in that gives redis-py the names it needs for its definitions; anything else loads the module."""

    def __getattr__(self, name: str) -> Any:
        found = _FOR_REDIS[self.__name__].get(name)
        if found is not None and _importer(sys._getframe(1)).partition(".")[0] == "redis":
            return found()
        return super().__getattr__(name)


def _importer(frame: FrameType | None) -> str:
    """Return the name of the module whose import has come to *frame*."""
    while frame is not None and frame.f_globals.get("__name__", "").startswith("importlib."):
        frame = frame.f_back
    return "" if frame is None else str(frame.f_globals.get("__name__", ""))


def run_short(program: Callable[[], Any]) -> None:
    """Run *program*, which a person waits for, in a process of its own, without what costs a fifth of its CPU.

    That is asyncio and ssl, which redis-py imports to define its classes; the collector's looks at what imports have
    made, none of which is garbage; and an orderly end of the interpreter, where nothing is left to be done in it.
    """
    gc.set_threshold(_BETWEEN_LOOKS)
    leave_to_redis()
    try:
        program()
    except SystemExit as ended:
        code = 0 if ended.code is None else ended.code
        if isinstance(code, int) and _is_done() and _flushed():
            os._exit(code)
        raise


def leave_to_redis() -> None:
    """Put a stand-in in the place of what redis-py imports for its definitions alone. For processes of our own."""
    for name in _FOR_REDIS if find_spec("_ssl") else ():
        _put_off(_LaterForRedis(name))


def _is_done() -> bool:
    """Return True if nobody in this process has anything left to send, to write or, with a profiler, to tell."""
    watched = sys.gettrace() is not None or sys.getprofile() is not None
    return threading.active_count() == 1 and "eventbus.record.broadcaster" not in sys.modules and not watched


def _flushed() -> bool:
    """Write what is in the buffers of both outputs. False: it could not be written, and Python's own end says so."""
    try:
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                stream.flush()
    except (OSError, ValueError):
        return False
    return True


def import_later() -> None:
    """Put a stand-in in the place of each of them, unless somebody has imported it."""
    for name in _LATER:
        module = _LaterModule(name)
        above = sys.modules.get(name.rpartition(".")[0])
        if _put_off(module) and above is not None:  # where an import would have put it
            setattr(above, name.rpartition(".")[2], module)


def _put_off(module: ModuleType) -> bool:
    """Put *module* in the place of the module of its name; False: there is none, or somebody has imported it."""
    package, _, _ = module.__name__.rpartition(".")
    above = (sys.modules.get(package) or find_spec(package)) if package else None
    if module.__name__ in sys.modules or (package and above is None):
        return False
    spec = find_spec(module.__name__) if above is None else PathFinder.find_spec(module.__name__, _folders(above))
    if spec is None:
        return False
    module.__spec__ = spec
    module.__path__ = list(spec.submodule_search_locations or ())
    sys.modules[module.__name__] = module
    return True


def _folders(package: ModuleType | ModuleSpec) -> Sequence[str] | None:
    return package.__path__ if isinstance(package, ModuleType) else package.submodule_search_locations
