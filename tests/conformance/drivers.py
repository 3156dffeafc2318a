"""The correlators there are to drive, by name."""

from __future__ import annotations

from importlib import import_module

from tests.conformance.driver import Driver

_CLASSES = dict(model="tests.conformance.model:ModelDriver", redis="tests.conformance.redis_driver:RedisDriver")
NAMES = tuple(_CLASSES)


def make_driver(name: str) -> Driver:
    """A driver that has not been started.

    Raises: ImportError: the driver needs something that is not installed.
    """
    module, _, attribute = _CLASSES[name].partition(":")
    driver: Driver = getattr(import_module(module), attribute)()
    return driver
