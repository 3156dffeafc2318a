"""Decides which process of a run (`--dist loadgroup`) gets which tests, and in which order they come.

- Tests that share a fixture of their module are one group: one process sets it up, and only once.
- The unit tests of a file are one group as well: to assign thousands one by one costs more than many of them take.
- The groups come in the order of a hash of their names. Neighbours are alike: many in a row only wait, and leave the
  cores idle.

The processes share a folder, with the forkserver (`tests/starting.py`) of them all.
"""

from __future__ import annotations

import os
import tempfile
from zlib import crc32

import pytest

from tests.starting import FOLDER


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
    items.sort(key=_place)


def _place(item: pytest.Item) -> int:
    group = item.get_closest_marker("xdist_group")
    return crc32((str(group.args[0]) if group else item.nodeid).encode())


def _shares_a_fixture(item: pytest.Item) -> bool:
    definitions = item._fixtureinfo.name2fixturedefs.values() if isinstance(item, pytest.Function) else ()
    return any(definition.scope == "module" for of_name in definitions for definition in of_name)
