"""Has each test module compiled by one process of a run: each begins elsewhere, and meets what others have compiled.

Pytest rewrites every assertion of a module before the module is compiled, which takes five times as long as all else
that collecting does. It keeps the result, but in a fresh clone every process of xdist would do all of it. So it is with
the constants that Hypothesis looks for in each module of ours.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import TypeVar

import pytest
from hypothesis.internal.constants_ast import constants_from_module, is_local_module_file

T = TypeVar("T")
TESTS = Path(__file__).parents[1]


@pytest.hookimpl(tryfirst=True)
def pytest_collection(session: pytest.Session) -> None:
    processes = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    whole = [(session.config.invocation_params.dir / arg).resolve() for arg in session.config.args] == [TESTS]
    if processes == 1 or not whole or sys.dont_write_bytecode:
        return
    number = int(os.environ["PYTEST_XDIST_WORKER"].removeprefix("gw"))
    modules = sorted(TESTS.rglob("test_*.py"))
    for path in _from(modules, len(modules) * number // processes):
        import_module(".".join(path.relative_to(TESTS.parent).with_suffix("").parts))
    files = {module: getattr(module, "__file__", None) for module in list(sys.modules.values())}
    ours = [module for module, file in files.items() if file and is_local_module_file(file)]
    for module in _from(ours, len(ours) * number // processes):
        constants_from_module(module)


def _from(all_of_them: Sequence[T], place: int) -> Sequence[T]:
    return [*all_of_them[place:], *all_of_them[:place]]
