"""Commands that go to a bus either way: to its Redis, or through an API worker of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from eventbus.settings import Settings
from tests.acceptance.programs import environment
from tests.support.both_ways import either_way

#: Who asks an API worker from this machine may do what Redis lets everybody do.
OPERATOR = "operator=user:system:local"


def over_http(url: str, **settings: str) -> dict[str, str]:
    """The environment of commands that have this API, and no Redis but one that is away."""
    return environment("redis://127.0.0.1:1/0", "other", **settings) | {"EVENTBUS_URL": url}


@contextmanager
def environment_of(request: pytest.FixtureRequest, settings: Settings, **more: str) -> Iterator[dict[str, str]]:
    """The environment of commands, by the parameter over Redis or through an API worker in this process."""
    redis = settings.redis_url
    with either_way(request, redis, settings, [OPERATOR]) as url:
        yield environment(redis, settings.prefix, **more) if url == redis else over_http(url, **more)
