"""`alertmanager_configs`: posts alerts to an Alertmanager, which groups, silences and sends them by its own rules.

Firing alerts are sent again at each `group_interval`, with an end four intervals ahead: if the notifier stops, the
Alertmanager resolves them then. Resolved alerts are sent with their end. Sending twice changes nothing. The annotation
`eventbus_bus` contains the ids of the buses that the event has passed, so that each recognizes it when it comes back.
Source: alertmanager `api/v2/openapi.yaml`, postableAlerts.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar

import msgspec

from eventbus.model.bus_path import ALERT_ANNOTATION, extend_path
from eventbus.notify.receivers.contract import IntegrationConfig, Notification, NotifiedAlert, Opening
from eventbus.notify.receivers.http import HttpConfig, HttpSender


class AlertmanagerConfig(IntegrationConfig, frozen=True, kw_only=True):
    """One entry of `alertmanager_configs`. *url*: of the Alertmanager, without `/api/v2/alerts`."""

    resends: ClassVar[bool] = True

    url: str
    http_config: HttpConfig = HttpConfig()

    def check(self) -> None:
        if not self.url.startswith(("http://", "https://")):
            raise ValueError("url: must begin with http:// or https://")
        self.http_config.check()

    def open(self, opening: Opening) -> AlertmanagerReceiver:
        return AlertmanagerReceiver(self, opening)


class AlertmanagerReceiver:
    """Posts to the API v2."""

    def __init__(self, config: AlertmanagerConfig, opening: Opening) -> None:
        self._url = f"{config.url.rstrip('/')}/api/v2/alerts"
        self._bus_id = opening.bus_id
        self._http = HttpSender(config.http_config, opening)
        self._http.check_url(self._url)

    def send(self, notification: Notification) -> Mapping[str, str]:
        until = datetime.now(UTC) + timedelta(milliseconds=4 * notification.interval_ms)
        alerts = [self._alert(alert, until, notification.external_url) for alert in notification.alerts]
        self._http.post(self._url, msgspec.json.encode(alerts), {"content-type": "application/json"})
        return {}

    def close(self) -> None:
        self._http.close()

    def _alert(self, alert: NotifiedAlert, until: datetime, external_url: str) -> dict[str, Any]:
        annotations = {**alert.annotations, "count": str(alert.count)}
        if path := extend_path(annotations.get(ALERT_ANNOTATION, ""), self._bus_id):
            annotations[ALERT_ANNOTATION] = path
        ends_at = alert.ends_at or until
        return {
            "labels": alert.labels,
            "annotations": annotations,
            # The start is by the producer's clock. Alertmanager refuses one after the end.
            "startsAt": _time(min(alert.starts_at, ends_at)),
            "endsAt": _time(ends_at),
            **({"generatorURL": external_url} if external_url else {}),
        }


def _time(at: datetime) -> str:
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")
