"""The bounds of OTLP requests in JSON."""

from __future__ import annotations

import tracemalloc

import pytest

from eventbus.api.eventbus_v1.log_records import JSON, read_logs
from eventbus.api.status import ApiError


@pytest.mark.parametrize("item", [b"1", b"[]", b'""', b"null"])
def test_small_values_instead_of_log_records_take_no_memory(item: bytes) -> None:
    items = b",".join([item] * 200_000)
    body = b'{"resourceLogs": [{"scopeLogs": [{"logRecords": [' + items + b"]}]}]}"
    tracemalloc.start()
    try:
        with pytest.raises(ApiError) as caught:
            read_logs(body, JSON, "bus")
        assert tracemalloc.get_traced_memory()[1] < 1024 * 1024
    finally:
        tracemalloc.stop()
    assert caught.value.code == 400
