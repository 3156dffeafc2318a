"""The output of a log, of functions and of a real kopf operator becomes events; a storm of it harms nobody."""

from __future__ import annotations

import asyncio
import logging
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from eventbus import ConfigError, Event, EventBroadcaster, EventRecorder, InvalidEvent, ObjectReference, Settings
from eventbus.contrib import EventHandler, recorded
from eventbus.contrib.kopf import record_kopf_events
from eventbus.contrib.logging import BURST, PER_SECOND
from eventbus.testing.clock import FakeClock
from tests.support.kubernetes_api import KubernetesApi
from tests.waiting import eventually

SHOP = ObjectReference("Service", "default", "shop")


@pytest.fixture
def broadcaster(embedded_url: str, prefix: str) -> Iterator[EventBroadcaster]:
    with EventBroadcaster(settings=Settings(redis_url=embedded_url, prefix=prefix, worker_block_ms=100)) as made:
        yield made


@pytest.fixture
def recorder(broadcaster: EventBroadcaster) -> EventRecorder:
    return broadcaster.new_recorder("shop")


@pytest.fixture
def events(broadcaster: EventBroadcaster) -> list[Event]:
    """Every event of the bus, as it comes."""
    found: list[Event] = []
    broadcaster.start_event_watcher(found.append)
    return found


@pytest.fixture
def logger() -> Iterator[logging.Logger]:
    """A logger that nobody else uses and that nothing escapes from."""
    made = logging.Logger("acme.payments")
    yield made
    made.handlers.clear()


def said(events: list[Event], n: int) -> list[tuple[str, str, str]]:
    """Type, reason and message of the first *n* events, once they are there."""
    eventually(lambda: len(events) >= n)
    assert len(events) == n
    return [(event.type, event.reason, event.message) for event in events]


# -- a log -----------------------------------------------------------------------------------------------------------


def charge_card(logger: logging.Logger) -> None:
    logger.debug("looking up")
    logger.info("charging")
    logger.warning("retry %d of %d", 1, 3)
    logger.error("100% declined")


def test_warnings_and_errors_of_a_log_become_events(
    logger: logging.Logger, recorder: EventRecorder, events: list[Event]
) -> None:
    logger.addHandler(EventHandler(recorder, SHOP))
    charge_card(logger)
    assert said(events, 2) == [
        ("Warning", "PaymentsChargeCard", "retry 1 of 3"),
        ("Warning", "PaymentsChargeCard", "100% declined"),
    ]
    assert events[0].involved_object == SHOP


def test_a_lower_level_is_normal_and_a_reason_of_ones_own_is_kept(
    logger: logging.Logger, recorder: EventRecorder, events: list[Event]
) -> None:
    logger.addHandler(EventHandler(recorder, "Service/shop", logging.INFO, namespace="ops"))
    logger.info("card accepted", extra={"reason": "CardAccepted"})
    assert said(events, 1) == [("Normal", "CardAccepted", "card accepted")]
    assert events[0].involved_object == ObjectReference("Service", "ops", "shop")


def test_an_exception_is_in_the_message_without_its_traceback(
    logger: logging.Logger, recorder: EventRecorder, events: list[Event]
) -> None:
    logger.addHandler(EventHandler(recorder, SHOP))
    try:
        dict[str, int]()["price"]
    except KeyError:
        logger.exception("no price")
    [(event_type, _, message)] = said(events, 1)
    assert (event_type, message) == ("Warning", "no price: KeyError: 'price'")


def test_what_cannot_be_an_event_is_not_raised_into_the_program(
    logger: logging.Logger, recorder: EventRecorder, events: list[Event], capsys: pytest.CaptureFixture[str]
) -> None:
    logger.addHandler(EventHandler(recorder, SHOP))
    logger.warning("two %s", 1, 2)  # logging prints it, as for its own handlers
    logger.warning("lone \ud800 and \0", extra={"reason": "R" * 500})
    logger.warning("x" * 100_000)
    found = said(events, 2)
    assert found[0] == ("Warning", "R" * 125 + "...", "lone \ufffd and \ufffd")
    assert len(found[1][2]) == 1024
    assert "TypeError" in capsys.readouterr().err


def test_an_object_that_names_nothing_is_refused_when_the_handler_is_made(recorder: EventRecorder) -> None:
    with pytest.raises(InvalidEvent, match="KIND/NAME"):
        EventHandler(recorder, "shop")
    with pytest.raises(InvalidEvent):
        EventHandler(recorder, 5)


def test_a_storm_is_held_back_and_counted(
    logger: logging.Logger, recorder: EventRecorder, events: list[Event], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("eventbus.contrib.logging.TELL_AFTER_S", 600)
    clock = FakeClock()
    logger.addHandler(handler := EventHandler(recorder, SHOP, clock=clock))
    for _ in range(10_000):
        logger.warning("again")
    said(events, BURST)
    clock.advance(1)
    for _ in range(PER_SECOND + 5):
        logger.warning("and again")
    found = said(events, BURST + 1 + PER_SECOND)[BURST:]
    assert found[0] == ("Warning", "LogHeldBack", f"{10_000 - BURST} log records were held back")
    assert [message for _, _, message in found[1:]] == ["and again"] * PER_SECOND
    handler.close()


def test_a_storm_that_ends_in_silence_is_counted_too(
    logger: logging.Logger, recorder: EventRecorder, events: list[Event], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("eventbus.contrib.logging.TELL_AFTER_S", 0.05)
    logger.addHandler(EventHandler(recorder, SHOP, clock=FakeClock()))
    storm(logger, BURST + 7)
    eventually(lambda: told(events) == 7)
    storm(logger, 3)
    eventually(lambda: told(events) == 10)  # of a second one
    eventually(lambda: not any(isinstance(thread, threading.Timer) for thread in threading.enumerate()))


@pytest.mark.parametrize("end", [EventHandler.flush, EventHandler.close])
def test_a_handler_that_ends_tells_what_it_holds_back(
    logger: logging.Logger,
    recorder: EventRecorder,
    events: list[Event],
    end: Callable[[EventHandler], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("eventbus.contrib.logging.TELL_AFTER_S", 600)
    handler = EventHandler(recorder, SHOP, clock=FakeClock())
    logger.addHandler(handler)
    storm(logger, BURST + 7)
    end(handler)
    end(handler)
    eventually(lambda: told(events) == 7)
    said(events, BURST + 1)
    eventually(lambda: not any(isinstance(thread, threading.Timer) for thread in threading.enumerate()))


def storm(logger: logging.Logger, records: int) -> None:
    for _ in range(records):
        logger.warning("again")


def told(events: list[Event]) -> int:
    """Return how many records were said to be held back."""
    return sum(int(event.message.split()[0]) for event in list(events) if event.reason == "LogHeldBack")


def test_what_eventbus_itself_logs_makes_no_events(
    logger: logging.Logger, recorder: EventRecorder, events: list[Event], caplog: pytest.LogCaptureFixture
) -> None:
    handler = EventHandler(recorder, SHOP)
    logger.addHandler(handler)
    logging.getLogger().addHandler(handler)
    try:
        recorder.event(SHOP, "Bogus", "Refused", "which eventbus logs")
        sender = threading.Thread(target=logger.error, args=("as redis may, while sending",), name="eventbus-outbox")
        sender.start()
        sender.join()
    finally:
        logging.getLogger().removeHandler(handler)
    assert "1 event refused" in caplog.text
    logger.error("of the program")
    assert [message for _, _, message in said(events, 1)] == ["of the program"]


def test_a_storm_from_many_threads_ends_although_redis_is_away() -> None:
    settings = Settings(redis_url="redis://127.0.0.1:1/0", buffer_events=50)
    root = logging.getLogger()
    with EventBroadcaster(settings=settings) as broadcaster:
        handler = EventHandler(broadcaster.new_recorder("shop"), SHOP, clock=FakeClock())
        root.addHandler(handler)
        try:
            threads = [threading.Thread(target=complain, args=(500,)) for _ in range(8)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(30)
            assert not any(thread.is_alive() for thread in threads)
            eventually(lambda: broadcaster.losses.counts.get("dropped", 0) > 0)
            broadcaster.shutdown(0.2)
            lost = broadcaster.losses.counts
        finally:
            root.removeHandler(handler)
            handler.close()
    assert lost["dropped"] + lost["unsent"] in range(BURST, BURST + 40)  # what was let through, and no more


def complain(times: int) -> None:
    for _ in range(times):
        logging.getLogger("acme").error("away")


# -- functions -------------------------------------------------------------------------------------------------------


class CardDeclined(Exception):
    pass


def test_a_function_that_returns_or_raises_is_recorded(recorder: EventRecorder, events: list[Event]) -> None:
    @recorded(SHOP, "Billed", recorder=recorder)
    def bill(user: str, amount: int) -> int:
        """Bill *user*."""
        if amount > 100:
            raise CardDeclined(f"limit of {user}")
        return amount

    assert (bill.__name__, bill.__doc__) == ("bill", "Bill *user*.")
    assert bill("eve", amount=5) == 5
    with pytest.raises(CardDeclined, match="limit of eve"):
        bill("eve", 500)
    name = bill.__qualname__.replace(".<locals>", "")
    assert said(events, 2) == [
        ("Normal", "Billed", f"{name} returned"),
        ("Warning", "BilledFailed", f"{name}: CardDeclined: limit of eve"),
    ]


def test_an_object_may_be_written_as_kind_and_name(recorder: EventRecorder, events: list[Event]) -> None:
    @recorded("Invoice/7", "Billed", recorder=recorder)
    def bill() -> None: ...

    @recorded(lambda user: f"User/{user}", "Welcomed", recorder=recorder, namespace="shop")
    def welcome(user: str) -> None: ...

    bill()
    welcome("eve")
    said(events, 2)
    assert [event.involved_object for event in events] == [
        ObjectReference("Invoice", "default", "7"),
        ObjectReference("User", "shop", "eve"),
    ]
    with pytest.raises(InvalidEvent, match="is not of the form KIND/NAME"):
        recorded("Invoice", "Billed", recorder=recorder)


def test_an_object_that_cannot_be_made_does_not_keep_the_function_from_running(
    recorder: EventRecorder, events: list[Event], caplog: pytest.LogCaptureFixture
) -> None:
    @recorded(lambda: SHOP, "Billed", recorder=recorder)
    def bill(user: str) -> str:
        return user

    assert bill("eve") == "eve"
    assert "its object cannot be made" in caplog.text
    recorder.event(SHOP, "Normal", "After", "it")
    assert said(events, 1) == [("Normal", "After", "it")]


def test_a_coroutine_is_recorded_when_it_is_done(recorder: EventRecorder, events: list[Event]) -> None:
    @recorded(SHOP, "Shipped", recorder=recorder)
    async def ship(fail: bool) -> str:
        await asyncio.sleep(0)
        if fail:
            raise CardDeclined
        return "on its way"

    assert asyncio.iscoroutinefunction(ship)
    assert asyncio.run(ship(False)) == "on its way"
    with pytest.raises(CardDeclined):
        asyncio.run(ship(True))
    assert [(event_type, reason) for event_type, reason, _ in said(events, 2)] == [
        ("Normal", "Shipped"),
        ("Warning", "ShippedFailed"),
    ]
    assert events[1].message.endswith(": CardDeclined")


def test_nothing_is_recorded_of_a_call_that_is_cancelled(recorder: EventRecorder, events: list[Event]) -> None:
    @recorded(SHOP, "Shipped", recorder=recorder)
    async def ship() -> None:
        await asyncio.sleep(60)

    async def cancelled() -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(ship(), 0.01)

    asyncio.run(cancelled())
    recorder.event(SHOP, "Normal", "After", "it")
    assert said(events, 1) == [("Normal", "After", "it")]


def test_a_setting_that_is_wrong_costs_neither_result_nor_exception(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("eventbus.record.default._broadcaster", None)
    monkeypatch.setenv("EVENTBUS_BUFFER_EVENTS", "many")

    @recorded(SHOP, "Billed")
    def bill(user: str, fail: bool = False) -> str:
        if fail:
            raise CardDeclined(user)
        return user

    @recorded(SHOP, "Shipped")
    async def ship(fail: bool) -> str:
        return bill("eve", fail)

    assert [bill("eve"), bill("bob"), asyncio.run(ship(False))] == ["eve", "bob", "eve"]
    with pytest.raises(CardDeclined, match="eve"):
        bill("eve", True)
    with pytest.raises(CardDeclined, match="eve"):
        asyncio.run(ship(True))
    said_once = [record.message for record in caplog.records if "EVENTBUS_BUFFER_EVENTS" in record.message]
    assert len(said_once) == 2, "one line a function"


def test_a_generator_is_refused() -> None:
    def numbers() -> Iterator[int]:
        yield 1

    with pytest.raises(TypeError, match="generator"):
        recorded(SHOP, "Counted")(numbers)


# -- kopf ------------------------------------------------------------------------------------------------------------

#: What the handler of the operator posts, and what it logs about its object.
POSTED = {
    ("Created", "made it"),
    ("Slow", "it took long"),
    ("Invented", "by this program"),
    ("OSError", "while creating: no disk"),
    ("Logging", "seen by the handler"),
}


@contextmanager
def operator(api: KubernetesApi, url: str, prefix: str) -> Iterator[None]:
    words = [sys.executable, "-m", "tests.support.kopf_operator", api.url]
    env = os.environ | {"EVENTBUS_REDIS_URL": url, "EVENTBUS_PREFIX": prefix}
    with subprocess.Popen(words, env=env, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield
        finally:
            process.terminate()
            _, log = process.communicate(timeout=50)
            sys.stderr.write(log)
    assert process.returncode == 0


def test_what_a_kopf_operator_posts_is_recorded(embedded_url: str, prefix: str, events: list[Event]) -> None:
    with KubernetesApi() as api, operator(api, embedded_url, prefix):
        eventually(lambda: {(event["reason"], event["message"]) for event in api.events} >= POSTED)
        eventually(lambda: {(event.reason, event.message) for event in events} >= POSTED)
    found = {event.reason: event for event in events if event.reason != "Logging"}
    assert {reason: event.type for reason, event in found.items()} == {
        "Created": "Normal",
        "Slow": "Warning",
        "OSError": "Warning",
        "Invented": "Normal",
    }
    assert found["Slow"].involved_object == ObjectReference("KopfExample", "default", "web", "uid-1", "kopf.dev/v1")
    assert found["Slow"].source.component == "operator"


def test_a_kopf_that_posts_in_another_way_is_refused(recorder: EventRecorder, monkeypatch: pytest.MonkeyPatch) -> None:
    from kopf._core.engines import posting

    monkeypatch.delattr(posting, "enqueue")
    with pytest.raises(ConfigError, match=r"kopf 1\.\d+"):
        record_kopf_events(recorder)


def test_the_bus_alone_has_what_is_posted_until_that_is_undone(recorder: EventRecorder, events: list[Event]) -> None:
    """kopf leaves out events about events too: an operator that handles events would never come to an end."""
    from kopf._core.engines import posting

    before = posting.enqueue
    undo = record_kopf_events(recorder, also_in_kubernetes=False)
    try:
        no_text: Any = OSError("no disk")
        posting.enqueue({"apiVersion": "v1", "kind": "Pod", "name": "p"}, "Error", "Failed", no_text, ())
        posting.enqueue({"apiVersion": "v1", "kind": "Event", "name": "e"}, "Normal", "Seen", "an event", ())
        posting.enqueue({"apiVersion": "v1", "kind": "Pod", "name": "p"}, "Fatal", "Seen", "a pod", ())
    finally:
        undo()
    assert posting.enqueue is before
    assert said(events, 2) == [("Warning", "Failed", "no disk"), ("Warning", "Seen", "a pod")]
