"""Receivers against servers that stand in for Slack, PagerDuty, SMTP and webhooks, a real Alertmanager, and Apprise."""

from __future__ import annotations

import logging
import signal
from collections.abc import Iterator
from contextlib import nullcontext
from datetime import UTC, datetime, timedelta
from email import message_from_bytes
from email.message import EmailMessage
from email.policy import default
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import msgspec
import psutil
import pytest

from eventbus.errors import ConfigError, EventBusError, EventRejected, SinkUnreachable, Throttled, UnexpectedReply
from eventbus.notify.receivers import apprise, slack
from eventbus.notify.receivers.contract import Notification, NotifiedAlert, Opening, Reason, Receiver, Status
from eventbus.notify.receivers.http import HttpSender
from eventbus.notify.rules import parse_rules
from tests.support.alertmanager_server import alertmanager_server
from tests.support.certificates import make_certificate
from tests.support.pagerduty_server import PagerDuty
from tests.support.slack_server import HOOK, SlackWorkspace
from tests.support.smtp_server import Mailbox, mail_server
from tests.support.webhook_server import Answer, Delivery, Endpoint, receiving
from tests.thin import one

START = datetime(2026, 11, 25, 12, 0, 0, 123_000, tzinfo=UTC)
OPENING = Opening(environ={"EVENTBUS_WEBHOOK_ALLOW_HOSTS": "127.0.0.1"}, bus_id="bus-1")
HOSTILE = "<!channel> <@U1> <b>&amp; @here \x00\x1b[31m\r\nBcc: a@evil.example\r\n\u202e\ud800 *bold* `x`"


def alert(n: int = 0, status: Status = Status.FIRING, **changes: Any) -> NotifiedAlert:
    fields: dict[str, Any] = {
        "fingerprint": f"{n:016x}",
        "status": status,
        "labels": {
            "alertname": "BackOff",
            "kind": "Pod",
            "namespace": "shop",
            "name": f"web-{n}",
            "reason": "BackOff",
            "type": "Warning",
        },
        "annotations": {"message": f"back-off {n}", "summary": f"Pod shop/web-{n}: BackOff"},
        "starts_at": START,
        "last_seen": START,
        "ends_at": START + timedelta(minutes=5) if status is Status.RESOLVED else None,
    }
    return NotifiedAlert(**fields | changes)


def notification(*alerts: NotifiedAlert, number: int = 1, **changes: Any) -> Notification:
    alerts = alerts or (alert(),)
    fires = any(each.status is Status.FIRING for each in alerts)
    fields: dict[str, Any] = {
        "key": f"g1/{number}",
        "group": "g1",
        "number": number,
        "reason": Reason.FIRST if number == 1 else Reason.NEW_ALERTS if fires else Reason.ALL_RESOLVED,
        "status": Status.FIRING if fires else Status.RESOLVED,
        "receiver": "a",
        "group_key": '{}:{namespace="shop"}',
        "group_labels": {"namespace": "shop", "reason": "BackOff"},
        "common_labels": alerts[0].labels if len(alerts) == 1 else {"kind": "Pod", "reason": "BackOff"},
        "common_annotations": {},
        "alerts": alerts,
        "external_url": "https://bus.example",
    }
    return Notification(**fields | changes)


def hostile(text: str) -> Notification:
    """Return a notification with *text* in each place that comes from events."""
    labels = {name: text for name in ("alertname", "kind", "namespace", "name", "reason", "type", "component", "host")}
    one = alert(labels=labels, annotations={"message": text, "summary": text})
    return notification(one, group_labels=labels, common_labels=labels, common_annotations={"message": text})


def crowd() -> Notification:
    message = "\u00e9\u4e16\U0001f600 " * 4000  # more than 16 KB
    return notification(*(alert(n, annotations={"message": message}) for n in range(400)))


def opened(configs: str, **fields: Any) -> Receiver:
    """Open the receiver with *fields* in its `…_configs`, through a rules file."""
    text = msgspec.json.encode({"route": {"receiver": "a"}, "receivers": [{"name": "a", configs: [fields]}]}).decode()
    ((_, config),) = parse_rules(text).rules.receivers[0].integrations()
    return config.open(OPENING)


@pytest.fixture(autouse=True)
def no_secret_in_logs(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    caplog.set_level(logging.DEBUG)
    yield
    assert "secret" not in caplog.text


FAULTS = ["hang-up", "hang", "cut", "500", "502", "429", "redirect"]


@pytest.fixture(params=FAULTS)
def fault(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> tuple[Answer, type[EventBusError]]:
    """Return an answer of a service in trouble, and the error that leads to another try."""
    defaults: Any = HttpSender.__init__.__kwdefaults__
    monkeypatch.setitem(defaults, "timeout_s", 0.3)
    kinds: dict[str, tuple[Answer, type[EventBusError]]] = {
        "hang-up": (Answer(0), SinkUnreachable),
        "hang": (Answer(200, drip_s=0.05), SinkUnreachable),
        "cut": (Answer(500, body=b'{"ok":tr'), UnexpectedReply),
        "500": (Answer(500), UnexpectedReply),
        "502": (Answer(502, body=b"<html>"), SinkUnreachable),
        "429": (Answer(429, {"Retry-After": "7"}), Throttled),
        "redirect": (Answer(302, {"Location": "http://127.0.0.1:1/"}), SinkUnreachable),
    }
    return kinds[request.param]


# Slack


@pytest.fixture
def workspace(monkeypatch: pytest.MonkeyPatch) -> SlackWorkspace:
    monkeypatch.setattr(slack, "LEAST_PAUSE_S", 0.0)
    return SlackWorkspace(token="xoxb-secret")


@pytest.fixture
def slack_url(workspace: SlackWorkspace) -> Iterator[str]:
    with receiving(workspace) as port:
        yield f"http://127.0.0.1:{port}"


@pytest.fixture
def bot(slack_url: str) -> Iterator[Receiver]:
    receiver = opened("slack_configs", app_url=f"{slack_url}/api/", app_token="xoxb-secret", channel="#alerts")
    yield receiver
    receiver.close()


def test_slack_gets_one_message_for_a_group_with_a_thread(bot: Receiver, workspace: SlackWorkspace) -> None:
    handle = bot.send(notification())
    assert handle == {"channel": "C1", "ts": "1764072000.000000"}
    assert bot.send(notification(alert(0), alert(1), number=2, handle=handle)) == handle
    bot.send(notification(alert(0), number=3, handle=handle, reason=Reason.REPEAT))
    bot.send(notification(alert(0, Status.RESOLVED), alert(1, Status.RESOLVED), number=4, handle=handle))
    message, *replies = workspace.messages.values()
    assert message["blocks"][0]["text"]["text"] == "[RESOLVED] BackOff Pod in shop"
    assert [reply["text"][:9] for reply in replies] == ["[FIRING:2", "Still [FI", "[RESOLVED"]
    assert workspace.replies(handle["ts"]) == replies


def test_slack_shows_in_the_message_and_its_thread_by_whom_the_group_is_acknowledged(
    bot: Receiver, workspace: SlackWorkspace
) -> None:
    handle = bot.send(notification())
    by = notification(number=2, handle=handle, reason=Reason.ACKNOWLEDGED, acknowledged_by="ann <!channel>")
    assert bot.send(by) == handle
    shown = workspace.messages[handle["ts"]]
    assert shown["blocks"][-1]["text"]["text"] == "Acknowledged by ann <!channel>"
    (reply,) = workspace.replies(handle["ts"])
    assert reply["text"] == "Acknowledged by ann &lt;!channel&gt;"
    assert workspace.mentions == []
    assert slack.SlackConfig(app_token_file="token", channel="C1").acknowledges
    assert not slack.SlackConfig(api_url_file="url").acknowledges


@pytest.mark.parametrize(
    ("way", "make"),
    [
        ("bot", lambda: hostile(HOSTILE)),
        ("hook", lambda: hostile("<!here>" * 3000)),
        ("bot", crowd),
        ("hook", lambda: hostile("")),
    ],
    ids=["hostile", "long", "crowd", "empty"],
)
def test_slack_accepts_any_text_and_notifies_no_channel(
    slack_url: str, workspace: SlackWorkspace, way: str, make: Any
) -> None:
    fields = {"app_url": f"{slack_url}/api/", "app_token": "xoxb-secret", "channel": "#alerts"}
    receiver = opened("slack_configs", **(fields if way == "bot" else {"api_url": f"{slack_url}{HOOK}"}))
    handle = receiver.send(make())
    receiver.send(msgspec.structs.replace(make(), handle=handle, number=2, reason=Reason.NEW_ALERTS))
    receiver.close()
    assert len(workspace.messages) + len(workspace.posts) == 2
    assert workspace.mentions == []
    assert not any(character in str(workspace.messages) for character in "\x1b\u202e")


def test_slack_keeps_the_rate_of_a_channel(monkeypatch: pytest.MonkeyPatch) -> None:
    workspace = SlackWorkspace(token="xoxb-secret", pause_s=0.95)
    with receiving(workspace) as port:
        receiver = opened(
            "slack_configs", app_url=f"http://127.0.0.1:{port}/api/", app_token="xoxb-secret", channel="C1"
        )
        receiver.send(notification())
        receiver.send(notification())
        assert workspace.limited == 0
        monkeypatch.setattr(slack, "LEAST_PAUSE_S", 0.0)
        with pytest.raises(Throttled) as error:  # as if another program had posted
            receiver.send(notification())
        assert error.value.retry_after_s == 1
        receiver.close()
    assert len(workspace.messages) == 2


def test_slack_is_called_again_after_a_fault(
    fault: tuple[Answer, type[EventBusError]], bot: Receiver, workspace: SlackWorkspace
) -> None:
    answer, error = fault
    workspace.answers.append(answer)
    with pytest.raises(error) as raised:
        bot.send(notification())
    assert "secret" not in str(raised.value)
    bot.send(notification())
    assert len(workspace.messages) == 1


def test_slack_repeats_a_reply_but_not_the_message_after_a_lost_answer(
    bot: Receiver, workspace: SlackWorkspace
) -> None:
    handle = bot.send(notification())
    second = notification(alert(0), alert(1), number=2, handle=handle)
    workspace.lost_replies = 1
    with pytest.raises(SinkUnreachable):
        bot.send(second)
    bot.send(second)
    assert len(workspace.messages) == 2


def test_a_slack_message_that_is_gone_is_posted_again(bot: Receiver, workspace: SlackWorkspace) -> None:
    handle = bot.send(notification())
    del workspace.messages[handle["ts"]]
    workspace.messages["other"] = {}
    again = bot.send(notification(alert(0), alert(1), number=2, handle=handle))
    assert again["ts"] != handle["ts"]
    assert workspace.calls == ["chat.postMessage", "chat.update", "chat.postMessage"]
    assert "thread_ts" not in workspace.messages[again["ts"]]


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        ("invalid_auth", SinkUnreachable),
        ("internal_error", UnexpectedReply),
        ("ratelimited", Throttled),
        ("invalid_blocks", EventRejected),
    ],
)
def test_a_slack_error_says_whether_to_send_again(
    bot: Receiver, workspace: SlackWorkspace, error: str, kind: type[EventBusError]
) -> None:
    workspace.answers.append(Answer(body=msgspec.json.encode({"ok": False, "error": error})))
    with pytest.raises(kind, match=error):
        bot.send(notification())


@pytest.mark.parametrize("body", [b"", b"ok", b'{"ok":tr', b"[]", b'{"ok":true}'])
def test_a_strange_answer_of_slack_is_no_handle(bot: Receiver, workspace: SlackWorkspace, body: bytes) -> None:
    workspace.answers.append(Answer(body=body))
    try:
        handle = bot.send(notification())
    except UnexpectedReply:
        return
    assert bot.send(notification(number=2, handle=handle))["ts"] == "1764072000.000000"


@pytest.mark.parametrize("field", ["app_token", "api_url"])
def test_slacks_credentials_are_read_from_their_file_again(
    slack_url: str, workspace: SlackWorkspace, tmp_path: Path, field: str
) -> None:
    file = tmp_path / "credential"
    fields = {"app_url": f"{slack_url}/api/", "channel": "C1"} if field == "app_token" else {}
    receiver = opened("slack_configs", **fields, **{f"{field}_file": str(file)})
    wrong = ["", "xoxb-other-secret", "xoxb-secr\u00e9t", "secret\nsecret"]
    if field == "api_url":
        wrong = [
            "",
            f"{slack_url}/services/secret",
            "http://[secret",
            f"{slack_url}/secr\u00e9t",
            "https://10.0.0.1/secret",
        ]
    for text in (None, *wrong):
        if text is not None:
            file.write_text(text)
        with pytest.raises(EventBusError) as error:
            receiver.send(notification())
        assert not isinstance(error.value, EventRejected)
        assert "secret" not in str(error.value)
    file.write_text("xoxb-secret\n" if field == "app_token" else f"{slack_url}{HOOK}\n")
    receiver.send(notification())
    receiver.close()
    assert len(workspace.messages) + len(workspace.posts) == 1


# PagerDuty


@pytest.fixture
def duty() -> PagerDuty:
    return PagerDuty(routing_key="secret".ljust(32, "0"))


@pytest.fixture
def duty_url(duty: PagerDuty) -> Iterator[str]:
    with receiving(duty) as port:
        yield f"http://127.0.0.1:{port}/v2/enqueue"


@pytest.fixture
def pager(duty: PagerDuty, duty_url: str) -> Iterator[Receiver]:
    receiver = opened("pagerduty_configs", url=duty_url, routing_key=duty.routing_key)
    yield receiver
    receiver.close()


def test_pagerduty_has_one_alert_for_a_group(pager: Receiver, duty: PagerDuty) -> None:
    assert pager.send(notification()) == {}
    pager.send(notification())  # again, with the same key
    pager.send(notification(alert(0), alert(1, Status.RESOLVED), number=2))
    assert duty.opened == ["g1"]
    first, _, second = duty.open["g1"]
    assert first["payload"]["summary"] == "[FIRING:1] BackOff Pod/web-0 in shop: back-off 0"
    assert second["payload"]["custom_details"]["firing"] == second["payload"]["custom_details"]["resolved"] == 1
    over = notification(alert(0, Status.RESOLVED), alert(1, Status.RESOLVED), number=3)
    pager.send(over)
    pager.send(over)
    assert duty.resolved == ["g1"]
    assert duty.open == {}


def test_pagerduty_acknowledges_the_alert_of_a_group(pager: Receiver, duty: PagerDuty) -> None:
    pager.send(notification())
    pager.send(notification(number=2, reason=Reason.ACKNOWLEDGED, acknowledged_by="ann"))
    assert msgspec.json.decode(duty.deliveries[-1].body) == {
        "routing_key": duty.routing_key,
        "dedup_key": "g1",
        "event_action": "acknowledge",
    }


@pytest.mark.parametrize("make", [lambda: hostile(HOSTILE), lambda: hostile("x" * 16_384), crowd, lambda: hostile("")])
def test_pagerduty_accepts_any_text(pager: Receiver, duty: PagerDuty, make: Any) -> None:
    pager.send(make())
    pager.send(msgspec.structs.replace(make(), group="g" * 400))
    assert duty.opened == ["g1", f"{'g' * 254}…"]
    assert not any(character in str(duty.open) for character in "\x1b\u202e")


@pytest.mark.parametrize("fault", one(FAULTS), indirect=True)
def test_pagerduty_is_called_again_after_a_fault(
    fault: tuple[Answer, type[EventBusError]], pager: Receiver, duty: PagerDuty
) -> None:
    answer, error = fault
    duty.answers.append(answer)
    with pytest.raises(error) as raised:
        pager.send(notification())
    assert "secret" not in str(raised.value)
    pager.send(notification())
    assert duty.opened == ["g1"]


def test_pagerduty_deduplicates_after_a_lost_answer_and_limits_the_rate(pager: Receiver, duty: PagerDuty) -> None:
    duty.lost_replies, duty.burst = 1, 2
    with pytest.raises(SinkUnreachable):
        pager.send(notification())
    pager.send(notification())
    with pytest.raises(Throttled):
        pager.send(notification(number=2))
    assert duty.opened == ["g1"]


def test_a_wrong_routing_key_drops_no_message(duty_url: str, duty: PagerDuty, tmp_path: Path) -> None:
    file = tmp_path / "key"
    receiver = opened("pagerduty_configs", url=duty_url, routing_key_file=str(file))
    for text in (None, "", "secret", "secret".ljust(32, "1"), "secr\u00e9t"):
        if text is not None:
            file.write_text(text)
        with pytest.raises(EventBusError) as error:
            receiver.send(notification())
        assert not isinstance(error.value, EventRejected)
        assert "secret" not in str(error.value)
    file.write_text(duty.routing_key)
    receiver.send(notification())
    receiver.close()
    assert duty.opened == ["g1"]


# Email


@pytest.fixture
def mailbox(tmp_path: Path) -> Mailbox:
    _, tls = make_certificate(tmp_path, "IP:127.0.0.1")
    return Mailbox(tls, password="secret")


@pytest.fixture
def mail(mailbox: Mailbox, tmp_path: Path) -> Iterator[dict[str, Any]]:
    """Yield the fields of a working `email_configs`."""
    with mail_server(mailbox) as port:
        yield {
            "to": "ops@example.com, b@example.com",
            "from": "Bus <bus@example.com>",
            "smarthost": f"127.0.0.1:{port}",
            "auth_username": "notifier",
            "auth_password": "secret",
            "tls_config": {"ca_file": str(tmp_path / "certificate.pem")},
            "send_resolved": True,
        }


def parsed(mail: bytes) -> EmailMessage:
    return message_from_bytes(mail, EmailMessage, policy=default)


def test_mails_of_a_group_are_a_thread(mail: dict[str, Any], mailbox: Mailbox) -> None:
    receiver = opened("email_configs", **mail)
    handle = receiver.send(notification())
    receiver.send(notification())  # again
    receiver.send(notification(alert(0), alert(1), number=2, handle=handle))
    receiver.send(notification(alert(0, Status.RESOLVED), number=3, handle=handle))
    first, again, second, third = map(parsed, mailbox.mails)
    assert first["Message-ID"] == again["Message-ID"]
    assert first["In-Reply-To"] is None
    assert second["In-Reply-To"] == second["References"] == third["References"] == first["Message-ID"]
    assert len({each["Message-ID"] for each in (first, second, third)}) == 3
    assert second["Subject"] == third["Subject"] == f"Re: {first['Subject']}" == "Re: BackOff Pod/web-0 in shop"
    assert mailbox.recipients[:2] == ["TO:<ops@example.com>", "TO:<b@example.com>"]
    assert b"secret" not in mailbox.clear_text
    assert b"BackOff" not in mailbox.clear_text


@pytest.mark.parametrize(
    "make", [lambda: hostile(HOSTILE), lambda: hostile("x\u00e9" * 8000), crowd, lambda: hostile("")]
)
def test_a_mail_takes_any_text(mail: dict[str, Any], mailbox: Mailbox, make: Any) -> None:
    receiver = opened("email_configs", **mail)
    receiver.send(make())
    message = parsed(mailbox.mails[0])
    assert message.keys() == [
        "Subject",
        "From",
        "To",
        "Date",
        "Auto-Submitted",
        "Message-ID",
        "MIME-Version",
        "Content-Type",
    ]
    page = message.get_body(("html",))
    assert page is not None
    assert "<b>" not in page.get_content()
    assert not any(character in str(message) + page.get_content() for character in "\x1b\u202e\0")


@pytest.mark.parametrize(
    ("verb", "reply", "kind"),
    [
        ("MAIL", "451 later", SinkUnreachable),
        ("RCPT", "450 later", None),  # the other recipient is accepted
        ("MAILED", "451 later", SinkUnreachable),
        ("MAILED", "250", SinkUnreachable),  # the answer is lost
        ("MAILED", "554 spam", EventRejected),
        ("DATA", "", SinkUnreachable),
        ("EHLO", "", SinkUnreachable),
        ("AUTH", "454 later", SinkUnreachable),
        ("AUTH", "535 no", SinkUnreachable),
    ],
)
def test_a_reply_of_a_mail_server_says_whether_to_send_again(
    mail: dict[str, Any], mailbox: Mailbox, verb: str, reply: str, kind: type[EventBusError] | None
) -> None:
    receiver = opened("email_configs", **mail)
    mailbox.refuse[verb] = reply
    if kind is None:
        receiver.send(notification())
    else:
        with pytest.raises(kind) as error:
            receiver.send(notification())
        assert "secret" not in str(error.value)
        receiver.send(notification())
    assert mailbox.mails


def test_no_mail_leaves_without_tls(mail: dict[str, Any], mailbox: Mailbox) -> None:
    mailbox.starttls = False
    with pytest.raises(SinkUnreachable, match="STARTTLS"):
        opened("email_configs", **mail).send(notification())
    mailbox.starttls = True
    with pytest.raises(SinkUnreachable, match="certificate"):
        opened("email_configs", **mail | {"tls_config": {}}).send(notification())
    assert b"secret" not in mailbox.clear_text
    assert mailbox.mails == []


def test_a_mail_password_is_read_from_its_file_again(mail: dict[str, Any], mailbox: Mailbox, tmp_path: Path) -> None:
    file = tmp_path / "password"
    del mail["auth_password"]
    receiver = opened("email_configs", **mail, auth_password_file=str(file))
    for text in (None, "", "other-secret", "secr\u00e9t"):
        if text is not None:
            file.write_text(text)
        with pytest.raises(EventBusError) as error:
            receiver.send(notification())
        assert not isinstance(error.value, EventRejected)
        assert "secret" not in str(error.value)
    file.write_text("secret\n")
    receiver.send(notification())
    assert len(mailbox.mails) == 1


# Alertmanager


@pytest.fixture(scope="module")
def alertmanager_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Yield the URL of a real Alertmanager."""
    with alertmanager_server(tmp_path_factory.mktemp("alertmanager")) as url:
        yield url


def alerts_of(url: str, namespace: str) -> list[dict[str, Any]]:
    with urlopen(f"{url}/api/v2/alerts?filter=namespace%3D{namespace}", timeout=10) as reply:
        alerts: list[dict[str, Any]] = msgspec.json.decode(reply.read())
    return alerts


def in_namespace(namespace: str, **changes: Any) -> NotifiedAlert:
    now = datetime.now(UTC)
    plain = alert(**{"starts_at": now - timedelta(minutes=9), "last_seen": now} | changes)
    return msgspec.structs.replace(plain, labels={**plain.labels, "namespace": namespace})


def test_alertmanager_shows_an_alert_until_it_is_resolved(alertmanager_url: str) -> None:
    receiver = opened("alertmanager_configs", url=alertmanager_url)
    fires = in_namespace(
        "shown", labels={**alert().labels, "label_app_kubernetes_io_name": HOSTILE.replace("\ud800", "")}
    )
    receiver.send(notification(fires))
    receiver.send(notification(fires))  # again
    (shown,) = alerts_of(alertmanager_url, "shown")
    assert shown["labels"] == fires.labels
    assert shown["annotations"]["eventbus_bus"] == "bus-1"
    assert shown["generatorURL"] == "https://bus.example"
    left = datetime.fromisoformat(shown["endsAt"]) - datetime.now(UTC)
    assert timedelta(minutes=19) < left <= timedelta(minutes=20)
    over = msgspec.structs.replace(fires, status=Status.RESOLVED, ends_at=datetime.now(UTC))
    receiver.send(notification(over, number=2))
    receiver.send(notification(over, number=2))
    assert alerts_of(alertmanager_url, "shown") == []
    receiver.send(notification(fires, number=3))
    assert len(alerts_of(alertmanager_url, "shown")) == 1
    receiver.close()


def test_alertmanager_takes_alerts_of_a_producer_whose_clock_is_ahead(alertmanager_url: str) -> None:
    receiver = opened("alertmanager_configs", url=alertmanager_url)
    fires = in_namespace("clock", starts_at=datetime.now(UTC) + timedelta(hours=1))
    receiver.send(notification(fires))
    assert len(alerts_of(alertmanager_url, "clock")) == 1
    over = msgspec.structs.replace(fires, status=Status.RESOLVED, ends_at=datetime.now(UTC))
    receiver.send(notification(over, number=2))
    assert alerts_of(alertmanager_url, "clock") == []
    receiver.close()


def test_alertmanager_takes_400_alerts(alertmanager_url: str) -> None:
    receiver = opened("alertmanager_configs", url=f"{alertmanager_url}/")
    alerts = [in_namespace("crowd", labels=each.labels, annotations=each.annotations) for each in crowd().alerts]
    receiver.send(notification(*alerts))
    assert len(alerts_of(alertmanager_url, "crowd")) == 400
    receiver.close()


# Webhook


@pytest.fixture
def endpoint() -> Endpoint:
    return Endpoint()


@pytest.fixture
def hook_url(endpoint: Endpoint) -> Iterator[str]:
    with receiving(endpoint) as port:
        yield f"http://127.0.0.1:{port}/hook"


def test_a_webhook_gets_alertmanagers_fields(hook_url: str, endpoint: Endpoint) -> None:
    authorization = {"authorization": {"credentials": "secret"}}
    receiver = opened("webhook_configs", url=hook_url, max_alerts=1, http_config=authorization)
    assert receiver.send(notification(alert(0), alert(1, Status.RESOLVED))) == {}
    receiver.close()
    (delivery,) = endpoint.deliveries
    assert delivery.headers["idempotency-key"] == "g1/1"
    assert delivery.headers["eventbus-bus"] == "bus-1"
    assert delivery.headers["authorization"] == "Bearer secret"
    assert msgspec.json.decode(delivery.body) == {
        "receiver": "a",
        "status": "firing",
        "alerts": [
            {
                "status": "firing",
                "labels": alert(0).labels,
                "annotations": alert(0).annotations,
                "startsAt": "2026-11-25T12:00:00.123Z",
                "endsAt": "0001-01-01T00:00:00Z",
                "generatorURL": "",
                "fingerprint": "0000000000000000",
            }
        ],
        "groupLabels": {"namespace": "shop", "reason": "BackOff"},
        "commonLabels": {"kind": "Pod", "reason": "BackOff"},
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
def test_the_answer_to_a_webhook_says_whether_to_send_again(
    hook_url: str, endpoint: Endpoint, answer: Answer, error: type[EventBusError] | None
) -> None:
    receiver = opened("webhook_configs", url=hook_url)
    endpoint.answers.append(answer)
    with pytest.raises(error) if error else nullcontext():
        receiver.send(notification())
    assert len(endpoint.deliveries) == 1
    receiver.close()


def test_a_webhook_goes_through_a_proxy(hook_url: str, endpoint: Endpoint) -> None:
    proxy = {"proxy_url": hook_url.removesuffix("/hook")}
    receiver = opened("webhook_configs", url="http://127.0.0.1:1/far", http_config=proxy)
    receiver.send(notification())
    receiver.close()
    assert [delivery.path for delivery in endpoint.deliveries] == ["http://127.0.0.1:1/far"]


def test_a_webhook_within_the_own_network_is_refused() -> None:
    text = (
        '{"route": {"receiver": "a"}, "receivers": [{"name": "a", "webhook_configs": [{"url": "https://127.0.0.1/"}]}]}'
    )
    ((_, config),) = parse_rules(text).rules.receivers[0].integrations()
    with pytest.raises(ConfigError, match="EVENTBUS_WEBHOOK_ALLOW_HOSTS=127"):
        config.open(Opening(environ={}))


# Apprise


@pytest.fixture
def apprise_url(endpoint: Endpoint, tmp_path: Path) -> Iterator[Path]:
    """Return the file with the URL of *endpoint*."""
    with receiving(endpoint) as port:
        path = tmp_path / "url"
        path.write_text(f"json://user:secret@127.0.0.1:{port}/secret\n")
        yield path


def of_the_environment(**environ: str) -> Receiver:
    """Open the receiver whose URL is in the variable URL."""
    text = '{"route": {"receiver": "a"}, "receivers": [{"name": "a", "apprise_configs": [{"url_env": "URL"}]}]}'
    ((name, config),) = parse_rules(text).rules.receivers[0].integrations()
    assert name == "apprise[0]"
    return config.open(Opening(environ=environ))


def test_apprise_sends_title_and_body_without_mentions(apprise_url: Path, endpoint: Endpoint) -> None:
    receiver = of_the_environment(URL=apprise_url.read_text(), PYTHONHOME="/no variable of ours goes to its process")
    resolved = [msgspec.structs.replace(each, status=Status.RESOLVED) for each in hostile(HOSTILE).alerts]
    assert receiver.send(notification(*resolved)) == {}
    sent = msgspec.json.decode(endpoint.deliveries[0].body)
    assert (sent["title"][:10], sent["type"]) == ("[RESOLVED]", "success")
    assert "<!channel" not in sent["message"]
    assert "@here" not in sent["message"]


# The kinds of faults are Apprise's to tell apart; how long it may take is ours.
def test_apprise_is_ended_when_it_takes_too_long(
    apprise_url: Path, endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(apprise, "TIMEOUT_S", 0.1)  # it may still be importing
    endpoint.answers.append(Answer(200, drip_s=0.05))
    with pytest.raises((UnexpectedReply, SinkUnreachable)) as raised:
        opened("apprise_configs", url_file=str(apprise_url)).send(notification())
    assert "secret" not in str(raised.value)


def test_a_crash_of_apprise_is_an_error_of_one_message(apprise_url: Path, endpoint: Endpoint) -> None:
    class Crashing(Endpoint):
        def answer(self, delivery: Delivery) -> Answer:
            (child,) = [each for each in psutil.Process().children() if "apprise_process" in " ".join(each.cmdline())]
            child.send_signal(signal.SIGSEGV)
            self.answers.append(Answer(200, drip_s=0.05))
            return super().answer(delivery)

    with receiving(crashing := Crashing()) as port:
        apprise_url.write_text(f"json://127.0.0.1:{port}")
        receiver = opened("apprise_configs", url_file=str(apprise_url))
        with pytest.raises(UnexpectedReply, match="killed by signal 11"):
            receiver.send(notification())
    sent = msgspec.json.decode(crashing.deliveries[0].body)
    assert (sent["title"], sent["type"]) == ("[FIRING:1] BackOff Pod/web-0 in shop", "failure")
    assert "back-off 0" in sent["message"]


def test_a_url_that_apprise_does_not_know_is_not_repeated_in_the_error(tmp_path: Path) -> None:
    path = tmp_path / "url"
    path.write_text("nonsense://secret")
    with pytest.raises(SinkUnreachable, match="does not know the URL") as raised:
        opened("apprise_configs", url_file=str(path)).send(notification())
    assert "secret" not in str(raised.value)


def test_apprise_uses_the_proxy_of_the_environment(apprise_url: Path, endpoint: Endpoint) -> None:
    receiver = of_the_environment(URL=apprise_url.read_text(), HTTP_PROXY="http://127.0.0.1:1")
    with pytest.raises(UnexpectedReply) as raised:
        receiver.send(notification())
    assert "secret" not in str(raised.value)
    assert endpoint.deliveries == []


def test_a_missing_url_of_apprise_is_named_by_its_variable() -> None:
    with pytest.raises(SinkUnreachable, match="the URL of Apprise is empty: URL"):
        of_the_environment().send(notification())
