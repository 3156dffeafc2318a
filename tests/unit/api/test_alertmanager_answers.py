"""Times and errors in Alertmanager's form."""

from __future__ import annotations

import asyncio
import json

import pytest
from aiohttp import web
from aiohttp.test_utils import make_mocked_request

from eventbus.api.alertmanager.answers import in_its_form, time_text


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (1_770_372_930_001, "2026-02-06T10:15:30.001Z"),
        (253_402_300_800_000, "9998-12-31T23:59:59.000Z"),  # as 9999-12-31T23:59:59.999999Z is rounded
        (-62_135_614_800_000, "1970-01-01T00:00:00.000Z"),  # 0001-01-01T00:00:00+05:00
    ],
)
def test_a_time_outside_the_years_of_datetime_is_limited(ms: int, text: str) -> None:
    assert time_text(ms) == text


def test_an_unexpected_error_is_logged_and_answered_with_a_text(caplog: pytest.LogCaptureFixture) -> None:
    @in_its_form
    async def handler(_request: web.Request) -> web.StreamResponse:
        raise OverflowError("secret")

    async def answered() -> web.StreamResponse:
        return await handler(make_mocked_request("GET", "/alertmanager/api/v2/silences"))

    answer = asyncio.run(answered())
    assert isinstance(answer, web.Response)
    assert answer.status == 500
    assert isinstance(answer.body, bytes)
    assert json.loads(answer.body) == "Internal error occurred; the log of the API worker says more"
    assert "GET /alertmanager/api/v2/silences failed" in caplog.text
