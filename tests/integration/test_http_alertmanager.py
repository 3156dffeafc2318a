"""`POST /eventbus/v1/alertmanager`: alerts of a webhook, version 4, and of a real Alertmanager become events."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest
from msgspec.structs import replace

from eventbus import Event, Settings
from eventbus.api.eventbus_v1.alertmanager import MESSAGE_BYTES
from eventbus.broker.bus import Bus, open_bus
from eventbus.client.address import parse_api_url
from eventbus.client.connection import ApiConnection, Reply
from eventbus.correlate.store_recorded_events import sink_worker
from eventbus.model.kinds import EVENT
from eventbus.store.object_store import ObjectStore
from eventbus.util.clock import SystemClock
from tests.builders import make_event, make_reference
from tests.integration.test_http_own import stored
from tests.support.alertmanager_server import alertmanager_server
from tests.support.api_in_process import serving
from tests.support.notifying import notifying
from tests.thin import one
from tests.waiting import eventually

PATH = "/eventbus/v1/alertmanager"
JSON = {"Content-Type": "application/json"}
NEVER = "0001-01-01T00:00:00Z"
STARTS, ENDS = "2026-02-06T10:15:30.123456789Z", "2026-02-06T10:45:30Z"


@pytest.fixture(params=one([3, 1]))
def bus(embedded_url: str, prefix: str, request: pytest.FixtureRequest) -> Bus:
    return open_bus(embedded_url, Settings(prefix=prefix, partitions=request.param))


@pytest.fixture
def one_partition(embedded_url: str, prefix: str) -> Bus:
    """Which has its events in their order."""
    return open_bus(embedded_url, Settings(prefix=prefix))


@pytest.fixture
def url(bus: Bus) -> Iterator[str]:
    with serving(bus) as url:
        yield url


@pytest.fixture
def api(url: str) -> Iterator[ApiConnection]:
    connection = ApiConnection(parse_api_url(url, Settings()))
    yield connection
    connection.close()


def alert(name: str = "HighLatency", *, fires: bool = True, fingerprint: str = "c0ffee", **changes: Any) -> Any:
    plain = {
        "status": "firing" if fires else "resolved",
        "labels": {"alertname": name, "severity": "page"},
        "annotations": {"summary": "p99 is 2 s", "description": "limit 0.5 s", "runbook_url": "https://run.example"},
        "startsAt": STARTS,
        "endsAt": NEVER if fires else ENDS,
        "generatorURL": "",
        "fingerprint": fingerprint,
    }
    return plain | changes


def labeled(**labels: str) -> Any:
    return alert(labels={"alertname": "HighLatency"} | labels)


def send(api: ApiConnection, *alerts: Any, headers: Mapping[str, str] = JSON, **changes: Any) -> Reply:
    payload = {
        "receiver": "bus",
        "status": "firing",
        "alerts": alerts,
        "groupLabels": {},
        "commonLabels": {},
        "commonAnnotations": {},
        "externalURL": "http://am:9093",
        "version": "4",
        "groupKey": "{}:{}",
        "truncatedAlerts": 0,
    }
    return api.request("POST", PATH, body=json.dumps(payload | changes).encode(), headers=headers)


def post(api: ApiConnection, *alerts: Any, **changes: Any) -> Any:
    reply = send(api, *alerts, **changes)
    assert reply.status == 200, reply.body
    return json.loads(reply.body)


def results(url: str) -> dict[str, float]:
    with urlopen(f"{url}/metrics", timeout=30) as reply:
        lines = reply.read().decode().splitlines()
    found = [line for line in lines if line.startswith("eventbus_apiserver_alertmanager_alerts_total{")]
    return {line.partition('"')[2].partition('"')[0]: float(line.rpartition(" ")[2]) for line in found}


def about(event: Event) -> tuple[str, str, str]:
    return event.involved_object.kind, event.involved_object.namespace, event.involved_object.name


def test_a_firing_alert_becomes_a_warning_and_a_resolved_one_a_normal_event(bus: Bus, api: ApiConnection) -> None:
    assert post(api, alert(), alert(fires=False)) == {"accepted": 2, "refused": []}
    fired, resolved = sorted(stored(bus), key=lambda event: event.type, reverse=True)
    assert (fired.type, fired.reason, fired.message) == ("Warning", "HighLatency", "p99 is 2 s: limit 0.5 s")
    assert about(fired) == about(resolved) == ("Alert", "default", "HighLatency")
    assert fired.last_timestamp == datetime(2026, 2, 6, 10, 15, 30, 123457, tzinfo=UTC)
    assert dict(fired.metadata.labels) == {"alertname": "HighLatency", "severity": "page"}
    assert fired.source.component == "alertmanager"
    words = (resolved.type, resolved.reason, resolved.message)
    assert words == ("Normal", "Resolved", "HighLatency: p99 is 2 s: limit 0.5 s")
    assert resolved.last_timestamp == datetime(2026, 2, 6, 10, 45, 30, tzinfo=UTC)


#: What an alert has besides its name, and its object.
OBJECTS = [
    ({"pod": "web-0", "namespace": "shop", "node": "n1", "instance": "10.0.0.1:9100"}, ("Pod", "shop", "web-0")),
    ({"deployment": "web", "namespace": "shop"}, ("Deployment", "shop", "web")),
    ({"job_name": "backup-1", "job": "kube-state-metrics"}, ("Job", "default", "backup-1")),
    ({"node": "n1", "namespace": "monitoring"}, ("Node", "", "n1")),
    ({"instance": "db1:9100", "job": "node"}, ("Instance", "default", "db1:9100")),
    ({"namespace": "shop"}, ("Namespace", "", "shop")),
    ({"kind": "order", "name": "4711", "namespace": "shop", "pod": "web-0"}, ("order", "shop", "4711")),
    ({"kind": "pods", "name": "web-0", "namespace": "shop"}, ("Pod", "shop", "web-0")),
    ({"pod": "", "job": "node"}, ("Alert", "default", "HighLatency")),
]


def test_the_object_is_the_most_exact_one_that_labels_name(one_partition: Bus) -> None:
    with serving(one_partition) as url:
        api = ApiConnection(parse_api_url(url, Settings()))
        alerts = [labeled(**labels) | {"fingerprint": str(number)} for number, (labels, _) in enumerate(OBJECTS)]
        post(api, *alerts)
        api.close()
    assert [about(event) for event in stored(one_partition)] == [expected for _, expected in OBJECTS]


def test_foreign_texts_become_a_reason_a_message_and_labels_within_the_limits(bus: Bus, api: ApiConnection) -> None:
    labels = {"alertname": "high-latency\n(p99) é", "path": "/a b", "team": "x" * 64}
    labels |= {f"l{n:02}": "v" for n in range(20)}
    post(api, alert(labels=labels, annotations={"summary": "\0" + "é" * 2000}))
    post(api, alert(labels={"severity": "none"}, annotations={}, fingerprint="d00d"))
    named, bare = sorted(stored(bus), key=lambda event: event.reason, reverse=True)
    assert (named.reason, bare.reason, bare.message) == ("HighLatencyP99", "Alert", "severity=none")
    assert about(bare) == ("Alert", "default", "d00d")
    assert len(named.message.encode()) <= MESSAGE_BYTES
    assert named.message.startswith("\N{REPLACEMENT CHARACTER}éé")
    assert sorted(named.metadata.labels) == [f"l{n:02}" for n in range(16)]


def test_an_alert_is_recorded_once_however_often_the_webhook_repeats_it(bus: Bus, api: ApiConnection, url: str) -> None:
    episode, other = alert(), alert(fingerprint="d00d")
    for _ in range(2):
        post(api, episode)
        post(api, other, episode)
    again = alert(startsAt="2026-02-06T11:00:00Z")
    for _ in range(2):
        post(api, alert(fires=False), again)
    assert len(stored(bus)) == 4
    assert results(url)["accepted"] == 10


def test_an_alert_is_known_for_a_day(bus: Bus, api: ApiConnection) -> None:
    post(api, alert())
    with bus.client() as client:
        lives = [client.pttl(key) for keys in bus.keys for key in client.scan_iter(keys.producer + b"*", count=10_000)]
    assert len(lives) == 1
    assert timedelta(hours=23) < timedelta(milliseconds=lives[0]) <= timedelta(days=1)


def test_alerts_that_cannot_be_events_are_refused_alone_and_counted(bus: Bus, api: ApiConnection, url: str) -> None:
    wrong = alert(labels={"pod": "a", "namespace": "No!"}, fingerprint="d00d")
    answer = post(api, wrong, alert(), truncatedAlerts=3)
    assert answer["accepted"] == 1
    assert [one["index"] for one in answer["refused"]] == [0]
    assert send(api, wrong).status == 422
    assert results(url) == {"accepted": 1, "invalid": 2, "truncated": 3}
    assert len(stored(bus)) == 1


def test_the_role_record_is_needed_in_the_namespace_of_each_alert(
    embedded_url: str, prefix: str, tmp_path: Path
) -> None:
    bus = open_bus(embedded_url, Settings(prefix=prefix))
    (tmp_path / "tokens.csv").write_text("a,prometheus,1\n")
    with serving(bus, tokens=tmp_path / "tokens.csv", grants=["record=user:prometheus@shop"]) as url:
        api = ApiConnection(parse_api_url(url, Settings(token="a")))
        answer = post(api, labeled(pod="web-0", namespace="shop"), labeled(pod="web-0", namespace="bank"))
        api.close()
    assert "'prometheus' may not record events in namespace 'bank'" in answer["refused"][0]["reason"]
    assert [about(event) for event in stored(bus)] == [("Pod", "shop", "web-0")]


def test_a_body_that_is_no_webhook_is_refused(api: ApiConnection) -> None:
    for what, changes, headers, code in (
        ("version", {"version": "3"}, JSON, 400),
        ("alert", {"alerts": [1]}, JSON, 400),
        ("time", {"alerts": [alert(startsAt="today")]}, JSON, 400),
        ("fingerprint", {"alerts": [alert(fingerprint="f" * 65)]}, JSON, 400),
        ("objects", {"alerts": [{}] * 80_001}, JSON, 413),
        ("media type", {}, {"Content-Type": "text/plain"}, 415),
    ):
        assert send(api, headers=headers, **changes).status == code, what


def test_alerts_that_have_passed_this_bus_are_dropped_and_counted(bus: Bus, api: ApiConnection, url: str) -> None:
    paths = {"1": bus.id, "2": f"other,{bus.id},x", "3": "a,b,c,d", "4": "a,b"}
    came_back = [
        alert(fingerprint=print_, annotations={"summary": "s", "eventbus_bus": path}) for print_, path in paths.items()
    ]
    in_label = alert(fingerprint="5", labels={"alertname": "a", "eventbus_bus": bus.id})
    assert post(api, *came_back, in_label)["accepted"] == 1
    assert results(url) == {"own": 3, "too-many-buses": 1, "accepted": 1}
    [control] = stored(bus)
    assert dict(control.metadata.annotations) == {"eventbus.dev/bus-path": "a,b"}


# Beside a real Alertmanager


def configured(*urls: str) -> str:
    hooks = ", ".join(f'{{url: "{url}{PATH}"}}' for url in urls)
    return (
        "route: {receiver: bus, group_by: [alertname], group_wait: 0s, group_interval: 1s, repeat_interval: 1s}\n"
        f"receivers: [{{name: bus, webhook_configs: [{hooks}]}}]\n"
    )


def fire(alertmanager: str, *, ends: timedelta, **labels: str) -> None:
    now = datetime.now(UTC)
    plain = [
        {
            "labels": {"alertname": "HighLatency"} | labels,
            "annotations": {"summary": "p99 is 2 s"},
            "startsAt": STARTS,
            "endsAt": (now + ends).isoformat(),
        }
    ]
    body = json.dumps(plain).encode()
    urlopen(Request(f"{alertmanager}/api/v2/alerts", body, {"Content-Type": "application/json"}), timeout=30).close()


def test_alerts_of_a_real_alertmanager_appear_in_the_story_of_their_object(
    bus: Bus, api: ApiConnection, url: str, tmp_path: Path
) -> None:
    runner = sink_worker(bus=bus, clock=SystemClock(), block_ms=20)
    runner.start()

    def told() -> list[tuple[str, str, int]]:
        story = json.loads(api.call("GET", "/eventbus/v1/why?object=shop/Pod/web-0"))
        return [(event["type"], event["reason"], event["count"]) for event in story["events"]]

    try:
        with ObjectStore.of(bus) as store:
            pod = make_reference(kind="Pod", namespace="shop", name="web-0")
            store.objects(EVENT).create(make_event(involved_object=pod, reason="Unhealthy", type="Warning"))
        with alertmanager_server(tmp_path, configured(url)) as alertmanager:
            fire(alertmanager, ends=timedelta(hours=1), pod="web-0", namespace="shop")
            eventually(lambda: results(url).get("accepted", 0) >= 2)  # repeated each second
            eventually(lambda: ("Warning", "HighLatency", 1) in told())
            fire(alertmanager, ends=timedelta(seconds=-1), pod="web-0", namespace="shop")
            eventually(lambda: ("Normal", "Resolved", 1) in told())
        expected = [("Normal", "Resolved", 1), ("Warning", "HighLatency", 1), ("Warning", "Unhealthy", 1)]
        assert sorted(told()) == expected
    finally:
        runner.stop(30)


def test_an_event_that_returns_through_an_alertmanager_is_dropped_by_its_bus_and_taken_by_another(
    embedded_url: str, prefix: str, tmp_path: Path
) -> None:
    one, two = (open_bus(embedded_url, Settings(prefix=f"{prefix}{n}")) for n in range(2))
    with ObjectStore.of(one) as store:
        event = make_event(type="Warning", reason="BackOff")
        metadata = replace(event.metadata, annotations={"eventbus.dev/bus-path": "zero"})
        store.objects(EVENT).create(replace(event, metadata=metadata))
    with (
        serving(one) as own,
        serving(two) as other,
        alertmanager_server(tmp_path, configured(own, other)) as alertmanager,
        notifying(
            one,
            "route: {receiver: a, group_wait: 0s}\n"
            f"receivers: [{{name: a, alertmanager_configs: [{{url: '{alertmanager}'}}]}}]",
        ),
    ):
        eventually(lambda: results(own).get("own") and results(other).get("accepted"))
    assert len(stored(one)) == 1  # as it was created
    [event] = stored(two)
    assert about(event) == about(make_event())
    assert (event.reason, event.metadata.annotations["eventbus.dev/bus-path"]) == ("BackOff", f"zero,{one.id}")
