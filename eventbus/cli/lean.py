"""Speeds up the start of a command: modules that it may not need are loaded at the first use of an attribute."""

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

#: Modules that `import redis` imports. They take a third of a command's CPU time at start, and 8 MB.
_LATER: Final = ("redis.asyncio", "importlib.metadata")
_OF_KEYSPACES: Final = (
    *("ChannelType", "ClusterKeyspaceNotifications", "EventType", "KeyeventChannel", "KeyNotification"),
    *("KeyspaceChannel", "KeyspaceNotifications", "KeyspaceNotificationsInterface", "KeyspaceWorkerThread"),
    *("SubkeyeventChannel", "SubkeyspaceChannel", "SubkeyspaceeventChannel", "SubkeyspaceitemChannel"),
    "get_channel_type",
)
#: Names that redis-py looks up in modules to define its classes: for annotations, for an `except` of its asyncio
#: client, which is not used here, and two errors that are defined in C. Also names that it exports from its own cluster
#: and keyspace clients, because we have another client. Any other name loads the module. A hack, to be removed when
#: redis-py imports these modules lazily.
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
#: Garbage collection threshold, in objects. Most commands end before it, and a watch frees its own objects.
_BETWEEN_LOOKS: Final = 100_000


class _LaterModule(ModuleType):
    """A stand-in for a module that is not imported yet. With importlib's LazyLoader, any `import` would load it."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]
        return getattr(import_module(self.__name__), name)


class _LaterForRedis(_LaterModule):
    """A stand-in with the names that redis-py needs for its definitions. Any other use loads the module."""

    def __getattr__(self, name: str) -> Any:
        found = _FOR_REDIS[self.__name__].get(name)
        if found is not None and _importer(sys._getframe(1)).partition(".")[0] == "redis":
            return found()
        return super().__getattr__(name)


def _importer(frame: FrameType | None) -> str:
    """Return the name of the module that imports, from *frame* upward."""
    while frame is not None and frame.f_globals.get("__name__", "").startswith("importlib."):
        frame = frame.f_back
    return "" if frame is None else str(frame.f_globals.get("__name__", ""))


def run_short(program: Callable[[], Any]) -> None:
    """Run the interactive *program*, in a process of its own, with a fifth less CPU time.

    It avoids asyncio and ssl, which redis-py imports to define its classes; garbage collections of imported objects,
    which are no garbage; and the interpreter's finalization, if it has nothing left to do.
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
    """Install stand-ins for modules that redis-py imports only for definitions. For our own processes only."""
    for name in _FOR_REDIS if find_spec("_ssl") else ():
        _put_off(_LaterForRedis(name))


def _is_done() -> bool:
    """Return True if the process can exit: no other thread, no broadcaster, and no tracer or profiler."""
    watched = sys.gettrace() is not None or sys.getprofile() is not None
    return threading.active_count() == 1 and "eventbus.record.broadcaster" not in sys.modules and not watched


def _flushed() -> bool:
    """Flush both outputs. False: the flush failed, and Python reports it at exit."""
    try:
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                stream.flush()
    except (OSError, ValueError):
        return False
    return True


def import_later() -> None:
    """Install a stand-in for each module in `_LATER` that is not imported yet."""
    for name in _LATER:
        module = _LaterModule(name)
        above = sys.modules.get(name.rpartition(".")[0])
        if _put_off(module) and above is not None:  # as an import would set it
            setattr(above, name.rpartition(".")[2], module)


def _put_off(module: ModuleType) -> bool:
    """Install *module* under its name; False: no such module exists, or it is already imported."""
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
