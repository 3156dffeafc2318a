"""Keeps out of a command's process what it does not need: a module is loaded at the first look at what is in it."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import find_spec
from types import ModuleType
from typing import Any, Final

#: `import redis` imports them: a third of the CPU that a command takes to start, and 8 MB.
_LATER: Final = (("redis", "asyncio"), ("importlib", "metadata"))


class LaterModule(ModuleType):
    """A stand-in for a module that has not been imported. importlib's LazyLoader is loaded by any `import` of it."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]
        return getattr(import_module(self.__name__), name)


def import_later() -> None:
    """Put a stand-in in the place of each of them, unless somebody has imported it."""
    for package, name in _LATER:
        whole, above = f"{package}.{name}", sys.modules.get(package) or find_spec(package)
        spec = None if above is None else PathFinder.find_spec(whole, _folders(above))
        if spec is None or whole in sys.modules:
            continue
        module = LaterModule(whole)
        module.__spec__ = spec
        module.__path__ = list(spec.submodule_search_locations or ())
        sys.modules[whole] = module
        if isinstance(above, ModuleType):  # where an import would have put it
            setattr(above, name, module)


def _folders(package: ModuleType | ModuleSpec) -> Sequence[str] | None:
    return package.__path__ if isinstance(package, ModuleType) else package.submodule_search_locations


__all__ = ["LaterModule", "import_later"]
