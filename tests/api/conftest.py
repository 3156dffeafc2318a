"""Workers that the tests of a file share."""

from __future__ import annotations

import secrets
from collections.abc import Iterator

import pytest

from tests.support.api_worker import ApiWorker, api_worker, with_users


@pytest.fixture(scope="module")
def users_worker(embedded_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiWorker]:
    """A worker with the users of the vectors, asked as admin."""
    folder = tmp_path_factory.mktemp("users")
    prefix = f"t{secrets.token_hex(6)}"
    with api_worker(embedded_url, prefix, folder, *with_users(folder), token="admin-token") as worker:
        yield worker


@pytest.fixture(scope="module")
def local_worker(embedded_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiWorker]:
    """A worker without users, which serves processes of our own."""
    with api_worker(embedded_url, f"t{secrets.token_hex(6)}", tmp_path_factory.mktemp("local")) as worker:
        yield worker
