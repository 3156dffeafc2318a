"""EventRateLimit with several workers on one bus: each for itself, or out of the same buckets."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.support.api_replay import EVENTS
from tests.support.api_worker import ApiWorker, api_worker

pytestmark = pytest.mark.xdist_group("api rate limit")

BURST = 40
LIMITS = f"""
apiVersion: eventratelimit.admission.k8s.io/v1alpha1
kind: Configuration
limits:
- {{type: User, qps: 1, burst: {BURST}}}
- {{type: SourceAndObject, qps: 1000, burst: 100000}}
"""


@pytest.fixture
def workers(
    request: pytest.FixtureRequest, embedded_url: str, prefix: str, tmp_path: Path
) -> Iterator[tuple[ApiWorker, ...]]:
    (tmp_path / "limits.yaml").write_text(LIMITS)
    options = ["--event-rate-limit", str(tmp_path / "limits.yaml"), *request.param]
    with ExitStack() as stack:
        yield tuple(stack.enter_context(api_worker(embedded_url, prefix, tmp_path, *options)) for _ in range(2))


def written(worker: ApiWorker, times: int) -> int:
    """So many of that many events were taken; the others are refused, and told when to come again."""
    taken = 0
    for _ in range(times):
        about = {"kind": "Pod", "namespace": "default", "name": "web-0"}
        answer = worker.call("POST", EVENTS, {"metadata": {"generateName": "e."}, "involvedObject": about})
        assert answer.status in (201, 429), answer.data
        if answer.status == 429:
            assert answer.headers["Retry-After"] == "1"
            assert "limit reached on type User" in answer.json["message"]
        taken += answer.status == 201
    return taken


@pytest.mark.parametrize("workers", [["--share-rate-limit"]], indirect=True)
def test_workers_that_share_take_from_the_same_buckets(workers: tuple[ApiWorker, ...]) -> None:
    begun = time.monotonic()
    taken = sum(written(worker, BURST) for worker in workers)
    # What came back meanwhile, a token a second, may have been taken as well.
    assert BURST <= taken <= BURST + int(time.monotonic() - begun) + 1
    refused = 2 * BURST - taken
    for worker in workers:
        lines = worker.call("GET", "/metrics").data.decode().splitlines()
        assert "eventbus_apiserver_event_rate_limit_unshared_total 0" in lines
        counted = [line.split()[1] for line in lines if line.startswith("eventbus_apiserver_event_rate_limit_refused")]
        refused -= sum(map(int, counted))
    assert refused == 0


@pytest.mark.parametrize("workers", [[]], indirect=True, ids=["control"])
def test_without_each_worker_has_buckets_of_its_own(workers: tuple[ApiWorker, ...]) -> None:
    assert [written(worker, BURST) for worker in workers] == [BURST, BURST]


@pytest.mark.parametrize("workers", [["--share-rate-limit"]], indirect=True)
def test_a_batch_is_paid_off_at_all_workers(workers: tuple[ApiWorker, ...]) -> None:
    event = {"involvedObject": {"kind": "Backup", "name": "nightly"}, "reason": "Completed"}
    first, second = (worker.call("POST", "/eventbus/v1/record", [event] * 3_000) for worker in workers)
    assert first.json == {"accepted": 3_000, "refused": []}
    assert second.status == 429
    assert int(second.headers["Retry-After"]) > BURST
