"""What an API worker serves besides Kubernetes' API: the raw stream, numbers, the dead letter, CloudEvents."""

from __future__ import annotations

import json
import secrets
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

from eventbus import BusRefused, Event, EventBroadcaster, NotFound, ObjectReference, Settings
from eventbus.broker.bus import Bus, open_bus
from eventbus.broker.notifications import ExpectedEvent
from eventbus.client.address import parse_api_url
from eventbus.client.connection import ApiConnection, Reply
from eventbus.client.watch import split_lines
from eventbus.consume.dead_letter import DeadLetter
from eventbus.correlate.store_recorded_events import sink_worker
from eventbus.export.sinks.http_batch import Request
from eventbus.export.sinks.webhook.sink import batch, binary, structured
from eventbus.model.encoding.wire import unpack_batch, unpack_event
from eventbus.util.clock import SystemClock
from tests.builders import make_event
from tests.support.api_in_process import serving
from tests.thin import one
from tests.waiting import eventually

ROOT = "/eventbus/v1"


@pytest.fixture(params=one([3, 1]))
def bus(embedded_url: str, prefix: str, request: pytest.FixtureRequest) -> Bus:
    return open_bus(embedded_url, Settings(prefix=prefix, partitions=request.param))


@pytest.fixture
def api(bus: Bus) -> Iterator[ApiConnection]:
    with serving(bus) as url:
        connection = ApiConnection(parse_api_url(url, Settings()))
        yield connection
        connection.close()


@pytest.fixture(scope="module")
def shared(embedded_url: str) -> Iterator[ApiConnection]:
    """An API worker for tests that record nothing."""
    with serving(open_bus(embedded_url, Settings(prefix=f"t{secrets.token_hex(6)}"))) as url:
        connection = ApiConnection(parse_api_url(url, Settings()))
        yield connection
        connection.close()


def say(bus: Bus, n: int, *, namespace: str = "default", reason: str = "Said") -> None:
    with EventBroadcaster(bus.url, settings=Settings(prefix=bus.prefix)) as broadcaster:
        recorder = broadcaster.new_recorder("tests", host="h")
        for i in range(n):
            recorder.eventf(ObjectReference("Pod", namespace, f"web-{i % 5}"), "Normal", reason, "message %d", i)


def get(api: ApiConnection, path: str) -> Any:
    return json.loads(api.call("GET", f"{ROOT}/{path}"))


def refused(api: ApiConnection, path: str) -> tuple[int, str]:
    reply = api.request("GET", f"{ROOT}/{path}")
    return reply.status, json.loads(reply.body)["message"]


# -- the raw stream ------------------------------------------------------------------------------------------------


def test_the_stream_tells_what_was_recorded_since_and_what_comes(bus: Bus, api: ApiConnection) -> None:
    say(bus, 4)
    lines = map(json.loads, split_lines(api.open_stream(f"{ROOT}/stream?since=1h")))
    told: list[dict[str, Any]] = []

    def read_until(n: int) -> None:
        while sum(line["type"] == "EVENT" for line in told) < n:
            told.append(next(lines))

    read_until(4)
    thread = threading.Thread(target=say, args=(bus, 4))
    thread.start()
    read_until(8)
    thread.join()
    events = [line["object"] for line in told if line["type"] == "EVENT"]
    assert Counter(event["message"] for event in events) == Counter([f"message {i}" for i in range(4)] * 2)
    assert len({event["metadata"]["uid"] for event in events}) == 8
    assert {line["type"] for line in told} == {"EVENT", "BOOKMARK"}


def test_a_stream_goes_on_behind_a_bookmark(bus: Bus, api: ApiConnection) -> None:
    say(bus, 10)
    position = get(api, "stream/position")["position"]
    say(bus, 3)
    lines = map(json.loads, split_lines(api.open_stream(f"{ROOT}/stream?position={position}")))
    found: list[str] = []
    while len(found) < 3:
        line = next(lines)
        found += [line["object"]["message"]] if line["type"] == "EVENT" else []
    assert sorted(found) == ["message 0", "message 1", "message 2"]


def test_a_stream_of_one_namespace_has_no_other(bus: Bus, api: ApiConnection) -> None:
    say(bus, 3, namespace="shop")
    say(bus, 3, namespace="bank")
    lines = map(json.loads, split_lines(api.open_stream(f"{ROOT}/stream?since=1h&namespace=bank")))
    namespaces: list[str] = []
    while len(namespaces) < 3:
        line = next(lines)
        namespaces += [line["object"]["metadata"]["namespace"]] if line["type"] == "EVENT" else []
    assert namespaces == ["bank"] * 3


def test_what_was_trimmed_before_it_could_be_read_is_counted(embedded_url: str, prefix: str) -> None:
    bus = open_bus(embedded_url, Settings(prefix=prefix))
    with serving(bus) as url:
        api = ApiConnection(parse_api_url(url, Settings()))
        say(bus, 2)
        position = get(api, "stream/position")["position"]
        say(bus, 5)
        with bus.client() as client:
            client.xtrim(bus.keys[0].incoming, maxlen=0)
        say(bus, 1)
        lines = map(json.loads, split_lines(api.open_stream(f"{ROOT}/stream?position={position}")))
        told = []
        while {"type": "MISSED", "count": 5} not in told:
            told.append(next(lines))
        api.close()


def test_streams_end_in_good_order_with_their_worker(bus: Bus) -> None:
    ends: list[str] = []
    with serving(bus) as url:
        api = ApiConnection(parse_api_url(url, Settings()))
        pieces = api.open_stream(f"{ROOT}/stream")
        assert b"BOOKMARK" in next(pieces)
        reader = threading.Thread(target=lambda: ends.extend(piece.decode() for piece in pieces))
        reader.start()
    reader.join(60)
    assert not reader.is_alive()
    api.close()


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("stream?since=yesterday", "since: 'yesterday' is no time"),
        ("stream?since=2026-01-01T00:00:00", "is no time"),
        ("stream?position=1-2", "position"),
        ("stream?position=1-2:,a,b", "position"),
        ("stream?since=1h&position=0-0:", "not both"),
        ("dead?limit=0", "query: Expected `int` >= 1 - at `$.limit`"),
        ("histogram?by=colour", "by: 'colour' is none of namespace, kind, type, reason"),
        ("histogram?step=90", "step: must be a whole number of minutes"),
        ("histogram?since=1h&until=2h", "since: must be before until"),
    ],
)
def test_a_question_that_is_none_is_a_400(shared: ApiConnection, query: str, said: str) -> None:
    code, message = refused(shared, query)
    assert code == 400
    assert said in message


# -- numbers -------------------------------------------------------------------------------------------------------


def test_status_suppressed_and_sinks_are_those_of_the_bus(bus: Bus, api: ApiConnection) -> None:
    say(bus, 6)
    found = get(api, "status")
    assert found["counters"]["published"] == 6
    assert len(found["partitions"]) == bus.partitions
    assert get(api, "suppressed") == {"items": []}
    assert get(api, "sinks") == {"items": []}
    assert get(api, "bus") == {"id": bus.id, "partitions": bus.partitions, "eventTtlS": 3600, "codecs": [0, 1, 2]}


def test_the_histogram_counts_by_time_and_facet(bus: Bus, api: ApiConnection) -> None:
    say(bus, 6, reason="Pulled")
    say(bus, 4, namespace="shop", reason="Killed")
    runner = sink_worker(bus=bus, clock=SystemClock(), block_ms=100)
    runner.start()
    try:
        eventually(lambda: sum(row["count"] for row in get(api, "histogram?step=86400")["rows"]) == 10)
    finally:
        runner.stop(30)
    found = get(api, "histogram?since=2h&by=namespace,reason&step=3600")
    counts: Counter[tuple[str, str]] = Counter()
    for row in found["rows"]:
        counts[row["namespace"], row["reason"]] += row["count"]
    assert counts == {("default", "Pulled"): 6, ("shop", "Killed"): 4}
    assert (found["stepS"], found["by"]) == (3600, ["namespace", "reason"])
    only = get(api, "histogram?namespace=shop&kind=Pod&step=3600")
    assert sum(row["count"] for row in only["rows"]) == 4
    assert get(api, "histogram?reason=Never")["rows"] == []


def test_every_path_of_ours_has_a_schema_and_every_answer_fits_it(bus: Bus, api: ApiConnection) -> None:
    document = json.loads(api.call("GET", "/openapi/v3/eventbus/v1"))
    app_paths = {f"{ROOT}/{path}" for path in OWN_PATHS}
    assert set(document["paths"]) == app_paths
    known = document["components"]["schemas"]
    for name in references(document):
        assert name in known
    paths = ("bus", "status", "suppressed", "sinks", "histogram", "dead", "events", "session", "stream/position")
    for path in (*paths, "expected", "notifications", "why?kind=Pod&name=web-0"):
        operations = document["paths"][f"{ROOT}/{path.partition('?')[0]}"]
        answers = operations["get"]["responses"]["200"]["content"]["application/json"]
        schema = known[answers["schema"]["$ref"].rpartition("/")[2]]
        assert set(get(api, path)) == set(schema["properties"])


def test_expected_events_of_a_namespace_are_read_with_its_rights(bus: Bus, tmp_path: Path) -> None:
    tokens = tmp_path / "tokens.csv"
    tokens.write_text("sam-token,sam,1\n")
    with bus.client() as client:
        for number, namespace in enumerate(("shop", "other")):
            about = ObjectReference(kind="Backup", namespace=namespace, name="db")
            event = ExpectedEvent(name="nightly", object=about, since_ms=1, base_ms=1)
            client.hset(bus.keys[0].notify, f"expected:{number}", msgspec.json.encode(event))
    with serving(bus, tokens=tokens, grants=["view=user:sam@shop"]) as url:
        connection = ApiConnection(parse_api_url(url, Settings(token="sam-token")))
        (found,) = get(connection, "expected?namespace=shop")["items"]
        assert (found["object"]["namespace"], found["state"]) == ("shop", "Late")
        for path in ("expected", "expected?namespace=other"):
            assert refused(connection, path)[0] == 403
        connection.close()


OWN_PATHS = (
    "events",
    "session",
    "why",
    "verdicts",
    "alertmanager",
    *("bus", "record", "producers", "cloudevents", "stream", "stream/position", "status", "suppressed", "sinks"),
    *("expected", "histogram", "notifications", "events", "why", "session", "dead", "dead/{partition}/{entry}"),
    "dead/{partition}/{entry}/replay",
    *(
        f"{before}ping/{{namespace}}/{{kind}}/{{name}}{end}"
        for before in ("", "token/{token}/")
        for end in ("", "/start", "/fail")
    ),
)


def references(found: Any) -> Iterator[str]:
    """The names of all schemas that are referred to."""
    if isinstance(found, dict):
        if isinstance(found.get("$ref"), str):
            yield found["$ref"].rpartition("/")[2]
        found = list(found.values())
    if isinstance(found, list):
        for one in found:
            yield from references(one)


# -- the dead letter -----------------------------------------------------------------------------------------------


@pytest.fixture
def buried(bus: Bus) -> str:
    """The id of one entry that no worker can read."""
    with bus.client() as client:
        client.xadd(bus.keys[0].incoming, {"n": 1, "to": 1, "at": 0, "b": b"garbage"})
        runner = sink_worker(bus=bus, clock=SystemClock(), block_ms=100)
        runner.start()
        try:
            eventually(lambda: list(DeadLetter(bus, client).list()))
        finally:
            runner.stop(30)
        [entry] = DeadLetter(bus, client).list()
        return entry.id


def test_dead_entries_are_listed_shown_and_let_go(bus: Bus, api: ApiConnection, buried: str) -> None:
    [entry] = get(api, "dead")["items"]
    assert (entry["id"], entry["group"], entry["size"], "bytes" in entry) == (buried, "sink", len(b"garbage"), False)
    assert get(api, f"dead/{buried}") == entry | {"bytes": b"garbage".hex()}
    assert get(api, "dead?cause=killed-worker") == {"items": [], "more": False}
    assert json.loads(api.call("DELETE", f"{ROOT}/dead/{buried}")) == {"id": buried, "done": "discarded"}
    with pytest.raises(NotFound, match=f'dead entries "{buried}" not found'):
        api.call("GET", f"{ROOT}/dead/{buried}")


def test_a_dead_entry_is_given_back_once(bus: Bus, api: ApiConnection, buried: str) -> None:
    assert json.loads(api.call("POST", f"{ROOT}/dead/{buried}/replay"))["done"] == "replayed"
    with pytest.raises(NotFound):
        api.call("POST", f"{ROOT}/dead/{buried}/replay")


def test_who_may_only_record_sees_and_moves_nothing(embedded_url: str, prefix: str, tmp_path: Path) -> None:
    bus = open_bus(embedded_url, Settings(prefix=prefix))
    tokens = tmp_path / "tokens.csv"
    tokens.write_text("r,recorder,1\nv,viewer,2\n")
    with serving(bus, tokens=tokens, grants=["record=user:recorder", "view=user:viewer"]) as url:
        recorder = ApiConnection(parse_api_url(url, Settings(token="r")))
        viewer = ApiConnection(parse_api_url(url, Settings(token="v")))
        for path in ("stream", "stream/position", "status", "suppressed", "sinks", "dead", "dead/0/1-1", "histogram"):
            with pytest.raises(BusRefused, match="forbidden"):
                recorder.call("GET", f"{ROOT}/{path}")
        for method, path in (("DELETE", "dead/0/1-1"), ("POST", "dead/0/1-1/replay")):
            with pytest.raises(BusRefused, match="forbidden"):
                viewer.call(method, f"{ROOT}/{path}")
        assert get(viewer, "dead") == {"items": [], "more": False}
        assert get(recorder, "bus")["partitions"] == 1
        recorder.close()
        viewer.close()


def test_who_may_write_nowhere_is_refused_before_the_body_is_read(
    embedded_url: str, prefix: str, tmp_path: Path
) -> None:
    bus = open_bus(embedded_url, Settings(prefix=prefix))
    tokens = tmp_path / "tokens.csv"
    tokens.write_text("v,viewer,1\n")
    of_ours = (f"{ROOT}/{path}" for path in ("record", "cloudevents", "alertmanager"))
    with serving(bus, tokens=tokens, grants=["view=user:viewer"]) as url:
        viewer = ApiConnection(parse_api_url(url, Settings(token="v")))
        for path in (*of_ours, "/alertmanager/api/v2/silences", "/v1/logs"):
            reply = viewer.request("POST", path, body=b"no JSON", headers={"Content-Type": "application/json"})
            assert (reply.status, b"cannot create resource" in reply.body) == (403, True), path
        viewer.close()


# -- CloudEvents ---------------------------------------------------------------------------------------------------


def stored(bus: Bus) -> list[Event]:
    with bus.client() as client:
        batches = [unpack_batch(fields[b"b"]) for keys in bus.keys for _, fields in client.xrange(keys.incoming)]
    return [unpack_event(packed) for one in batches for packed in one.events]


def send(api: ApiConnection, body: bytes, headers: Mapping[str, str]) -> Reply:
    return api.request("POST", f"{ROOT}/cloudevents", body=body, headers=headers)


def post(api: ApiConnection, message: Request) -> Any:
    headers = {name: value for name, value in message.headers.items() if name != "idempotency-key"}
    return json.loads(send(api, message.body, headers).body)


def test_our_own_cloud_events_come_back_as_they_were(bus: Bus, api: ApiConnection) -> None:
    event = make_event()
    for made in (
        structured("", "/a", event),
        binary("", "/b", event),
        batch("", [structured("", "/c", event).body, structured("", "/d", event).body]),
    ):
        assert post(api, made)["refused"] == []
    found = stored(bus)
    assert len(found) == 4
    assert {(one.involved_object, one.reason, one.message) for one in found} == {
        (event.involved_object, event.reason, event.message)
    }


def test_a_cloud_event_that_is_sent_again_is_recorded_once(bus: Bus, api: ApiConnection) -> None:
    made = structured("", "/a", make_event())
    assert post(api, made) == post(api, made) == {"accepted": 1, "refused": []}
    assert len(stored(bus)) == 1


def test_others_cloud_events_are_told_by_subject_type_and_data(bus: Bus, api: ApiConnection) -> None:
    said = {
        "specversion": "1.0",
        "id": "1",
        "source": "/mycontext",
        "type": "com.example.order.created.v2",
        "subject": "Order/4711",
        "time": "2026-01-02T03:04:05Z",
        "data": {"total": 3},
    }
    reply = send(api, json.dumps(said).encode(), {"Content-Type": "application/cloudevents+json"})
    assert json.loads(reply.body)["accepted"] == 1
    [event] = stored(bus)
    assert (event.involved_object.kind, event.involved_object.name) == ("Order", "4711")
    assert (event.reason, event.message, event.source.component) == ("OrderCreated", '{"total":3}', "/mycontext")
    assert event.first_timestamp == datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


@pytest.mark.parametrize(
    ("body", "headers", "code"),
    [
        (b"{}", {"Content-Type": "application/cloudevents+json"}, 422),
        (b"[", {"Content-Type": "application/cloudevents+json"}, 422),
        (b"{}", {"Content-Type": "application/cloudevents-batch+json"}, 422),
        (b"{}", {"Content-Type": "application/json"}, 415),
        (b"\xff", {"ce-id": "1", "ce-source": "/", "ce-type": "t", "ce-specversion": "9"}, 422),
    ],
)
def test_what_is_no_cloud_event_is_refused(
    shared: ApiConnection, body: bytes, headers: dict[str, str], code: int
) -> None:
    assert send(shared, body, headers).status == code


def test_a_batch_is_taken_but_for_the_members_that_are_none(bus: Bus, api: ApiConnection) -> None:
    good = structured("", "/a", make_event()).body
    body = b"[%s,1,{},%s]" % (good, good.replace(b"/a", b"/b"))
    answers = [send(api, body, {"Content-Type": "application/cloudevents-batch+json"}) for _ in range(2)]
    told = json.loads(answers[0].body)
    assert (told["accepted"], [one["index"] for one in told["refused"]]) == (2, [1, 2])
    assert all(one["reason"].startswith("event: is no CloudEvent: ") for one in told["refused"])
    assert answers[1].body == answers[0].body
    assert len(stored(bus)) == 2


def test_a_path_that_is_served_in_another_way_says_so(shared: ApiConnection) -> None:
    for method, path in (("GET", "record"), ("POST", "status"), ("PUT", "dead/0/1-0")):
        answer = shared.request(method, f"{ROOT}/{path}")
        assert (answer.status, json.loads(answer.body)["reason"]) == (405, "MethodNotAllowed"), path
