"""What a real API server answered, asked of ours."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.api_replay import VECTORS, replay
from tests.support.api_worker import ApiWorker, api_worker, with_users

FILES = sorted((VECTORS / "api").glob("*.json"))
#: Recorded from kube-apiserver 1.20.2 of Debian's source package; without what docs/api-departures.md names.
MORE = sorted((VECTORS / "api_server").glob("*.json"))


#: Recorded there, too: what takes the role operator.
OPERATED = sorted((VECTORS / "api_operator").glob("*.json"))


@pytest.mark.parametrize("file", FILES + MORE, ids=lambda file: file.stem)
def test_answers_are_those_of_a_real_api_server(users_worker: ApiWorker, file: Path) -> None:
    assert replay(users_worker, file) == []


@pytest.fixture(scope="module")
def operators_worker(embedded_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiWorker]:
    folder = tmp_path_factory.mktemp("operators")
    options = (*with_users(folder), "--grant", "operator=user:admin")
    with api_worker(embedded_url, f"t{secrets.token_hex(6)}", folder, *options, token="admin-token") as worker:
        yield worker


@pytest.mark.parametrize("file", OPERATED, ids=lambda file: file.stem)
def test_answers_to_operators_are_those_of_a_real_api_server(operators_worker: ApiWorker, file: Path) -> None:
    assert replay(operators_worker, file) == []


def test_all_scenarios_are_there() -> None:
    assert (len(FILES), len(MORE), len(OPERATED)) == (57, 95, 4)
