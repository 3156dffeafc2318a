"""`apprise_configs`: some 170 services by a URL, through the library Apprise, in a process for each message.

The process has a time limit and no environment of ours, so a plugin that hangs or crashes harms one message only. The
URL contains the credentials: it goes to the process through a pipe, and into no log and no error. The guard of
addresses of the other receivers does not apply, because the plugins connect by themselves.

Apprise has no idempotency keys and no threads: each notification is a message, and one sent again is a second message.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from typing import Final

import msgspec

from eventbus.errors import ConfigError, SinkUnreachable, UnexpectedReply
from eventbus.notify.fields import Secret, secret_of
from eventbus.notify.receivers import summary
from eventbus.notify.receivers.apprise_process import FAILED, INVALID, Message
from eventbus.notify.receivers.contract import IntegrationConfig, Notification, Opening, Status
from eventbus.util.extras import is_needed

#: Longest run of the process, seconds: it starts, imports Apprise, and sends.
TIMEOUT_S: Final = 30.0
#: Variables that the process gets: how to reach the network, and nothing about the bus.
_PASSED: Final = frozenset(
    {"PATH", "LANG", "LC_ALL", "TZ", "HOME", "TMPDIR", "SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE"}
    | {"http_proxy", "https_proxy", "no_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY"}
)
_VARIABLE: Final = re.compile(r"[A-Za-z_]\w*\Z", re.ASCII)


class AppriseConfig(IntegrationConfig, frozen=True, kw_only=True):
    """One entry of `apprise_configs`. *url_env*: the environment variable with the URL."""

    url: Secret | None = None
    url_file: str = ""
    url_env: str = ""

    def check(self) -> None:
        if bool(self.url) + bool(self.url_file) + bool(self.url_env) != 1:
            raise ValueError("give one of url, url_file, url_env")
        if self.url_env and not _VARIABLE.match(self.url_env):
            raise ValueError("url_env: must be the name of an environment variable, not the URL")

    def open(self, opening: Opening) -> AppriseReceiver:
        if find_spec("apprise") is None:
            raise ConfigError(f"apprise_configs: {is_needed('apprise')}")
        return AppriseReceiver(self, opening)


class AppriseReceiver:
    """Starts a process for each message."""

    def __init__(self, config: AppriseConfig, opening: Opening) -> None:
        self._config = config
        self._environ = opening.environ

    def send(self, notification: Notification) -> Mapping[str, str]:
        message = Message(
            url=self._url(),
            title=harmless(summary.title(notification)),
            body=harmless("\n".join(summary.lines(notification))),
            kind="failure" if notification.status is Status.FIRING else "success",
            seconds=TIMEOUT_S,
        )
        code = self._run(msgspec.json.encode(message))
        if code == INVALID:
            raise SinkUnreachable("Apprise does not know the URL: check it with the command apprise")
        if code:
            why = "the service refused it or did not answer" if code == FAILED else _end(code)
            raise UnexpectedReply(f"Apprise did not send the message: {why}")
        return {}

    def close(self) -> None:
        pass

    def _url(self) -> str:
        config = self._config
        try:
            url = (
                self._environ.get(config.url_env, "")
                if config.url_env
                else secret_of("url", config.url, config.url_file)
            )
        except ConfigError as error:  # the file may come back
            raise SinkUnreachable(str(error)) from error
        if not url.strip():
            raise SinkUnreachable(f"the URL of Apprise is empty: {config.url_env or config.url_file}")
        return url.strip()

    def _run(self, message: bytes) -> int:
        """Return the exit code; negative: a signal. Raises: SinkUnreachable: the time limit."""
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "eventbus.notify.receivers.apprise_process"],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={name: value for name, value in self._environ.items() if name in _PASSED},
            start_new_session=True,
        )
        try:
            process.communicate(message, timeout=TIMEOUT_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)  # with its own children
            process.wait()
            raise SinkUnreachable(f"Apprise did not end within {TIMEOUT_S:g} s, and was killed") from None
        return process.returncode


def harmless(text: str) -> str:
    """Return *text* with a zero-width space after each `@` and `<`: no service reads a mention or a tag in it."""
    return text.replace("@", "@\u200b").replace("<", "<\u200b")


def _end(code: int) -> str:
    return f"its process was killed by signal {-code}" if code < 0 else f"its process ended with exit code {code}"
