"""Commands that go to a bus either way: to its Redis, or through an API worker of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from eventbus.broker.bus import open_bus
from eventbus.settings import Settings
from tests.acceptance.programs import environment
from tests.support.api_in_process import serving

#: The parameters of a fixture that gives both.
BOTH = ["redis", "http"]
#: Who asks an API worker from this machine may do what Redis lets everybody do.
OPERATOR = "operator=user:system:local"


def over_http(url: str, **settings: str) -> dict[str, str]:
    """The environment of commands that have this API, and no Redis but one that is away."""
    return environment("redis://127.0.0.1:1/0", "other", **settings) | {"EVENTBUS_URL": url}


@contextmanager
def environment_of(request: pytest.FixtureRequest, settings: Settings, **more: str) -> Iterator[dict[str, str]]:
    """The environment of commands, by the parameter over Redis or through an API worker in this process."""
    if request.param == "redis":
        yield environment(settings.redis_url, settings.prefix, **more)
        return
    with serving(open_bus(settings.redis_url, settings), grants=[OPERATOR]) as url:
        yield over_http(url, **more)
