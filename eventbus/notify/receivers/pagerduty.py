"""`pagerduty_configs`: PagerDuty Events API v2, one alert of PagerDuty for each group.

A firing group triggers with its key as *dedup_key*. An acknowledgement acknowledges the alert, and the end of the group
resolves it. A repeated message has the same key, so PagerDuty deduplicates it. Source: PagerDuty's Events API v2
reference.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from eventbus.errors import EventRejected, SinkUnreachable
from eventbus.notify.fields import Secret, secret_of
from eventbus.notify.receivers import summary
from eventbus.notify.receivers.contract import Global, IntegrationConfig, Notification, Opening, Reason, Status
from eventbus.notify.receivers.http import HttpConfig, HttpSender

URL: Final = "https://events.pagerduty.com/v2/enqueue"
SEVERITIES: Final = ("critical", "error", "warning", "info")
#: Limits of PagerDuty, in characters; an event has at most 512 KB.
MAX_SUMMARY: Final = 1024
MAX_DEDUP_KEY: Final = 255


class PagerDutyConfig(IntegrationConfig, frozen=True, kw_only=True):
    """One entry of `pagerduty_configs`."""

    routing_key: Secret | None = None
    routing_key_file: str = ""
    url: str = ""
    client: str = "eventbus"
    client_url: str = ""
    severity: str = "error"
    class_: str = msgspec.field(default="", name="class")
    component: str = ""
    group: str = ""
    http_config: HttpConfig = HttpConfig()

    @property
    def acknowledges(self) -> bool:
        """Return True: PagerDuty acknowledges the incident, too."""
        return True

    def with_defaults(self, defaults: Global) -> PagerDutyConfig:
        """Return a copy with the defaults of the file."""
        return msgspec.structs.replace(self, url=self.url or defaults.pagerduty_url or URL)

    def check(self) -> None:
        if bool(self.routing_key) is bool(self.routing_key_file):
            raise ValueError("give routing_key or routing_key_file, of an integration with the Events API v2")
        if self.severity not in SEVERITIES:
            raise ValueError(f"severity: must be one of {', '.join(SEVERITIES)}")
        self.http_config.check()

    def open(self, opening: Opening) -> PagerDutyReceiver:
        return PagerDutyReceiver(self, opening)


class PagerDutyReceiver:
    """Triggers and resolves."""

    def __init__(self, config: PagerDutyConfig, opening: Opening) -> None:
        self._config = config
        self._http = HttpSender(config.http_config, opening)
        self._http.check_url(config.url)

    def send(self, notification: Notification) -> Mapping[str, str]:
        config = self._config
        event: dict[str, Any] = {
            "routing_key": secret_of("routing_key", config.routing_key, config.routing_key_file),
            "dedup_key": summary.cut(notification.group, MAX_DEDUP_KEY),
            "event_action": _action(notification),
        }
        if event["event_action"] == "trigger":
            event["client"] = config.client
            if client_url := config.client_url or notification.external_url:
                event["client_url"] = client_url
            event["payload"] = self._payload(notification)
        try:
            self._http.post(config.url, msgspec.json.encode(event), {"content-type": "application/json"})
        except EventRejected as error:
            if "routing_key" in str(error):  # the same answer, 400, but it concerns every event
                raise SinkUnreachable(f"{error}: check the routing key, of an Events API v2 integration") from error
            raise
        return {}

    def close(self) -> None:
        self._http.close()

    def _payload(self, notification: Notification) -> dict[str, Any]:
        config = self._config
        first = notification.alerts[0]
        payload = {
            "summary": summary.cut(_summary(notification), MAX_SUMMARY),
            "source": _source(notification),
            "severity": config.severity,
            "timestamp": first.starts_at.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "class": config.class_ or notification.common_labels.get("reason", ""),
            "component": config.component or notification.common_labels.get("component", ""),
            "group": config.group or notification.common_labels.get("namespace", ""),
            "custom_details": {
                "alerts": list(summary.lines(notification)),
                "firing": sum(alert.status is Status.FIRING for alert in notification.alerts),
                "resolved": sum(alert.status is Status.RESOLVED for alert in notification.alerts),
            },
        }
        return {
            name: summary.one_line(value) if isinstance(value, str) else value
            for name, value in payload.items()
            if value
        }


def _action(notification: Notification) -> str:
    if notification.status is Status.RESOLVED:
        return "resolve"
    return "acknowledge" if notification.reason is Reason.ACKNOWLEDGED else "trigger"


def _summary(notification: Notification) -> str:
    """Return the title; of a single alert with its message."""
    text = summary.title(notification)
    message = summary.message_of(notification.alerts[0]) if len(notification.alerts) == 1 else ""
    return f"{text}: {message}" if message else text


def _source(notification: Notification) -> str:
    """Return the affected object, or its host, or eventbus."""
    labels = notification.common_labels
    if labels.get("kind") and labels.get("name"):
        return f"{labels.get('namespace', '')}/{labels['kind']}/{labels['name']}".lstrip("/")
    return labels.get("host") or "eventbus"
