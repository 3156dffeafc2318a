"""Decides which process of a run (`--dist loadgroup`) gets which tests, and in which order they come.

- Tests that share a fixture of their module are one group: one process sets it up, and only once.
- The unit tests of a file are one group as well: to assign thousands one by one costs more than many of them take.
- Unit tests compute, and most other tests wait. They alternate, so that the cores are busy while others wait.

The processes share a folder, with the forkserver (`tests/starting.py`) of them all.
"""

from __future__ import annotations

import os
import tempfile

import pytest

from tests.starting import FOLDER

#: Folders whose tests compute.
COMPUTING = ("unit", "functions", "conformance")


def pytest_configure(config: pytest.Config) -> None:
    if getattr(config.option, "numprocesses", None) and FOLDER not in os.environ:
        folder = tempfile.TemporaryDirectory(prefix="eb", ignore_cleanup_errors=True)
        config.add_cleanup(folder.cleanup)
        os.environ[FOLDER] = folder.name


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not getattr(config.option, "loadgroup", False):
        return
    for item in items:
        is_unit = item.location[0].startswith("tests/unit/")
        if item.get_closest_marker("xdist_group") is None and (is_unit or _shares_a_fixture(item)):
            item.add_marker(pytest.mark.xdist_group(item.location[0]))
    computing: list[pytest.Item] = []
    waiting: list[pytest.Item] = []
    for item in items:
        (computing if item.location[0].split("/")[1] in COMPUTING else waiting).append(item)
    place = {item: (number + 0.5) / len(part) for part in (computing, waiting) for number, item in enumerate(part)}
    items.sort(key=place.__getitem__)


def _shares_a_fixture(item: pytest.Item) -> bool:
    definitions = item._fixtureinfo.name2fixturedefs.values() if isinstance(item, pytest.Function) else ()
    return any(definition.scope == "module" for of_name in definitions for definition in of_name)
