"""A bus either way: at its Redis, or through an API worker of it, which is in this process."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest

from eventbus.broker.bus import open_bus
from eventbus.settings import Settings
from tests.support.api_in_process import serving

#: The parameters of a fixture that gives `either_way`.
BOTH = ["redis", "http"]
#: For tests that hold whichever way the fixture `url` goes.
over_both = pytest.mark.parametrize("url", BOTH, indirect=True)


@contextmanager
def either_way(
    request: pytest.FixtureRequest, url: str, settings: Settings, grants: Sequence[str] = ()
) -> Iterator[str]:
    """Yield *url* itself or, if the fixture's parameter says http, that of an API worker."""
    if getattr(request, "param", "redis") == "redis":
        yield url
        return
    with serving(open_bus(url, settings), grants=grants) as found:
        yield found
