"""EventRateLimit: buckets by what each limit names, all charged, and when to come again."""

from __future__ import annotations

from pathlib import Path

import pytest

from eventbus.api.event_rate_limit import EventRateLimit
from eventbus.api.rate_limits import Limit, LimitType, read_limits
from eventbus.api.status import Refusal
from eventbus.broker.connection.connect import make_client
from eventbus.broker.functions import Functions
from eventbus.broker.keys import Keys
from eventbus.errors import ConfigError
from eventbus.testing.clock import FakeClock
from tests.builders import make_event

HEAD = "apiVersion: eventratelimit.admission.k8s.io/v1alpha1\nkind: Configuration\n"


def refusals(limits: EventRateLimit, user: str, times: int) -> int:
    found = 0
    for _ in range(times):
        try:
            limits.admit(user, make_event())
        except Refusal:
            found += 1
    return found


def test_a_burst_passes_and_tokens_come_back_with_time() -> None:
    clock = FakeClock()
    limits = EventRateLimit([Limit(LimitType.USER, qps=2, burst=3)], clock=clock)
    assert refusals(limits, "ann", 5) == 2
    assert refusals(limits, "bob", 3) == 0
    clock.advance(1)
    assert refusals(limits, "ann", 3) == 1
    assert limits.refused == {"User": 3}


def test_a_refusal_says_when_to_come_again() -> None:
    limits = EventRateLimit([Limit(LimitType.SERVER, qps=1, burst=1)], clock=FakeClock())
    limits.admit("ann", make_event())
    with pytest.raises(Refusal, match="limit reached on type Server for key") as refused:
        limits.admit("ann", make_event())
    assert (refused.value.code, refused.value.headers["Retry-After"]) == (429, "1")


def test_every_bucket_is_charged_also_when_another_refuses() -> None:
    both = [Limit(LimitType.SERVER, qps=1, burst=1), Limit(LimitType.NAMESPACE, qps=1, burst=3)]
    limits = EventRateLimit(both, clock=FakeClock())
    assert refusals(limits, "ann", 4) == 3
    assert limits.refused == {"Server": 3, "Namespace": 1}


def test_the_bucket_used_longest_ago_is_forgotten_and_comes_back_full() -> None:
    limits = EventRateLimit([Limit(LimitType.USER, qps=1, burst=1, cache_size=2)], clock=FakeClock())
    assert [refusals(limits, user, 1) for user in ("a", "b", "c", "a", "a")] == [0, 0, 0, 0, 1]


def test_the_api_servers_file_is_read(tmp_path: Path) -> None:
    file = tmp_path / "limits.yaml"
    file.write_text(HEAD + "limits:\n- {type: Namespace, qps: 50, burst: 100, cacheSize: 2000}\n")
    assert read_limits(file) == [Limit(LimitType.NAMESPACE, 50, 100, 2000)]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (HEAD + "limits: []\n", "must not be empty"),
        (HEAD + "limits: [{type: Pod, qps: 1, burst: 1}]\n", "Pod"),
        (HEAD + "limits: [{type: User, qps: 0, burst: 1}]\n", "positive"),
        (HEAD + "limits: [{type: User, qps: 1}]\n", "burst"),
        ("limits: [{type: User, qps: 1, burst: 1}]\n", "apiVersion"),
        ("[", "while parsing"),
    ],
)
def test_a_file_that_cannot_be_used_is_told(tmp_path: Path, text: str, problem: str) -> None:
    (tmp_path / "limits.yaml").write_text(text)
    with pytest.raises(ConfigError, match=problem):
        read_limits(tmp_path / "limits.yaml")


def test_a_request_of_many_is_taken_whole_and_paid_off() -> None:
    clock = FakeClock()
    limits = EventRateLimit([Limit(LimitType.USER, qps=2, burst=4)], clock=clock)
    limits.admit_all("ann", [make_event()] * 10)
    with pytest.raises(Refusal) as refused:
        limits.admit_all("ann", [make_event()])
    assert refused.value.headers["Retry-After"] == "4"  # six on credit, and one more
    limits.admit_all("bob", [make_event()])
    clock.advance(3.5)
    limits.admit_all("ann", [make_event()] * 3)


def test_a_request_that_is_refused_takes_no_token() -> None:
    both = [Limit(LimitType.SERVER, qps=1, burst=10), Limit(LimitType.USER, qps=1, burst=1)]
    limits = EventRateLimit(both, clock=FakeClock())
    limits.admit_all("ann", [make_event()])
    for _ in range(20):
        with pytest.raises(Refusal, match="type User"):
            limits.admit_all("ann", [make_event()])
    limits.admit_all("bob", [make_event()])


def test_without_redis_a_worker_has_shared_buckets_of_its_own_and_says_so(caplog: pytest.LogCaptureFixture) -> None:
    with make_client("redis://127.0.0.1:1/0") as nobody:
        away = Functions(nobody, Keys("eb", 0))
        limits = EventRateLimit([Limit(LimitType.USER, qps=1, burst=2)], shared=True, clock=FakeClock())
        for _ in range(2):
            limits.admit("ann", make_event(), away)
        with pytest.raises(Refusal, match="limit reached on type User"):
            limits.admit("ann", make_event(), away)
        with pytest.raises(Refusal, match="limit reached on type User"):
            limits.admit_all("ann", [make_event()] * 2, away)
    assert limits.unshared == 4
    assert len([one for one in caplog.records if "not shared" in one.message]) == 1
