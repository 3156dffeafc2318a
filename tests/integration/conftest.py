"""Fixtures of many files here; a file that needs another one of the name has its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from eventbus.broker.bus import Bus, open_bus
from eventbus.settings import Settings
from tests.support.harness import settings_of
from tests.support.runtime_world import RuntimeWorld, runtime_world


@pytest.fixture
def settings(prefix: str) -> Settings:
    return settings_of(prefix)


@pytest.fixture
def bus(embedded_url: str, settings: Settings) -> Bus:
    return open_bus(embedded_url, settings)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[RuntimeWorld]:
    """A runtime of pods as real processes."""
    with runtime_world(tmp_path / "state") as made:
        yield made
