"""The interface between the notifier and receivers.

A receiver sends one notification about one group to one service. It has no state, retries or Redis client: the notifier
stores the returned handle, and calls again after an error that may pass.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from typing import ClassVar, Protocol

import msgspec

from eventbus.notify.fields import Duration, Secret, Strict


class Status(StrEnum):
    """Of an alert, and of a group: a group fires while one of its alerts does."""

    FIRING = "firing"
    RESOLVED = "resolved"


class Reason(StrEnum):
    """Why a notification is sent. Source: alertmanager `notify/notify.go`, DedupStage.needsUpdate."""

    FIRST = "first"  #: the group's first notification to this receiver
    NEW_ALERTS = "new-alerts"  #: alerts joined the group
    RESOLVED_ALERTS = "resolved-alerts"  #: some alerts have resolved, others fire
    ALL_RESOLVED = "all-resolved"
    REPEAT = "repeat"  #: `repeat_interval` has passed
    ACKNOWLEDGED = "acknowledged"  #: only to integrations whose `acknowledges` is True


class NotifiedAlert(msgspec.Struct, frozen=True, kw_only=True):
    """One object and reason in a notification.

    *labels* lack `message`, which changes with each repeat: it is an annotation. *count*, *starts_at* and *last_seen*
    are of this episode; *ends_at* is None while it fires. *ended_by*: the reason of the good event that ended it.
    *is_new*: the receiver has not been sent it as firing before.

    Texts come from events, so they are untrusted: escape the service's markup, and cut them to its limits.
    """

    fingerprint: str
    status: Status
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    starts_at: datetime
    last_seen: datetime
    ends_at: datetime | None = None
    count: int = 1
    ended_by: str = ""
    is_new: bool = True


class Notification(msgspec.Struct, frozen=True, kw_only=True):
    """One message about one group for one integration of a receiver.

    *key* is the idempotency key: the same if the message is sent again after a lost reply or a take-over, different for
    every other message. *group* is the same for all messages about a group from its opening to its end: a dedup key.
    *number* counts these messages from 1. *handle* is the result of the last `send` about this group, by any
    worker; empty for the first. *alerts*: firing ones first, the oldest first, then resolved ones. *interval_ms*:
    the `group_interval` of its route. *acknowledged_by*: the user, of an acknowledgement.
    """

    key: str
    group: str
    number: int
    reason: Reason
    status: Status
    receiver: str
    group_key: str
    group_labels: Mapping[str, str]
    common_labels: Mapping[str, str]
    common_annotations: Mapping[str, str]
    alerts: tuple[NotifiedAlert, ...]
    external_url: str = ""
    handle: Mapping[str, str] = {}
    interval_ms: int = 300_000
    acknowledged_by: str = ""


class Receiver(Protocol):
    """One integration of a receiver, such as one entry of `webhook_configs`. One thread at a time calls it."""

    def send(self, notification: Notification) -> Mapping[str, str]:
        """Send it; blocks for the service's answer, with a timeout of its own of at most a minute.

        May be called again with the same notification, and may have arrived before.

        Returns: a handle for the next message about the group, such as a thread's id, 4 KB at most; {}: none.
        Raises:  Throttled: the service asks for a pause; sent again after it.
                 SinkUnreachable, UnexpectedReply: no answer, or the service or its credentials are wrong at the moment;
                 sent again with back-off, without limit.
                 EventRejected: this message will never be accepted; it is counted, reported and dropped.
        """
        ...

    def close(self) -> None:
        """Close the connections. Called once, from the thread that sent."""
        ...


class Opening(msgspec.Struct, frozen=True, kw_only=True):
    """The inputs for opening a receiver besides its configuration. *environ*: for the limits of `http.py`."""

    environ: Mapping[str, str]
    bus_id: str = ""


class Global(Strict, frozen=True, kw_only=True):
    """The `global` section of a rules file: defaults of receivers. *resolve_timeout*: of `resolve_after`."""

    resolve_timeout: Duration | None = None
    slack_api_url: Secret | None = None
    slack_api_url_file: str = ""
    slack_app_token: Secret | None = None
    slack_app_token_file: str = ""
    pagerduty_url: str = ""
    smtp_smarthost: str = ""
    smtp_from: str = ""
    smtp_hello: str = "localhost"
    smtp_auth_username: str = ""
    smtp_auth_password: Secret | None = None
    smtp_auth_password_file: str = ""
    smtp_require_tls: bool = True


class IntegrationConfig(Strict, frozen=True, kw_only=True):
    """The configuration of one integration: the base of each entry of a `…_configs` field.

    *resends*: firing alerts are sent again at each `group_interval`, because the service forgets them otherwise.
    """

    resends: ClassVar[bool] = False

    send_resolved: bool = True

    @property
    def acknowledges(self) -> bool:
        """Return True if the integration is sent acknowledgements."""
        return False

    def check(self) -> None:
        """Check the values beyond their types. Raises: ValueError: the field, and the reason."""
        raise NotImplementedError

    def open(self, opening: Opening) -> Receiver:
        """Make the receiver; imports its libraries. Connects to nothing yet. Raises: ConfigError."""
        raise NotImplementedError
