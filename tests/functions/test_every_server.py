"""Every function ends alike on every kind of server: the thin choice of `make test`, which has all else on one."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from eventbus.broker.build import library
from tests.conftest import CONTAINERS
from tests.functions.breaking import Breaker, breakable_server
from tests.functions.picture import differences
from tests.functions.stories import tell
from tests.functions.write_cases import CASES, Case
from tests.thin import one

FIRST = list({case.verb: case for case in reversed(CASES)}.values())


@pytest.fixture(scope="module")
def embedded() -> Iterator[Breaker]:
    with tempfile.TemporaryDirectory(prefix="eb") as folder, breakable_server(Path(folder)) as found:
        yield found


@pytest.fixture
def breaker(server_url: str) -> Iterator[Breaker]:
    """On a server that others have as well: they find the library as it is."""
    found = Breaker(server_url)
    yield found
    found.client.function_load(library(), replace=True)
    found.client.close()


@pytest.mark.parametrize("server_url", one(CONTAINERS), indirect=True)
@pytest.mark.parametrize(
    "cases", [pytest.param(FIRST, id="first of each function"), pytest.param(CASES, id="all", marks=pytest.mark.volume)]
)
def test_cases_end_as_on_the_embedded_server(embedded: Breaker, breaker: Breaker, cases: Sequence[Case]) -> None:
    wrong = []
    for case in cases:
        lines = differences(tell(embedded, case).picture, tell(breaker, case).picture)
        wrong += [f"{case}: {line}" for line in lines]
    assert not wrong, "\n".join(wrong)
