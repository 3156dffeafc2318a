"""What a user with a producer's rights can do to others, on a real server: nothing that lasts, and nothing unnamed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from redis.exceptions import ResponseError

from eventbus.broker.acl import Role
from eventbus.broker.bus import Bus, open_bus
from eventbus.broker.connection.connect import make_client
from eventbus.broker.functions import publish_command
from eventbus.broker.health.doctor import examine
from eventbus.broker.health.findings import Severity
from eventbus.broker.transport import PublishRequest
from eventbus.consume.housekeeper import Housekeeper
from eventbus.model.encoding.wire import pack_batch, pack_event, unpack_batch
from eventbus.record.broadcaster import EventBroadcaster
from eventbus.settings import Settings
from eventbus.util.clock import SystemClock
from tests.builders import make_event
from tests.integration.test_acl import WEB_0, As, as_role, bus_made, record
from tests.thin import one
from tests.waiting import eventually

__all__ = ["as_role", "bus_made"]  # fixtures

MIB = 1024 * 1024


@pytest.fixture
def bus(bus_made: As, settings: Settings) -> Bus:
    return open_bus(bus_made(Role.WORKER), settings)


@pytest.fixture
def attacker(bus_made: As) -> Iterator[Any]:
    """A client with a producer's rights and no others."""
    with make_client(bus_made(Role.PRODUCER)) as client:
        yield client


@pytest.fixture
def admin(any_server_url: str) -> Iterator[Any]:
    with make_client(any_server_url) as client:
        yield client


@pytest.fixture
def recording(bus: Bus, bus_made: As, settings: Settings) -> Iterator[EventBroadcaster]:
    """Somebody else, who has recorded one event."""
    with record(bus_made(Role.PRODUCER), settings, 1) as broadcaster:
        yield broadcaster


def trim(bus: Bus) -> None:
    """What workers do each second."""
    with bus.client() as worker:
        Housekeeper(bus=bus, clock=SystemClock()).trim(worker, 0)


def record_more(broadcaster: EventBroadcaster, n: int) -> bool:
    recorder = broadcaster.new_recorder("test")
    for number in range(n):
        recorder.event(WEB_0, "Normal", "Goes", f"on {number}")
    return broadcaster.flush(60)


def events_in(admin: Any, bus: Bus) -> int:
    """In the stream, counted one by one."""
    bodies = [fields[b"b"] for _, fields in admin.xrange(bus.keys[0].incoming) if b"to" in fields]
    return sum(len(unpack_batch(body).events) for body in bodies)


def told_by_doctor(bus: Bus, bus_made: As, settings: Settings) -> str:
    findings = examine(bus_made(Role.METRICS), settings, role=Role.METRICS)
    return " ".join(each.message for each in findings if each.severity is not Severity.OK)


def publish(bus: Bus, client: Any, *, n: object = 1, losses: Any = (), producer: str = "mine", **changed: Any) -> Any:
    first, silent_ms = changed.get("first", 1), changed.get("silent_ms", 0)
    body = pack_batch(producer, 1, [b"event"])
    request = PublishRequest(0, producer, first, n, body, "", silent_ms, losses)  # type: ignore[arg-type]
    command = [*publish_command(bus.keys[0], [request], changed.get("bound", MIB))]
    if "life_ms" in changed:
        command[10] = changed["life_ms"]
    return client.execute_command(*command)


def test_an_id_that_stands_in_an_events_uid_says_nothing_of_where_its_producers_state_lies(
    bus: Bus, attacker: Any, admin: Any, recording: EventBroadcaster
) -> None:
    (body,) = [fields[b"b"] for _, fields in admin.xrange(bus.keys[0].incoming)]
    attacker.hset(bus.keys[0].producer + unpack_batch(body).producer.encode(), mapping={"last": 10**15})
    assert record_more(recording, 3)
    assert events_in(admin, bus) == 4
    states = admin.keys(bus.keys[0].producer + b"*")
    assert len([name for name in states if name.rpartition(b":")[2] not in body]) == 1


def test_a_forged_entry_sets_nobodys_state(bus: Bus, attacker: Any, admin: Any, recording: EventBroadcaster) -> None:
    (body,) = [fields[b"b"] for _, fields in admin.xrange(bus.keys[0].incoming)]
    forged = pack_batch(unpack_batch(body).producer, 10**12, [b"event"])
    attacker.xadd(bus.keys[0].incoming, {"n": 1, "to": 10**15, "at": 10**15, "b": forged, "l": "dropped 99999"})
    trim(bus)
    assert record_more(recording, 3)
    numbers = admin.hgetall(bus.keys[0].incoming_meta)
    assert numbers[b"events"] == b"4"
    assert int(numbers[b"bytes"]) < MIB
    assert b"losses:dropped" not in numbers


@pytest.mark.parametrize(
    ("field", "values"),
    [
        ("bytes", [str(10**15), "nan", "-1"]),
        ("events", [str(10**15), "inf", "9" * 400]),
        ("trimmed", [str(-(10**15)), "x"]),
        ("last", ["x", "99999999999999-0", "0-0"]),
        ("length", ["x", "0"]),
        ("full", ["x"]),
        ("losses:dropped", ["nan"]),
        ("generation", ["f" * 16, ""]),
    ],
)
def test_what_is_spoiled_of_the_streams_numbers_is_mended_by_the_next_worker(
    bus: Bus, bus_made: As, attacker: Any, admin: Any, recording: EventBroadcaster, settings: Settings,
    field: str, values: list[str],
) -> None:  # fmt: skip
    for number, value in enumerate(values):
        assert record_more(recording, 2)
        trim(bus)
        before = admin.hgetall(bus.keys[0].incoming_meta)
        attacker.hset(bus.keys[0].incoming_meta, field, value)
        trim(bus)
        after = admin.hgetall(bus.keys[0].incoming_meta)
        assert before == {name: text for name, text in after.items() if name in before}
        if field.encode() not in before:
            assert after[field.encode()] == b"0"
        assert record_more(recording, 3)
        assert events_in(admin, bus) == int(admin.hget(bus.keys[0].incoming_meta, "events")) == 1 + 5 * (number + 1)
        assert not recording.losses.counts
    if field != "length":
        assert field in told_by_doctor(bus, bus_made, settings)


def test_names_that_a_producer_has_put_among_the_numbers_go(bus: Bus, attacker: Any, admin: Any) -> None:
    attacker.hset(bus.keys[0].incoming_meta, mapping={f"losses:{n}": n for n in range(3_000)})
    trim(bus)
    assert admin.hlen(bus.keys[0].incoming_meta) < 20


def forged(what: str, admin: Any, bus: Bus) -> dict[str, Any]:
    """An entry: any, one that says of itself what cannot be, one like those of `publish`."""
    numbers = admin.hgetall(bus.keys[0].incoming_meta)
    body = pack_batch("forged", 1, [pack_event(make_event())])
    if what == "any":
        return {"a": "b"}
    if what == "lie":
        return {"n": 10**15, "to": 10**15, "at": "x", "b": body}
    return {"n": 1, "to": int(numbers[b"events"]) + 1, "at": int(numbers[b"bytes"]), "b": body}


@pytest.mark.parametrize("what", one(["lie", "any", "like ours"]))
@pytest.mark.parametrize("entry_id", [f"{2**64 - 1}-{2**64 - 1}", f"{2**42}-7"])
def test_a_stream_whose_ids_are_used_up_goes_back_to_the_clocks_time_when_it_has_been_worked(
    bus: Bus, bus_made: As, attacker: Any, admin: Any, recording: EventBroadcaster, settings: Settings,
    entry_id: str, what: str,
) -> None:  # fmt: skip
    attacker.xadd(bus.keys[0].incoming, forged(what, admin, bus), id=entry_id)
    trim(bus)  # a group has not seen it yet
    with EventBroadcaster(bus_made(Role.WORKER), settings=settings) as worker:
        worker.start_recording_to_sink()
        eventually(lambda: b"ids" in (admin.hget(bus.keys[0].meta, "mended_last") or b""))
        assert record_more(recording, 3)
        eventually(lambda: admin.xpending(bus.keys[0].incoming, "sink")["pending"] == 0)
        eventually(lambda: admin.zcard(bus.keys[0].index_expiry) >= 4)
    last = admin.xinfo_stream(bus.keys[0].incoming)["last-generated-id"]
    assert abs(int(last.split(b"-")[0]) - admin.time()[0] * 1000) < 3_600_000
    assert not recording.losses.counts
    assert "ids" in told_by_doctor(bus, bus_made, settings)


NO_NUMBERS: list[dict[str, Any]] = [
    *({"n": n} for n in (10**15, "nan", "inf", "-inf", 0, -1, 65, "1.5", "0x10", "1e1", " 1", "")),
    *({"first": first} for first in (0, -1, 2**53, "nan", "1.5")),
    *({"bound": bound} for bound in ("nan", "inf", -1)),
    {"silent_ms": "nan"},
    *({"life_ms": life} for life in (0, "nan", 10**15)),
    *({"losses": [("dropped", n)]} for n in ("nan", "inf", -1, 2**53, "1.5")),
]


def is_refused(bus: Bus, attacker: Any, changed: dict[str, Any]) -> bool:
    try:
        publish(bus, attacker, **changed)
    except ResponseError as problem:
        return "is not a number" in str(problem)
    return False


def test_a_number_that_is_none_is_refused_before_anything_is_written(bus: Bus, attacker: Any, admin: Any) -> None:
    assert [changed for changed in NO_NUMBERS if not is_refused(bus, attacker, changed)] == []
    assert admin.xlen(bus.keys[0].incoming) == 0
    assert admin.hget(bus.keys[0].incoming_meta, "events") == b"0"


def test_losses_of_a_name_that_nobody_knows_are_counted_as_other(bus: Bus, attacker: Any, admin: Any) -> None:
    publish(bus, attacker, losses=[("dropped", 2), ("my own", 3), ("generation", 4)])
    numbers = admin.hgetall(bus.keys[0].incoming_meta)
    losses = {name: text for name, text in numbers.items() if name.startswith(b"losses:")}
    assert losses == {b"losses:dropped": b"2", b"losses:other": b"7"}


def test_a_batch_longer_than_a_batch_can_be_is_refused(bus: Bus, attacker: Any) -> None:
    request = PublishRequest(0, "mine", 1, 1, b"x" * (128 * 1024 + 1), "", 0, ())
    with pytest.raises(ResponseError, match="body"):
        attacker.execute_command(*publish_command(bus.keys[0], [request], 10**9))
