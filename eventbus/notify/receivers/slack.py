"""`slack_configs`: one message for a group, updated, with a thread; or posts through an incoming webhook.

With *app_token* (a bot token), the first notification posts a message (`chat.postMessage`), and later ones update it
(`chat.update`) and add a reply to its thread. An incoming webhook (*api_url*) can only post.

Texts are sent as `plain_text` blocks, which have no markup: no mentions, no links. Source: Slack's Web API reference.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from eventbus.errors import EventRejected, SinkError, SinkUnreachable, Throttled, UnexpectedReply
from eventbus.notify.fields import Secret, secret_of
from eventbus.notify.receivers import summary
from eventbus.notify.receivers.contract import Global, IntegrationConfig, Notification, Opening, Reason
from eventbus.notify.receivers.http import HttpConfig, HttpSender, authorization

API: Final = "https://slack.com/api/"
#: Limits of Slack: characters of a header block and of a section, blocks of a message.
MAX_HEADER: Final = 150
MAX_SECTION: Final = 3000
#: Slack accepts about one message a second for a channel.
LEAST_PAUSE_S: Final = 1.0
#: The pause after `ratelimited` without Retry-After.
PAUSE_S: Final = 30.0

#: The message that was to be updated cannot be; a new one is posted.
_GONE: Final = frozenset(
    {"message_not_found", "edit_window_closed", "cant_update_message", "thread_not_found", "channel_not_found"}
)
#: This message will never be accepted.
_REJECTED: Final = frozenset(
    {"invalid_blocks", "invalid_blocks_format", "msg_blocks_too_long", "msg_too_long", "no_text"}
)
#: Slack has trouble, or may not have done it.
_PASSING: Final = frozenset({"fatal_error", "internal_error", "request_timeout", "service_unavailable"})


class SlackConfig(IntegrationConfig, frozen=True, kw_only=True):
    """One entry of `slack_configs`."""

    api_url: Secret | None = None
    api_url_file: str = ""
    app_token: Secret | None = None
    app_token_file: str = ""
    app_url: str = API
    channel: str = ""
    username: str = ""
    icon_emoji: str = ""
    send_resolved: bool = False
    http_config: HttpConfig = HttpConfig()

    def with_defaults(self, defaults: Global) -> SlackConfig:
        """Return a copy with the defaults of the file."""
        if self.api_url or self.api_url_file or self.app_token or self.app_token_file:
            return self
        return msgspec.structs.replace(
            self,
            api_url=defaults.slack_api_url,
            api_url_file=defaults.slack_api_url_file,
            app_token=defaults.slack_app_token,
            app_token_file=defaults.slack_app_token_file,
        )

    @property
    def acknowledges(self) -> bool:
        """Return True if the group's message can be updated."""
        return bool(self.app_token or self.app_token_file)

    def check(self) -> None:
        hook = bool(self.api_url) + bool(self.api_url_file)
        token = bool(self.app_token) + bool(self.app_token_file)
        if hook + token != 1:
            raise ValueError(
                "give one of api_url, api_url_file (an incoming webhook), app_token, app_token_file (a bot token)"
            )
        if token and not self.channel:
            raise ValueError("channel: is needed with app_token")
        self.http_config.check()

    def open(self, opening: Opening) -> SlackReceiver:
        return SlackReceiver(self, opening)


class SlackReceiver:
    """Posts, updates and replies. Waits so that a channel gets at most one message a second."""

    def __init__(self, config: SlackConfig, opening: Opening) -> None:
        self._config = config
        self._http = HttpSender(config.http_config, opening)
        self._last = 0.0

    def send(self, notification: Notification) -> Mapping[str, str]:
        config = self._config
        message = message_of(notification)
        if config.username:
            message["username"] = config.username
        if config.icon_emoji:
            message["icon_emoji"] = config.icon_emoji
        if config.api_url or config.api_url_file:
            self._pace()
            self._http.post(
                secret_of("api_url", config.api_url, config.api_url_file), msgspec.json.encode(message), _JSON
            )
            return {}
        handle = notification.handle
        if handle.get("ts") and (updated := self._update(message, handle)):
            self._call(
                "chat.postMessage", _reply(notification) | {"channel": updated["channel"], "thread_ts": updated["ts"]}
            )
            return updated
        posted = self._call("chat.postMessage", message | {"channel": config.channel})
        return {"channel": str(posted.get("channel", "")), "ts": str(posted.get("ts", ""))}

    def close(self) -> None:
        self._http.close()

    def _update(self, message: dict[str, Any], handle: Mapping[str, str]) -> Mapping[str, str] | None:
        """Update the group's message. Returns: the handle; None: there is no message to update any more."""
        fields = {name: value for name, value in message.items() if name in ("text", "blocks", "parse", "link_names")}
        try:
            self._call("chat.update", fields | {"channel": handle["channel"], "ts": handle["ts"]})
        except _MessageGone:
            return None
        return handle

    def _call(self, method: str, body: dict[str, Any]) -> dict[str, Any]:
        """Call a method of the Web API. Raises: see `Receiver.send`; _MessageGone."""
        config = self._config
        self._pace()
        token = secret_of("app_token", config.app_token, config.app_token_file)
        url = f"{config.app_url.removesuffix('chat.postMessage').rstrip('/')}/{method}"
        reply, _ = self._http.post(url, msgspec.json.encode(body), _JSON | authorization("Bearer", token))
        try:
            answer = msgspec.json.decode(reply, type=dict[str, Any])
        except msgspec.DecodeError:
            from eventbus.util.http.guarded_http import MAX_REPLY_BYTES

            if len(reply) >= MAX_REPLY_BYTES:  # longer than we read: accepted, as its status says, but without a handle
                return {}
            raise UnexpectedReply(f"{method}: the answer is not JSON") from None
        if answer.get("ok") is True:
            return answer
        raise _error_of(method, str(answer.get("error", "no error")))

    def _pace(self) -> None:
        left_s = self._last + LEAST_PAUSE_S - time.monotonic()
        if left_s > 0:
            time.sleep(left_s)
        self._last = time.monotonic()


class _MessageGone(SinkError):
    """The message to update does not exist, or cannot be updated any more."""


_JSON: Final = {"content-type": "application/json; charset=utf-8"}


def _error_of(method: str, error: str) -> SinkError:
    text = f"{method}: Slack answered {summary.cut(summary.one_line(error), 100)}"
    if error in ("ratelimited", "rate_limited"):
        return Throttled(text, PAUSE_S)
    if error in _GONE and method == "chat.update":
        return _MessageGone(text)
    if error in _REJECTED:
        return EventRejected(text)
    if error in _PASSING:
        return UnexpectedReply(text)
    return SinkUnreachable(f"{text}: check the token, its scope chat:write, and the channel")


def message_of(notification: Notification) -> dict[str, Any]:
    """Return the message of a group: a header and a section; *text* is the fallback of notifications on devices."""
    title = summary.title(notification)
    sections = [_section("\n".join(summary.lines(notification)))]
    if notification.reason is Reason.ACKNOWLEDGED:
        sections.append(_section(_acknowledged(notification)))
    return _message(title, [_header(title), *sections])


def _reply(notification: Notification) -> dict[str, Any]:
    """Return the reply in the thread: the reason of this notification, and the alerts that are new or resolved."""
    title = summary.title(notification)
    if notification.reason is Reason.REPEAT:
        return _message(f"Still {title}", [_section(f"Still {title}")])
    if notification.reason is Reason.ACKNOWLEDGED:
        text = _acknowledged(notification)
        return _message(text, [_section(text)])
    return _message(title, [_section("\n".join([title, *summary.lines(notification)]))])


def _acknowledged(notification: Notification) -> str:
    return f"Acknowledged by {summary.one_line(notification.acknowledged_by) or 'an unknown user'}"


def _message(fallback: str, blocks: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "text": summary.cut(escape(fallback), MAX_SECTION),
        "blocks": blocks,
        "parse": "none",
        "link_names": False,
        "unfurl_links": False,
        "unfurl_media": False,
    }


def _header(text: str) -> dict[str, Any]:
    return {"type": "header", "text": {"type": "plain_text", "text": summary.cut(text, MAX_HEADER), "emoji": False}}


def _section(text: str) -> dict[str, Any]:
    text = summary.cut(text, MAX_SECTION) or "-"
    return {"type": "section", "text": {"type": "plain_text", "text": text, "emoji": False}}


def escape(text: str) -> str:
    """Escape Slack's markup, so that `<!channel>` and `<@U123>` stay text."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
