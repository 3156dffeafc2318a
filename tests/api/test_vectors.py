"""What a real API server answered, asked of ours."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.api_replay import VECTORS, replay
from tests.support.api_worker import ApiWorker

FILES = sorted((VECTORS / "api").glob("*.json"))

pytestmark = pytest.mark.xdist_group("api vectors")


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_answers_are_those_of_a_real_api_server(users_worker: ApiWorker, file: Path) -> None:
    assert replay(users_worker, file) == []


def test_all_scenarios_are_there() -> None:
    assert len(FILES) == 57
