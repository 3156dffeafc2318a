"""`POST /eventbus/v1/record`: events of any language, and the batches of recorders that may be hostile."""

from __future__ import annotations

import json
import os
import secrets
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from eventbus import ObjectReference, Settings
from eventbus.api.eventbus_v1 import publisher
from eventbus.api.limits import EventRate
from eventbus.broker.bus import Bus, open_bus
from eventbus.broker.frames import FRAMES_TYPE, pack_requests, unpack_answers
from eventbus.broker.transport import PublishReply, PublishRequest, PublishStatus
from eventbus.client.address import parse_api_url
from eventbus.client.connection import ApiConnection, Reply
from eventbus.errors import BusRefused, EventBusError
from eventbus.model.encoding.wire import MAX_BATCH_EVENTS, pack_batch
from eventbus.record.packing import Pending, pack
from eventbus.settings import MIB, Options
from tests.support.api_in_process import serving
from tests.support.harness import incoming_of
from tests.thin import thin

RECORD = "/eventbus/v1/record"
JSON = {"Content-Type": "application/json"}
LINES = {"Content-Type": "application/x-ndjson"}
FRAMES = {"Content-Type": FRAMES_TYPE}
BACKUP = {"involvedObject": {"kind": "Backup", "name": "nightly"}, "reason": "Completed", "message": "42 GiB"}


@pytest.fixture(params=thin([3, 1], lambda number: number == 3))
def bus(embedded_url: str, prefix: str, request: pytest.FixtureRequest) -> Bus:
    return open_bus(embedded_url, Settings(prefix=prefix, partitions=request.param))


@pytest.fixture
def one(embedded_url: str, prefix: str) -> Bus:
    """A bus of one partition."""
    return open_bus(embedded_url, Settings(prefix=prefix))


@pytest.fixture
def url(bus: Bus) -> Iterator[str]:
    with serving(bus) as found:
        yield found


@pytest.fixture(scope="module")
def shared_url(embedded_url: str) -> Iterator[str]:
    """An API worker for tests that record nothing."""
    with serving(open_bus(embedded_url, Settings(prefix=f"t{secrets.token_hex(6)}"))) as found:
        yield found


def post(
    url: str, body: Any, headers: Mapping[str, str] | None = None, *, path: str = RECORD, token: str = ""
) -> Reply:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    connection = ApiConnection(parse_api_url(url, Settings(token=token)))
    try:
        return connection.request("POST", path, body=data, headers=JSON if headers is None else headers)
    finally:
        connection.close()


def said(reply: Reply) -> Any:
    return json.loads(reply.body)


def backups(n: int) -> list[dict[str, Any]]:
    return [BACKUP | {"involvedObject": {"kind": "Backup", "name": f"b{i % 9}"}, "message": f"{i}"} for i in range(n)]


# -- JSON ----------------------------------------------------------------------------------------------------------


def test_one_event_is_completed_and_recorded(bus: Bus, url: str) -> None:
    reply = post(url, BACKUP)
    assert (reply.status, said(reply)) == (200, {"accepted": 1, "refused": []})
    [event] = incoming_of(bus)
    assert event.metadata.namespace == "default"
    assert event.metadata.name.startswith("nightly.")
    assert (event.type, event.count, event.source.component) == ("Normal", 1, "system:local")
    assert event.first_timestamp == event.last_timestamp
    assert event.first_timestamp is not None


def test_the_same_object_however_it_is_written_is_one(bus: Bus, url: str) -> None:
    written = (
        {"kind": "Order", "name": "7"},
        {"kind": "Order", "name": "7", "namespace": "default"},
        "default/Order/7",
    )
    events: list[dict[str, Any]] = [{"involvedObject": about, "reason": "Paid"} for about in (*written, "Order/7")]
    events.append({"apiVersion": "events.k8s.io/v1", "regarding": "Order/7", "reason": "Paid"})
    answer = post(url, events)
    assert said(answer) == {"accepted": 5, "refused": []}
    assert {event.involved_object for event in incoming_of(bus)} == {ObjectReference("Order", "default", "7")}


def test_the_namespace_of_an_event_is_that_of_an_object_without_one(bus: Bus, url: str) -> None:
    shop = {"metadata": {"namespace": "shop"}, "reason": "Paid", "message": "m"}
    post(url, [shop | {"involvedObject": about} for about in ("Order/7", {"kind": "Order", "name": "7"})])
    assert {event.involved_object for event in incoming_of(bus)} == {ObjectReference("Order", "shop", "7")}


def test_an_object_in_no_namespace_stays_in_none_and_its_event_lies_in_default(bus: Bus, url: str) -> None:
    post(url, [{"involvedObject": about, "reason": "R"} for about in ("node/n1", {"kind": "Node", "name": "n1"})])
    found = incoming_of(bus)
    assert {event.involved_object for event in found} == {ObjectReference("Node", "", "n1")}
    assert {event.metadata.namespace for event in found} == {"default"}


def test_a_list_may_hold_more_than_one_batch_and_keeps_its_order_for_each_object(bus: Bus, url: str) -> None:
    assert said(post(url, backups(300))) == {"accepted": 300, "refused": []}
    events = incoming_of(bus)
    assert len({event.metadata.uid for event in events}) == 300
    for name in {event.involved_object.name for event in events}:
        numbers = [int(event.message) for event in events if event.involved_object.name == name]
        assert numbers == sorted(numbers)


def test_what_is_wrong_is_refused_with_its_place_and_the_rest_is_taken(bus: Bus, url: str) -> None:
    wrong = [BACKUP, BACKUP | {"type": "Bad"}, {"reason": "NoObject"}, 7, BACKUP | {"count": "many"}, BACKUP]
    reply = post(url, wrong)
    assert reply.status == 200
    assert said(reply)["accepted"] == 2
    assert [each["index"] for each in said(reply)["refused"]] == [1, 2, 3, 4]
    assert said(reply)["refused"][0]["reason"].startswith("type: must be Normal or Warning")
    assert len(incoming_of(bus)) == 2


def test_a_user_who_writes_too_fast_is_refused_until_tokens_come_back(one: Bus) -> None:
    kubernetes = "/api/v1/namespaces/default/events"
    event = BACKUP | {"metadata": {"generateName": "e."}}
    bodies = [(BACKUP, JSON, RECORD), (b"", FRAMES, RECORD), (event, JSON, kubernetes)]
    for body, headers, path in bodies:
        with serving(one, event_rate=EventRate(per_s=0.001, burst=5)) as url:
            assert said(post(url, [BACKUP] * 60))["accepted"] == 60
            frames = pack_requests([frame(1, [], n=1)])
            refused = post(url, body or frames, headers, path=path)
            assert (refused.status, "events a second" in said(refused)["message"]) == (429, True)
            assert int(refused.headers["retry-after"]) > 50_000


def test_where_all_is_wrong_it_is_a_422(bus: Bus, url: str) -> None:
    reply = post(url, [{"reason": "NoObject"}])
    assert (reply.status, said(reply)["accepted"], len(said(reply)["refused"])) == (422, 0, 1)
    assert incoming_of(bus) == []


def test_a_line_that_is_no_json_is_refused_alone(bus: Bus, url: str) -> None:
    lines = [json.dumps(BACKUP).encode(), b"{broken", b"", json.dumps(BACKUP).encode(), b"[" * 100_000]
    reply = post(url, b"\n".join(lines), LINES)
    assert said(reply)["accepted"] == 2
    assert [each["index"] for each in said(reply)["refused"]] == [1, 3]


def test_an_event_of_events_k8s_io_is_read_in_its_own_shape(bus: Bus, url: str) -> None:
    event = {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "eventTime": "2026-01-02T03:04:05.000006Z",
        "reportingController": "example.com/backup",
        "reportingInstance": "b-1",
        "action": "Backup",
        "reason": "Completed",
        "note": "42 GiB",
        "type": "Normal",
        "regarding": {"kind": "Backup", "name": "nightly", "namespace": "default"},
    }
    assert said(post(url, event))["accepted"] == 1
    [found] = incoming_of(bus)
    assert (found.message, found.reporting_component) == ("42 GiB", "example.com/backup")


@pytest.mark.parametrize(
    ("body", "headers", "code", "text"),
    [
        (b"{", JSON, 422, "is not JSON"),
        (b"\xff", JSON, 422, "is not UTF-8"),
        (b"[" * 100_000, JSON, 422, ""),
        (b"a=b", {"Content-Type": "application/x-www-form-urlencoded"}, 415, "application/x-ndjson"),
        (b"[" + b"{}," * 20_000 + b"{}]", JSON, 422, "at most 20000"),
        (b" " * (3 * MIB + 1), JSON, 413, ""),
        (b"\x92\x01", FRAMES, 422, "no batches"),
        (b"\x92\x63\x90", FRAMES, 422, "no batches"),
    ],
)
def test_a_body_that_is_none_is_refused_with_a_status(
    shared_url: str, body: bytes, headers: Mapping[str, str], code: int, text: str
) -> None:
    reply = post(shared_url, body, headers)
    assert reply.status == code
    assert said(reply)["kind"] == "Status"
    assert text in said(reply)["message"]


def test_without_a_content_type_it_is_json_unless_a_page_sends_it(one: Bus) -> None:
    with serving(one) as url:
        assert said(post(url, BACKUP, {}))["accepted"] == 1
        reply = post(url, BACKUP, {"Sec-Fetch-Site": "same-origin"})
        assert reply.status == 415
        assert post(url, BACKUP, JSON | {"Origin": "https://evil.example"}).status == 403
    assert len(incoming_of(one)) == 1


def test_many_requests_at_once_share_round_trips_and_lose_nothing(bus: Bus, url: str) -> None:
    def send(start: int) -> None:
        for i in range(start, start + 20):
            assert said(post(url, BACKUP | {"message": f"{i}"}))["accepted"] == 1

    threads = [threading.Thread(target=send, args=(n * 20,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    events = incoming_of(bus)
    assert Counter(event.message for event in events) == Counter(str(i) for i in range(160))
    assert len({event.metadata.uid for event in events}) == 160


def test_a_request_may_take_any_number_of_round_trips(one: Bus, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publisher, "IN_FLIGHT", 1)
    n = (2 * publisher.ROUNDS + 1) * MAX_BATCH_EVENTS
    with serving(one) as url:
        assert said(post(url, backups(n))) == {"accepted": n, "refused": []}
    assert len(incoming_of(one)) == n


def test_a_full_stream_is_a_429_with_a_pause_and_nothing_is_taken(embedded_url: str, prefix: str) -> None:
    bus = open_bus(embedded_url, Settings(prefix=prefix), options=Options(incoming_bytes=MIB))
    message = os.urandom(6_000).hex()
    with serving(bus) as url:
        while (reply := post(url, [BACKUP | {"message": message}] * 20)).status == 200:
            pass
        assert reply.status == 429
        assert int(reply.headers["retry-after"]) >= 1
        assert "group 'sink' holds it" in said(reply)["message"]
        held = len(incoming_of(bus))
        assert post(url, BACKUP | {"message": message * 1}).status in (200, 429)
    assert len(incoming_of(bus)) - held in (0, 1)


# -- repeats -------------------------------------------------------------------------------------------------------


def test_a_repeat_under_a_key_changes_nothing(bus: Bus, url: str) -> None:
    key = JSON | {"Idempotency-Key": "backup-2026-01-02"}
    first, second = post(url, backups(200), key), post(url, backups(200), key)
    assert said(first) == said(second) == {"accepted": 200, "refused": []}
    assert "idempotency-replayed" not in first.headers
    assert second.headers["idempotency-replayed"] == "true"
    assert len(incoming_of(bus)) == 200


def test_repeats_at_the_same_time_change_nothing(bus: Bus, url: str) -> None:
    key = JSON | {"Idempotency-Key": "k"}
    threads = [threading.Thread(target=post, args=(url, backups(200), key)) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert Counter(event.message for event in incoming_of(bus)) == Counter(str(i) for i in range(200))


def test_another_body_under_the_same_key_is_refused(bus: Bus, url: str) -> None:
    key = JSON | {"Idempotency-Key": "k"}
    post(url, backups(3), key)
    reply = post(url, backups(4), key)
    assert (reply.status, said(reply)["reason"]) == (422, "Invalid")
    assert len(incoming_of(bus)) == 3


def test_the_same_key_of_two_users_is_two_keys(one: Bus, tmp_path: Path) -> None:
    tokens = tmp_path / "tokens.csv"
    tokens.write_text("a,ann,1\nb,bob,2\n")
    grants = ["record=user:ann", "record=user:bob"]
    with serving(one, tokens=tokens, grants=grants) as url:
        for token in "ab":
            assert said(post(url, backups(2), JSON | {"Idempotency-Key": "k"}, token=token))["accepted"] == 2
    assert len(incoming_of(one)) == 4


def test_a_repeat_finishes_what_was_half_done(one: Bus) -> None:
    key = JSON | {"Idempotency-Key": "k"}
    events = [BACKUP | {"message": f"{i} {os.urandom(4_500).hex()}"} for i in range(160)]
    with serving(open_full(one)) as url:
        reply = post(url, events, key)
        assert 0 < said(reply)["accepted"] < 160
        assert "is full" in said(reply)["refused"][0]["reason"]
    with serving(one) as url:
        assert said(post(url, events, key)) == {"accepted": 160, "refused": []}
    assert Counter(int(event.message.split()[0]) for event in incoming_of(one)) == Counter(range(160))


def open_full(bus: Bus) -> Bus:
    """The same bus, as one sees it who lets the stream hold 1 MiB."""
    return Bus(
        bus.url,
        cluster=False,
        prefix=bus.prefix,
        partitions=bus.partitions,
        options=Options(incoming_bytes=MIB),
        options_version=1,
    )


# -- batches of recorders ------------------------------------------------------------------------------------------


def packed(message: str = "m", *, namespace: str = "default", kind: str = "Normal", at: int = 1) -> bytes:
    pod = ObjectReference("Pod", namespace, "web-0", "uid", "v1")
    return pack(Pending(("tests", "h"), pod, kind, "Said", message, at))


def frame(first: int, events: list[bytes], *, producer: str = "p", partition: int = 0, **said: Any) -> PublishRequest:
    body = pack_batch(said.pop("inner", producer), said.pop("inner_first", first), events)
    n = said.pop("n", len(events))
    return PublishRequest(partition, producer, first, n, body, "", 0, said.pop("losses", ()), **said)


def send(url: str, *frames: PublishRequest, token: str = "") -> list[PublishReply | EventBusError]:
    reply = post(url, pack_requests(frames), FRAMES, token=token)
    assert reply.status == 200, reply
    return unpack_answers(reply.body, len(frames))


def statuses(answers: list[PublishReply | EventBusError]) -> list[str]:
    return [type(one).__name__ if isinstance(one, EventBusError) else str(one.status) for one in answers]


def test_every_batch_has_its_own_answer(one: Bus) -> None:
    with serving(one) as url:
        a, b, c = frame(1, [packed("a")] * 3), frame(4, [packed("b")]), frame(9, [packed("c")])
        assert statuses(send(url, a, b)) == ["OK", "OK"]
        assert statuses(send(url, b, c, a)) == ["DUP", "GAP", "DUP"]
    assert len(incoming_of(one)) == 4


def test_a_batch_that_is_not_what_its_frame_says_is_forbidden_and_nothing_of_it_lies_in_the_stream(one: Bus) -> None:
    good = frame(1, [packed()])
    wrong = {
        "n": frame(1, [packed()], n=2),
        "first": frame(1, [packed()], inner_first=5),
        "partition": frame(1, [packed()], partition=7),
        "garbage": msgspec.structs.replace(good, body=b"\xc1garbage"),
        "empty": msgspec.structs.replace(good, body=b""),
        "no-events": msgspec.structs.replace(good, body=pack_batch("p", 1, [])),
    }
    with serving(one) as url:
        for what, each in wrong.items():
            [answer, other] = send(url, each, frame(1, [packed()], producer=f"beside-{what}"))
            assert isinstance(answer, BusRefused), what
            assert isinstance(other, PublishReply)
            assert other.status is PublishStatus.OK
    assert len(incoming_of(one)) == len(wrong)


def test_an_event_that_breaks_a_rule_is_refused_by_its_place(one: Bus) -> None:
    strong, nul = packed().replace(b"Normal", b"Strong"), packed().replace(b"Said", b"\0aid")
    wrong = (b"\xc0", b"x" * 20, strong, nul, pack_batch("p", 1, [packed()]))
    with serving(one) as url:
        for bad in wrong:
            [answer, behind] = send(url, frame(1, [packed(), bad, packed()]), frame(4, [packed()]))
            assert isinstance(answer, PublishReply)
            assert isinstance(behind, PublishReply)
            assert (answer.status, [place for place, _ in answer.refused]) == (PublishStatus.REFUSED, [1]), bad
            assert (behind.status, behind.last) == (PublishStatus.GAP, 0)
    assert incoming_of(one) == []


def test_nobody_can_use_up_the_numbers_of_another_user(one: Bus, tmp_path: Path) -> None:
    tokens = tmp_path / "tokens.csv"
    tokens.write_text("a,ann,1\nb,bob,2\n")
    with serving(one, tokens=tokens, grants=["record=user:ann", "record=user:bob"]) as url:
        assert statuses(send(url, frame(1, [packed("bob's")] * 64), token="b")) == ["OK"]
        assert statuses(send(url, frame(1, [packed("ann's")]), token="a")) == ["OK"]
        asked = {"producers": [[0, "p"], [0, "unknown"]]}
        reply = post(url, asked, path="/eventbus/v1/producers", token="a")
        assert said(reply) == {"last": [1, 0]}
    assert Counter(event.message for event in incoming_of(one)) == {"bob's": 64, "ann's": 1}


def test_what_was_taken_before_a_right_was_lost_is_a_repeat_and_not_refused(one: Bus, tmp_path: Path) -> None:
    tokens = tmp_path / "tokens.csv"
    tokens.write_text("a,ann,1\n")
    with serving(one, tokens=tokens, grants=["record=user:ann@default"]) as url:
        assert statuses(send(url, frame(1, [packed()]), token="a")) == ["OK"]
    with serving(one, tokens=tokens, grants=["record=user:ann@shop"]) as url:
        assert statuses(send(url, frame(1, [packed()]), token="a")) == ["DUP"]
        [answer] = send(url, frame(2, [packed()]), token="a")
        why = "'ann' may not record events in namespace 'default': give this user the role record there"
        assert answer == PublishReply(PublishStatus.REFUSED, refused=((0, why),))


def test_losses_that_are_told_are_counted_and_no_cause_can_be_invented(one: Bus) -> None:
    with serving(one) as url:
        send(url, frame(1, [packed()], losses=(("dropped", 3), ("made-up", 2))))
    with one.client() as client:
        found = client.hgetall(one.keys[0].incoming_meta)
    assert (found[b"losses:dropped"], found[b"losses:other"]) == (b"3", b"2")
    assert b"losses:made-up" not in found


def test_a_body_of_random_bytes_is_a_status_or_an_answer(one: Bus) -> None:
    good = pack_requests([frame(1, [packed()] * MAX_BATCH_EVENTS)])
    with serving(one) as url:
        for cut in range(0, len(good), 211):
            assert post(url, good[:cut], FRAMES).status == 422
            flipped = good[:cut] + bytes([good[cut] ^ 0x55]) + good[cut + 1 :]
            assert post(url, flipped, FRAMES).status in (200, 422)
