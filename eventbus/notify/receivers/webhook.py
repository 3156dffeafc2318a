"""`webhook_configs`: posts Alertmanager's payload, version 4, so that receivers written for it work.

Source: alertmanager `notify/webhook/webhook.go` and `template/template.go`, Data.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

import msgspec

from eventbus.notify.fields import Duration, secret_of
from eventbus.notify.receivers.contract import IntegrationConfig, Notification, NotifiedAlert, Opening
from eventbus.notify.receivers.http import TIMEOUT_S, HttpConfig, HttpSender

#: Go's zero time: the end of an alert that fires.
_NEVER: Final = "0001-01-01T00:00:00Z"


class WebhookConfig(IntegrationConfig, frozen=True, kw_only=True):
    """One entry of `webhook_configs`. *max_alerts*: of one message, 0: all."""

    url: str = ""
    url_file: str = ""
    http_config: HttpConfig = HttpConfig()
    max_alerts: int = 0
    timeout: Duration = Duration(0)

    def check(self) -> None:
        if bool(self.url) is bool(self.url_file):
            raise ValueError("give url or url_file")
        if self.max_alerts < 0:
            raise ValueError("max_alerts: must not be negative")
        self.http_config.check()

    def open(self, opening: Opening) -> WebhookReceiver:
        return WebhookReceiver(self, opening)


class WebhookReceiver:
    """Posts one JSON object for each notification, with an Idempotency-Key. A 2xx answer, or 409, accepts it."""

    def __init__(self, config: WebhookConfig, opening: Opening) -> None:
        self._config = config
        self._bus_id = opening.bus_id
        timeout_s = min(config.timeout.ms / 1000 or TIMEOUT_S, TIMEOUT_S)
        self._http = HttpSender(config.http_config, opening, timeout_s=timeout_s)
        if config.url:
            self._http.check_url(config.url)

    def send(self, notification: Notification) -> Mapping[str, str]:
        url = self._config.url or secret_of("url", None, self._config.url_file)
        headers = {"content-type": "application/json", "idempotency-key": notification.key}
        if self._bus_id:
            headers["eventbus-bus"] = self._bus_id
        self._http.post(url, msgspec.json.encode(payload(notification, self._config.max_alerts)), headers)
        return {}

    def close(self) -> None:
        self._http.close()


def payload(notification: Notification, max_alerts: int = 0) -> dict[str, Any]:
    """Return the payload, with *max_alerts* alerts at most (0: all)."""
    alerts = notification.alerts[: max_alerts or None]
    return {
        "receiver": notification.receiver,
        "status": notification.status,
        "alerts": [_alert(alert) for alert in alerts],
        "groupLabels": notification.group_labels,
        "commonLabels": notification.common_labels,
        "commonAnnotations": notification.common_annotations,
        "externalURL": notification.external_url,
        "version": "4",
        "groupKey": notification.group_key,
        "truncatedAlerts": len(notification.alerts) - len(alerts),
    }


def _alert(alert: NotifiedAlert) -> dict[str, Any]:
    return {
        "status": alert.status,
        "labels": alert.labels,
        "annotations": alert.annotations,
        "startsAt": _time(alert.starts_at),
        "endsAt": _time(alert.ends_at) if alert.ends_at else _NEVER,
        "generatorURL": "",
        "fingerprint": alert.fingerprint,
    }


def _time(at: datetime) -> str:
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")
