"""Keeps out of a command's process what it does not need: a module is loaded at the first look at what is in it."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import find_spec
from types import FrameType, ModuleType
from typing import Any, Final

#: `import redis` imports them: a third of the CPU that a command takes to start, and 8 MB.
_LATER: Final = (("redis", "asyncio"), ("importlib", "metadata"))
#: What redis-py looks up in them to define its classes: names for annotations, for an `except` of its asyncio
#: client, which nobody here uses, and two errors that are made in C. A hack; it goes when redis-py imports them later.
_FOR_REDIS: Final[Mapping[str, Mapping[str, Callable[[], Any]]]] = {
    "asyncio": {"IncompleteReadError": lambda: EOFError, "StreamReader": lambda: object, "Lock": lambda: object},
    "ssl": {
        "VerifyFlags": lambda: object,
        "SSLWantReadError": lambda: import_module("_ssl").SSLWantReadError,
        "SSLWantWriteError": lambda: import_module("_ssl").SSLWantWriteError,
    },
}


class LaterModule(ModuleType):
    """A stand-in for a module that has not been imported. importlib's LazyLoader is loaded by any `import` of it."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]
        return getattr(import_module(self.__name__), name)


class LaterForRedis(LaterModule):
    """A stand-in that gives redis-py the names it needs for its definitions; anything else loads the module."""

    def __getattr__(self, name: str) -> Any:
        found = _FOR_REDIS[self.__name__].get(name)
        if found is not None and _importer(sys._getframe(1)).startswith("redis."):
            return found()
        return super().__getattr__(name)


def _importer(frame: FrameType | None) -> str:
    """Return the name of the module whose import has come to *frame*."""
    while frame is not None and frame.f_globals.get("__name__", "").startswith("importlib."):
        frame = frame.f_back
    return "" if frame is None else str(frame.f_globals.get("__name__", ""))


def answer_tab(program: Callable[[], Any]) -> None:
    """Run *program*, which answers a Tab, and end the process.

    It is over before garbage could pile up, and holds nothing that has to be closed: the collector, asyncio, ssl and an
    orderly end of the interpreter would cost a fifth of the CPU that it takes.
    """
    gc.disable()
    for name in _FOR_REDIS if find_spec("_ssl") else ():
        spec = find_spec(name)
        if spec is not None and name not in sys.modules:
            _stand_in(LaterForRedis(name), spec)
    code: object = 0
    try:
        program()
    except SystemExit as ended:
        code = ended.code
    with suppress(OSError):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code if isinstance(code, int) else 1)


def import_later() -> None:
    """Put a stand-in in the place of each of them, unless somebody has imported it."""
    for package, name in _LATER:
        whole, above = f"{package}.{name}", sys.modules.get(package) or find_spec(package)
        spec = None if above is None else PathFinder.find_spec(whole, _folders(above))
        if spec is None or whole in sys.modules:
            continue
        module = LaterModule(whole)
        _stand_in(module, spec)
        if isinstance(above, ModuleType):  # where an import would have put it
            setattr(above, name, module)


def _stand_in(module: LaterModule, spec: ModuleSpec) -> None:
    module.__spec__ = spec
    module.__path__ = list(spec.submodule_search_locations or ())
    sys.modules[module.__name__] = module


def _folders(package: ModuleType | ModuleSpec) -> Sequence[str] | None:
    return package.__path__ if isinstance(package, ModuleType) else package.submodule_search_locations


__all__ = ["LaterModule", "answer_tab", "import_later"]
