"""The sinks over HTTP against strict stand-ins of their stores: what is read back after each kind of fault."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from eventbus.broker.health.export_status import SinkStatus
from eventbus.export.sinks import make_sink
from eventbus.model.event import Event
from tests.functions.partition import Partition
from tests.support.exporting import OwnTime, about, close, make_exporter, run_until_idle, status_of
from tests.support.strict_service import RETRY_AFTER_S
from tests.support.strict_stores import STRICT_STORES, StrictStore
from tests.support.webhook_server import Answer, Endpoint, receiving
from tests.thin import thin

EVENTS = 12
BAD = "spoiled"


class Trial:
    """An export of recorded events to a store, in time of its own."""

    def __init__(self, partition: Partition, store: StrictStore, stack: ExitStack) -> None:
        self.partition, self.store, self.time = partition, store, OwnTime()
        self.service = store.service
        self._stack = stack
        self._port = stack.enter_context(receiving(store.service))

    def record(self, *messages: str, first: int = 0) -> None:
        """Record an event about an object of its own for each of *messages*, all seen in the same second."""
        now = datetime.now(UTC).replace(microsecond=0) - timedelta(seconds=60)
        for number, message in enumerate(messages, start=first):
            self.partition.record(seen(about(number, message), now))

    def export(self, *, timeout_s: float = 10.0, **environ: str) -> SinkStatus:
        """Export all, and return the status in the end."""
        allowed = {"EVENTBUS_WEBHOOK_ALLOW_HOSTS": "127.0.0.1"} | self.store.environ | environ
        sink = make_sink(self.store.url(self._port), allowed, name="strict", timeout_s=timeout_s, bus_id="bus-a")
        self.time.end_s = self.time.now_s + 3600  # of an export that never ends
        exporter = make_exporter(self.partition.bus, sink, self.time, consumer=f"worker-{self.time.now_s}")
        assert exporter.acquire()
        run_until_idle(exporter)
        close(exporter)
        return status_of(self.partition.bus, "strict")

    def assert_all_stored(self, status: SinkStatus, *, doubles: bool = False) -> None:
        """Every event is read back, none is a dead letter; without *doubles* each is there once."""
        counts = self.store.repeats
        assert (len(counts), status.dead, status.lag) == (EVENTS, 0, 0), (status.error, self.service.refusals[:1])
        assert doubles or set(counts.values()) == {1}


def seen(event: Event, moment: datetime) -> Event:
    return msgspec.structs.replace(event, first_timestamp=moment, last_timestamp=moment)


@pytest.fixture
def partition(embedded_url: str, prefix: str) -> Iterator[Partition]:
    made = Partition(embedded_url, prefix, burst=1_000)
    yield made
    made.close()


#: OpenSearch has the sink of Elasticsearch.
@pytest.fixture(params=thin(STRICT_STORES, "opensearch".__ne__))
def trial(request: pytest.FixtureRequest, partition: Partition) -> Iterator[Trial]:
    with ExitStack() as stack:
        yield Trial(partition, STRICT_STORES[request.param](), stack)


def test_events_of_many_objects_with_one_message_in_one_second_are_stored_once_and_nothing_is_refused(
    trial: Trial,
) -> None:
    trial.record(*["Started container web"] * EVENTS)
    trial.assert_all_stored(trial.export())
    assert trial.service.refusals == []


def test_each_repeat_of_an_event_is_stored(trial: Trial) -> None:
    for _ in range(2):
        trial.record("again")
        trial.export()
    assert sorted(uid.rpartition("/")[2] for uid in trial.store.ids) == ["1", "2"]


def test_invalid_items_are_dead_letters_and_the_others_of_their_batch_are_stored(trial: Trial) -> None:
    trial.service.refused_text = BAD
    trial.record(*(BAD if number in (3, 4, 10) else f"good {number}" for number in range(EVENTS)))
    status = trial.export()
    counts = trial.store.repeats
    assert (len(counts), status.dead + status.rejected, status.lag) == (EVENTS - 3, 3, 0)
    assert max(counts.values()) == 1 or not trial.store.tells_repeats


def test_a_request_that_is_too_large_is_sent_in_parts(trial: Trial) -> None:
    trial.service.max_bytes = 6_000
    trial.record(*(f"message {number} {'x' * 1_000}" for number in range(EVENTS)))
    trial.assert_all_stored(trial.export())


def test_a_throttled_request_is_sent_again_after_the_pause_that_the_store_asks_for(trial: Trial) -> None:
    trial.service.throttled = 2
    trial.record(*["message"] * EVENTS)
    trial.assert_all_stored(trial.export())
    assert trial.time.now_s == 2 * RETRY_AFTER_S


def test_an_outage_pauses_the_export_and_loses_nothing(trial: Trial) -> None:
    each = EVENTS // 6
    for number, status in enumerate((401, 403, 404, 502, 503, 504)):
        trial.record(*["message"] * each, first=number * each)
        trial.service.answers.extend([Answer(status)] * (each + 2))  # enough to refuse the batch and each event alone
        exported = trial.export()
    trial.assert_all_stored(exported)


def test_events_survive_errors_of_the_server_unless_the_protocol_forbids_to_retry(trial: Trial) -> None:
    trial.service.answers.extend([Answer(500)] * 2 * EVENTS)  # more than one try of each event
    trial.record(*["message"] * EVENTS)
    status = trial.export()
    if trial.store.scheme in ("otlp", "loki+http"):  # Loki answers 503 instead
        assert (status.dead, trial.store.ids) == (EVENTS, [])
    else:
        trial.assert_all_stored(status)


def test_events_are_stored_once_although_replies_are_lost_if_the_store_tells_repeats(trial: Trial) -> None:
    trial.record(*["message"] * EVENTS)
    trial.service.lost_replies = 2
    trial.assert_all_stored(trial.export(), doubles=not trial.store.tells_repeats)
    if not trial.store.tells_repeats:
        assert max(trial.store.repeats.values()) == 3


@pytest.mark.parametrize("trial", ["elasticsearch"], indirect=True)
def test_a_store_that_does_not_answer_gets_the_events_again(trial: Trial) -> None:
    trial.record(*["message"] * EVENTS)
    trial.service.hanging = 1
    trial.assert_all_stored(trial.export(timeout_s=0.3), doubles=not trial.store.tells_repeats)


@pytest.mark.parametrize("trial", ["elasticsearch"], indirect=True)
def test_a_redirect_is_not_followed(trial: Trial) -> None:
    trial.record(*["message"] * EVENTS)
    with receiving(other := Endpoint()) as port:
        trial.service.answers.append(Answer(307, {"Location": f"http://127.0.0.1:{port}/"}))
        trial.assert_all_stored(trial.export())
    assert not other.connections
