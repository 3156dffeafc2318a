"""The text of a notification for people: a title, and a few lines for each alert.

Texts of events are untrusted. Everything returned here is one printable line without control characters; each receiver
escapes the markup of its service and cuts texts to its limits.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Final

from eventbus.notify.receivers.contract import Notification, NotifiedAlert, Status
from eventbus.util.text import printable

#: Alerts that a message shows; the others are counted in its last line.
MAX_ALERTS: Final = 20
#: Longest message of an event that is shown, in characters.
MAX_MESSAGE: Final = 500


def title(notification: Notification) -> str:
    """Return the title with the state: `[FIRING:2] BackOff Pod in shop`."""
    firing = sum(alert.status is Status.FIRING for alert in notification.alerts)
    state = f"FIRING:{firing}" if notification.status is Status.FIRING else "RESOLVED"
    return f"[{state}] {subject(notification)}"


def subject(notification: Notification) -> str:
    """Return reason, object and namespace of the group, such as `BackOff Pod/web-0 in shop`."""
    labels = {**notification.common_labels, **notification.group_labels}
    kind, name = labels.get("kind", ""), labels.get("name", "")
    about = f"{kind}/{name}" if kind and name else kind or name
    place = f"in {labels['namespace']}" if labels.get("namespace") else ""
    words = [labels.get("reason", ""), about, place]
    return one_line(" ".join(word for word in words if word)) or one_line(notification.receiver)


def alert_title(alert: NotifiedAlert) -> str:
    """Return one line: state, reason, object, count and times."""
    labels = alert.labels
    about = f"{labels.get('kind', '')}/{labels.get('name', '')}"
    place = f" in {labels['namespace']}" if labels.get("namespace") else ""
    count = f" {alert.count} times" if alert.count > 1 else ""
    return one_line(f"{state_of(alert)}: {labels.get('reason', '')} {about}{place}{count}, {times(alert)}")


def state_of(alert: NotifiedAlert) -> str:
    """Return Firing, Resolved, or the reason that ended it."""
    if alert.status is Status.FIRING:
        return "Firing"
    return f"Resolved by {alert.ended_by}" if alert.ended_by else "Resolved"


def message_of(alert: NotifiedAlert) -> str:
    """Return the message of the newest event, cut to MAX_MESSAGE characters."""
    return cut(one_line(alert.annotations.get("message", "")), MAX_MESSAGE)


def times(alert: NotifiedAlert) -> str:
    """Return since when, and the last occurrence or the end."""
    since = f"since {utc(alert.starts_at)}"
    if alert.ends_at is not None:
        return f"{since}, until {utc(alert.ends_at)}"
    return f"{since}, last {utc(alert.last_seen)}" if alert.count > 1 else since


def lines(notification: Notification, most: int = MAX_ALERTS) -> Iterator[str]:
    """Yield the lines of the first *most* alerts, and how many are left out."""
    for alert in notification.alerts[:most]:
        yield alert_title(alert)
        if message := message_of(alert):
            yield f"    {message}"
    left_out = len(notification.alerts) - most
    if left_out > 0:
        yield f"and {left_out} more"


def utc(at: datetime) -> str:
    """Return date and time with seconds, in UTC."""
    return at.strftime("%Y-%m-%d %H:%M:%SZ")


def one_line(text: str) -> str:
    """Return *text* as one printable line, with spaces for line breaks."""
    return printable(" ".join(text.split()))


def cut(text: str, limit: int) -> str:
    """Return at most *limit* characters of *text*, with an ellipsis if it is cut."""
    return text if len(text) <= limit else f"{text[: limit - 1]}…"
