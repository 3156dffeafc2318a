"""Fixtures of many files here; a file that needs another one of the name has its own."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from eventbus.broker.bus import Bus, open_bus
from eventbus.settings import Settings
from tests.conftest import IN_CI
from tests.support.harness import settings_of
from tests.support.postgres_server import URL_VARIABLE, NoPostgres, PostgresServer, a_database, empty
from tests.support.runtime_world import LastingZygote, RuntimeWorld, runtime_world


@pytest.fixture
def settings(prefix: str) -> Settings:
    return settings_of(prefix)


@pytest.fixture
def bus(embedded_url: str, settings: Settings) -> Bus:
    return open_bus(embedded_url, settings)


@pytest.fixture(scope="session")
def zygote() -> Iterator[LastingZygote]:
    """Forks the shims of many tests; to start one takes longer than what most of them do."""
    made = LastingZygote()
    yield made
    made.end()


@pytest.fixture
def world(tmp_path: Path, zygote: LastingZygote) -> Iterator[RuntimeWorld]:
    """A runtime of pods as real processes."""
    with runtime_world(tmp_path / "state", zygote) as made:
        yield made


@pytest.fixture
def fresh_world(tmp_path: Path) -> Iterator[RuntimeWorld]:
    """The same with a zygote of its own, which has the environment of its first use."""
    with runtime_world(tmp_path / "state") as made:
        yield made


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """A private cluster. Those who use it have the group `postgres`: it takes longer to make than their tests."""
    try:
        server = PostgresServer()
        try:
            server.start()
            yield server
        finally:
            server.close()
    except NoPostgres as error:
        if IN_CI:
            pytest.fail(f"{error}; in CI that is a failure", pytrace=False)
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def _database(request: pytest.FixtureRequest) -> Iterator[str]:
    """A database of the server that `EVENTBUS_TEST_POSTGRES_URL` names, else of the private one."""
    with a_database(os.environ.get(URL_VARIABLE) or request.getfixturevalue("postgres").url()) as url:
        yield url


@pytest.fixture
def database_url(_database: str) -> str:
    """An empty PostgreSQL database."""
    empty(_database)
    return _database
