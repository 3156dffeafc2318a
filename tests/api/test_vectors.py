"""What a real API server answered, asked of ours."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.api_replay import VECTORS, replay
from tests.support.api_worker import ApiWorker

FILES = sorted((VECTORS / "api").glob("*.json"))
#: Recorded from kube-apiserver 1.20.2 of Debian's source package; without what docs/api-departures.md names.
MORE = sorted((VECTORS / "api_server").glob("*.json"))

pytestmark = pytest.mark.xdist_group("api vectors")


@pytest.mark.parametrize("file", FILES + MORE, ids=lambda file: file.stem)
def test_answers_are_those_of_a_real_api_server(users_worker: ApiWorker, file: Path) -> None:
    assert replay(users_worker, file) == []


def test_all_scenarios_are_there() -> None:
    assert (len(FILES), len(MORE)) == (57, 91)
