"""Does not collect the tests marked `volume` if the run has none of them, as `make test`.

They are a third of all tests, and each process of a run collects all.
"""

from __future__ import annotations

from inspect import isfunction

import pytest

from tests import thin


def pytest_configure(config: pytest.Config) -> None:
    thin.with_volume = config.getoption("markexpr") != "not volume"


@pytest.hookimpl(tryfirst=True)
def pytest_pycollect_makeitem(obj: object) -> list[pytest.Item] | None:
    if not thin.with_volume and isfunction(obj):
        marks: list[pytest.Mark] = getattr(obj, "pytestmark", [])
        if any(mark.name == "volume" for mark in marks):
            return []
    return None
