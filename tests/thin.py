"""A thin choice of many cases for `make test`; the others are marked `volume`, and `make test-long` runs them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest
from _pytest.mark import ParameterSet

#: Whether the run has tests marked `volume`: if not, `tests/plugins/volume.py` has the other cases left out.
with_volume = True


def thin(cases: Iterable[Any], chosen: Callable[[Any], bool]) -> list[Any]:
    """All *cases* as parameters, those not *chosen* marked; a case of several values is a `pytest.param`."""
    return [case if is_chosen else _marked(case) for case in cases if (is_chosen := chosen(case)) or with_volume]


def one_of_each(cases: Iterable[Any], kind: Callable[[Any], object]) -> list[Any]:
    """All *cases* as parameters, the first of each *kind* chosen."""
    seen: set[object] = set()

    def is_first(case: Any) -> bool:
        first = kind(case) not in seen
        seen.add(kind(case))
        return first

    return thin(cases, is_first)


def one(cases: Iterable[Any]) -> list[Any]:
    """All *cases* as parameters, the first chosen."""
    return one_of_each(cases, lambda _case: None)


def _marked(case: Any) -> Any:
    if isinstance(case, ParameterSet):
        return pytest.param(*case.values, id=case.id, marks=[*case.marks, pytest.mark.volume])
    return pytest.param(case, marks=pytest.mark.volume)
