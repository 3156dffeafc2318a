"""A stand-in for Slack, written from its published reference: chat.postMessage, chat.update, incoming webhooks.

It rejects unknown arguments, where Slack ignores some of them, and enforces sizes, the token and the rate of a channel.
As in Slack, most errors are answers with status 200 and `ok: false`. Not modelled: attachments, files, scopes.
Source: https://docs.slack.dev/reference: methods chat.postMessage and chat.update, Block Kit, rate limits.
"""

from __future__ import annotations

import json
import re
import time
from typing import Any, Final

from tests.support.webhook_server import Answer, Delivery, Endpoint

MAX_TEXT: Final = 40_000
#: Of the text of chat.update, which refuses a longer one.
MAX_UPDATE_TEXT: Final = 4000
MAX_BLOCKS: Final = 50
MAX_HEADER: Final = 150
MAX_SECTION: Final = 3000
HOOK: Final = "/services/T000/B000/hook-secret"

_COMMON: Final = {"channel", "text", "blocks", "attachments", "metadata", "link_names", "parse", "reply_broadcast"}
_STYLE: Final = {"username", "icon_emoji", "icon_url", "unfurl_links", "unfurl_media", "mrkdwn"}
_ARGUMENTS: Final = {
    "chat.postMessage": _COMMON | _STYLE | {"thread_ts", "as_user", "markdown_text"},
    "chat.update": _COMMON | {"ts", "as_user", "file_ids", "markdown_text"},
}
_BOOLEANS: Final = ("link_names", "reply_broadcast", "unfurl_links", "unfurl_media", "mrkdwn", "as_user")
_MENTION: Final = re.compile(r"<[!@#][^>]*>")


class SlackWorkspace(Endpoint):
    """One channel, `#alerts` with the id C1, and its messages by `ts`, in order.

    *pause_s*: the least time between two new messages of the channel. *lost_replies*: so many requests are carried out
    without an answer. *mentions*: each mention that would reach people.
    """

    def __init__(self, *, token: str = "xoxb-token", pause_s: float = 0.0) -> None:
        super().__init__()
        self.token = token
        self.pause_s = pause_s
        self.messages: dict[str, dict[str, Any]] = {}
        self.posts: list[dict[str, Any]] = []  # through the incoming webhook
        self.mentions: list[str] = []
        self.calls: list[str] = []
        self.lost_replies = 0
        self.limited = 0
        self._posted = -1e9

    def answer(self, delivery: Delivery) -> Answer:
        ordered = bool(self.answers)
        answer = super().answer(delivery)
        if ordered:
            return answer
        answer = self._hook(delivery) if delivery.path.startswith("/services/") else self._method(delivery)
        if self.lost_replies:
            self.lost_replies -= 1
            return Answer(0)
        return answer

    def replies(self, ts: str) -> list[dict[str, Any]]:
        """Return the messages in the thread of *ts*."""
        return [message for message in self.messages.values() if message.get("thread_ts") == ts]

    def _method(self, delivery: Delivery) -> Answer:
        method = delivery.path.removeprefix("/api/")
        self.calls.append(method)
        if method not in _ARGUMENTS:
            return _error("unknown_method")
        if not delivery.headers.get("content-type", "").startswith("application/json"):
            return _error("invalid_form_data")
        if "authorization" not in delivery.headers:
            return _error("not_authed")
        if delivery.headers["authorization"] != f"Bearer {self.token}":
            return _error("invalid_auth")
        try:
            arguments = json.loads(delivery.body)
        except ValueError:
            return _error("invalid_json")
        if not isinstance(arguments, dict):
            return _error("json_not_object")
        if arguments.keys() - _ARGUMENTS[method]:
            return _error("invalid_arguments")
        if problem := _problem(arguments):
            return _error(problem)
        return self._update(arguments) if method == "chat.update" else self._post(arguments)

    def _post(self, arguments: dict[str, Any]) -> Answer:
        if arguments.get("channel") not in ("C1", "#alerts", "alerts"):
            return _error("channel_not_found")
        thread = arguments.get("thread_ts")
        if thread is not None and thread not in self.messages:
            return _error("message_not_found")
        if self._too_fast():
            return Answer(429, {"Retry-After": "1"}, b'{"ok":false,"error":"ratelimited"}')
        ts = f"1764072000.{len(self.messages):06d}"
        self.messages[ts] = arguments | {"channel": "C1"}
        self.mentions += _mentions(arguments)
        return _ok({"channel": "C1", "ts": ts, "message": {"type": "message", "ts": ts, "text": arguments["text"]}})

    def _update(self, arguments: dict[str, Any]) -> Answer:
        if arguments.get("channel") != "C1":  # needs the id, not the name
            return _error("channel_not_found")
        if len(arguments.get("text", "")) > MAX_UPDATE_TEXT:
            return _error("msg_too_long")
        ts = arguments.get("ts")
        if ts not in self.messages:
            return _error("message_not_found")
        self.messages[ts] = arguments
        self.mentions += _mentions(arguments)
        return _ok({"channel": "C1", "ts": ts, "text": arguments["text"], "message": {"text": arguments["text"]}})

    def _hook(self, delivery: Delivery) -> Answer:
        """An incoming webhook answers with a status and plain text."""
        if delivery.path != HOOK:
            return Answer(404, body=b"no_service")
        try:
            arguments = json.loads(delivery.body)
        except ValueError:
            return Answer(400, body=b"invalid_payload")
        if arguments.keys() - _COMMON - _STYLE - {"thread_ts"}:
            return Answer(400, body=b"invalid_payload")
        if problem := _problem(arguments):
            return Answer(400, body=problem.encode())
        if self._too_fast():
            return Answer(429, {"Retry-After": "1"}, b"rate_limited")
        self.posts.append(arguments)
        self.mentions += _mentions(arguments)
        return Answer(body=b"ok")

    def _too_fast(self) -> bool:
        now = time.monotonic()
        if now - self._posted < self.pause_s:
            self.limited += 1
            return True
        self._posted = now
        return False


def _ok(fields: dict[str, Any]) -> Answer:
    return Answer(headers={"content-type": "application/json"}, body=json.dumps({"ok": True} | fields).encode())


def _error(error: str) -> Answer:
    return Answer(headers={"content-type": "application/json"}, body=json.dumps({"ok": False, "error": error}).encode())


def _problem(arguments: dict[str, Any]) -> str:
    """Return the error of a message's text and blocks; "": there is none."""
    text, blocks = arguments.get("text", ""), arguments.get("blocks", [])
    if not isinstance(text, str) or any(not isinstance(arguments.get(name, True), bool) for name in _BOOLEANS):
        return "invalid_arguments"
    if arguments.get("parse", "none") not in ("none", "full"):
        return "invalid_arguments"
    if not text and not blocks:
        return "no_text"
    if len(text) > MAX_TEXT:
        return "msg_too_long"
    if not isinstance(blocks, list) or len(blocks) > MAX_BLOCKS:
        return "invalid_blocks"
    return "" if all(_is_block(block) for block in blocks) else "invalid_blocks"


def _is_block(block: Any) -> bool:
    if not isinstance(block, dict) or block.keys() - {"type", "text", "block_id"}:
        return False
    limits = {"header": (MAX_HEADER, ("plain_text",)), "section": (MAX_SECTION, ("plain_text", "mrkdwn"))}
    limit, kinds = limits.get(block.get("type", ""), (0, ()))
    text = block.get("text")
    if not isinstance(text, dict) or text.get("type") not in kinds:
        return False
    if text.keys() - {"type", "text", "emoji" if text["type"] == "plain_text" else "verbatim"}:
        return False
    return isinstance(text.get("text"), str) and 0 < len(text["text"]) <= limit


def _mentions(arguments: dict[str, Any]) -> list[str]:
    """Return the mentions in the texts that have markup: *text* and `mrkdwn` objects. `plain_text` has none."""
    texts = [arguments.get("text", "")]
    texts += [block["text"]["text"] for block in arguments.get("blocks", []) if block["text"]["type"] == "mrkdwn"]
    names = re.findall(r"(?<!\w)[@#]\w+", texts[0]) if arguments.get("parse") == "full" else []
    return names + [mention for text in texts for mention in _MENTION.findall(text)]
