"""Our sink is called with what client-go's was called with, and when, under `outage=count`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conformance import end_to_end, end_to_end_kubernetes
from tests.conformance.end_to_end import NOT_OURS, Vector
from tests.conformance.end_to_end_kubernetes import UNSEEN
from tests.thin import one_of_each

VECTORS = [vector for vector in end_to_end.recorded() if vector.name not in NOT_OURS]
IN_SERIES = [vector for vector in end_to_end.recorded() if vector.in_series]


@pytest.mark.parametrize("vector", VECTORS, ids=[vector.name for vector in VECTORS])
def test_the_sink_is_called_as_client_go_calls_it(vector: Vector, embedded_url: str) -> None:
    calls, buried = end_to_end.run(vector, embedded_url)

    assert end_to_end.differences(vector, calls) == []
    assert buried == end_to_end.given_up(vector), "what client-go gives up is in the dead letter"


@pytest.mark.parametrize("vector", IN_SERIES, ids=[vector.name for vector in IN_SERIES])
def test_in_batches_series_are_the_same(vector: Vector, embedded_url: str) -> None:
    assert end_to_end.shown_in_batches(vector, embedded_url, seed=0) == end_to_end.series_after(vector)


@pytest.mark.parametrize(
    "vector",
    one_of_each(
        [vector for vector in VECTORS if end_to_end_kubernetes.applies(vector)],
        # one of a kind: what each answer means is in tests/integration/test_sink_kubernetes.py
        lambda vector: tuple(vector.name.split("_")[1:3]),
    ),
    ids=lambda vector: vector.name,
)
def test_an_api_server_gets_the_requests_that_it_gets_of_client_go(
    vector: Vector, embedded_url: str, tmp_path: Path
) -> None:
    calls, buried = end_to_end_kubernetes.run(vector, embedded_url, tmp_path)

    assert end_to_end.differences(vector, calls, unseen=UNSEEN) == []
    assert buried == end_to_end.given_up(vector)


def test_a_call_too_many_or_too_late_is_a_difference(embedded_url: str) -> None:
    vector = next(vector for vector in VECTORS if vector.name == "007_record_http_11")
    calls, _ = end_to_end.run(vector, embedded_url)

    assert end_to_end.differences(vector, calls[:-1]) != []
    assert end_to_end.differences(vector, [call | {"t_ms": call["t_ms"] + 20_000} for call in calls]) != []
