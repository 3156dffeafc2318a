"""The webhook receiver against a real HTTP server: Alertmanager's payload, and the meaning of answers."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

import msgspec
import pytest

from eventbus.errors import ConfigError, EventBusError, EventRejected, SinkUnreachable, Throttled, UnexpectedReply
from eventbus.notify.receivers.contract import Notification, NotifiedAlert, Opening, Reason, Receiver, Status
from eventbus.notify.rules import parse_rules
from tests.support.webhook_server import Answer, Endpoint, receiving

START = datetime(2026, 11, 25, 12, 0, 0, 123_000, tzinfo=UTC)
ALLOWED = Opening(environ={"EVENTBUS_WEBHOOK_ALLOW_HOSTS": "127.0.0.1"}, bus_id="bus-1")


def notification() -> Notification:
    labels = {"alertname": "BackOff", "kind": "Pod", "namespace": "shop", "reason": "BackOff", "type": "Warning"}
    alerts = [
        NotifiedAlert(
            fingerprint=f"{n:016x}",
            status=status,
            labels=labels | {"name": f"web-{n}"},
            annotations={"message": f"back-off {n}"},
            starts_at=START,
            last_seen=START,
            ends_at=START if status is Status.RESOLVED else None,
        )
        for n, status in enumerate((Status.FIRING, Status.RESOLVED))
    ]
    return Notification(
        key="g1/1",
        group="g1",
        number=1,
        reason=Reason.FIRST,
        status=Status.FIRING,
        receiver="chat",
        group_key='{}:{namespace="shop"}',
        group_labels={"namespace": "shop"},
        common_labels=labels,
        common_annotations={},
        alerts=tuple(alerts),
        external_url="https://bus.example",
    )


@pytest.fixture
def endpoint() -> Endpoint:
    return Endpoint()


@pytest.fixture
def url(endpoint: Endpoint) -> Iterator[str]:
    with receiving(endpoint) as port:
        yield f"http://127.0.0.1:{port}/hook"


def opened(url: str, more: str = "", opening: Opening = ALLOWED) -> Receiver:
    text = f"route: {{receiver: a}}\nreceivers: [{{name: a, webhook_configs: [{{url: '{url}'{more}}}]}}]"
    ((_, config),) = parse_rules(text).rules.receivers[0].integrations()
    return config.open(opening)


def test_the_payload_has_alertmanagers_fields(url: str, endpoint: Endpoint) -> None:
    receiver = opened(url, ", max_alerts: 1, http_config: {authorization: {credentials: hunter2}}")
    assert receiver.send(notification()) == {}
    receiver.close()
    (delivery,) = endpoint.deliveries
    assert delivery.headers["idempotency-key"] == "g1/1"
    assert delivery.headers["eventbus-bus"] == "bus-1"
    assert delivery.headers["authorization"] == "Bearer hunter2"
    labels = {"alertname": "BackOff", "kind": "Pod", "namespace": "shop", "reason": "BackOff", "type": "Warning"}
    assert msgspec.json.decode(delivery.body) == {
        "receiver": "chat",
        "status": "firing",
        "alerts": [
            {
                "status": "firing",
                "labels": labels | {"name": "web-0"},
                "annotations": {"message": "back-off 0"},
                "startsAt": "2026-11-25T12:00:00.123Z",
                "endsAt": "0001-01-01T00:00:00Z",
                "generatorURL": "",
                "fingerprint": "0000000000000000",
            }
        ],
        "groupLabels": {"namespace": "shop"},
        "commonLabels": labels,
        "commonAnnotations": {},
        "externalURL": "https://bus.example",
        "version": "4",
        "groupKey": '{}:{namespace="shop"}',
        "truncatedAlerts": 1,
    }


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (Answer(204), None),
        (Answer(409), None),
        (Answer(429, {"Retry-After": "7"}), Throttled),
        (Answer(503, {"Retry-After": "7"}), Throttled),
        (Answer(500), UnexpectedReply),
        (Answer(503), SinkUnreachable),
        (Answer(401), SinkUnreachable),
        (Answer(302, {"Location": "http://127.0.0.1/"}), SinkUnreachable),
        (Answer(0), SinkUnreachable),
        (Answer(400), EventRejected),
    ],
)
def test_an_answer_says_whether_to_send_again(
    url: str, endpoint: Endpoint, answer: Answer, error: type[EventBusError] | None
) -> None:
    receiver = opened(url)
    endpoint.answers.append(answer)
    if error is None:
        receiver.send(notification())
    else:
        with pytest.raises(error):
            receiver.send(notification())
    assert len(endpoint.deliveries) == 1
    receiver.close()


def test_a_message_goes_through_a_proxy(url: str, endpoint: Endpoint) -> None:
    receiver = opened("http://127.0.0.1:1/far", f", http_config: {{proxy_url: '{url.removesuffix('/hook')}'}}")
    receiver.send(notification())
    receiver.close()
    assert [delivery.path for delivery in endpoint.deliveries] == ["http://127.0.0.1:1/far"]


def test_a_url_within_the_own_network_is_refused() -> None:
    with pytest.raises(ConfigError, match="EVENTBUS_WEBHOOK_ALLOW_HOSTS=127"):
        opened("https://127.0.0.1/", opening=Opening(environ={}))
