"""Bounds of what is answered at once."""

from __future__ import annotations

import asyncio

import pytest
from aiohttp.test_utils import make_mocked_request

from eventbus.api.limits import Bounds, Limits, is_long
from eventbus.api.status import ApiError

FEW = Bounds(reads=2, writes=1, watches=2)


async def answered(limits: Limits, method: str, path: str, times: int) -> list[int]:
    """The codes of requests that are all answered at once."""
    gate = asyncio.Event()

    async def one() -> int:
        try:
            place = limits.begin(make_mocked_request(method, path))
        except ApiError as refusal:
            return refusal.code if refusal.headers == {"Retry-After": "1"} else 0
        await gate.wait()
        limits.end(place)
        return 200

    tasks = [asyncio.create_task(one()) for _ in range(times)]
    await asyncio.sleep(0)
    gate.set()
    return await asyncio.gather(*tasks)


@pytest.mark.parametrize(
    ("method", "path", "codes"),
    [
        ("GET", "/api/v1/events", [200, 200, 429, 429]),
        ("POST", "/api/v1/namespaces/default/events", [200, 429, 429, 429]),
        ("GET", "/api/v1/events?watch=1", [200] * 4),
        ("GET", "/api/v1/watch/events", [200] * 4),
        ("GET", "/eventbus/v1/stream", [200] * 4),
        ("GET", "/eventbus/v1/stream/position", [200, 200, 429, 429]),
        ("GET", "/eventbus/v1/events?watch=1", [200, 200, 429, 429]),
        ("POST", "/eventbus/v1/verdicts", [200, 200, 429, 429]),
        ("POST", "/mcp", [200, 200, 429, 429]),
        ("POST", "/eventbus/v1/session", [200] * 4),
        ("PUT", "/eventbus/v1/session", [200, 429, 429, 429]),
        ("GET", "/readyz", [200] * 4),
        ("GET", "/readyz/redis", [200] * 4),
        ("GET", "/readyzX", [200, 200, 429, 429]),
        ("GET", "/readyz/", [200, 200, 429, 429]),
        ("GET", "/readyz/a/b", [200, 200, 429, 429]),
        ("GET", "/readyz%2Fredis", [200, 200, 429, 429]),
        ("POST", "/readyz", [200, 429, 429, 429]),
    ],
)
def test_so_many_are_answered_at_once(method: str, path: str, codes: list[int]) -> None:
    limits = Limits(FEW)
    assert asyncio.run(answered(limits, method, path, 4)) == codes
    assert limits.in_flight.total() == 0
    assert asyncio.run(answered(limits, method, path, 1)) == [200]


def test_watches_are_bounded() -> None:
    limits = Limits(FEW)
    limits.begin_watch()
    limits.begin_watch()
    with pytest.raises(ApiError):
        limits.begin_watch()
    limits.end_watch()
    limits.begin_watch()
    assert (limits.watches, limits.refused["watches"]) == (2, 1)


def test_a_write_with_a_watch_parameter_is_no_watch() -> None:
    assert not is_long(make_mocked_request("DELETE", "/api/v1/events?watch=1"))
