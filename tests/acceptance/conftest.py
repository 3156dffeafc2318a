"""Fixtures of the tests of commands, where a module has none of its own: a bus of the test's own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from eventbus import EventBroadcaster, FullBuffer, Settings
from eventbus.broker.bus import Bus, open_bus
from tests.acceptance.programs import environment


@pytest.fixture
def env(embedded_url: str, prefix: str) -> dict[str, str]:
    return environment(embedded_url, prefix, worker_block_ms="100")


@pytest.fixture
def settings(embedded_url: str, prefix: str) -> Settings:
    return Settings(redis_url=embedded_url, prefix=prefix, buffer_full=FullBuffer.WAIT, buffer_wait_s=30, flush_s=60)


@pytest.fixture
def broadcaster(settings: Settings) -> Iterator[EventBroadcaster]:
    with EventBroadcaster(settings=settings) as made:
        yield made


@pytest.fixture
def bus(settings: Settings) -> Bus:
    return open_bus(settings.redis_url, settings)


@pytest.fixture
def client(bus: Bus) -> Iterator[Any]:
    made = bus.client()
    yield made
    made.close()
