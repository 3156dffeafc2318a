"""HTTP for receivers: Alertmanager's `http_config` over the guarded client of the webhook sink.

The guard's permissions are those of the webhook sink: EVENTBUS_WEBHOOK_ALLOW_HOSTS.
"""

from __future__ import annotations

import base64
import ssl
from collections.abc import Mapping
from typing import Final
from urllib.parse import urlsplit

from eventbus.errors import ConfigError, SinkUnreachable
from eventbus.notify.fields import Secret, Strict, secret_of
from eventbus.notify.receivers.contract import Opening
from eventbus.util.extras import extra_needed
from eventbus.util.http.ssrf import Guard

#: Longest exchange with a service, seconds.
TIMEOUT_S: Final = 10.0


class Authorization(Strict, frozen=True, kw_only=True):
    """The Authorization header."""

    type: str = "Bearer"
    credentials: Secret | None = None
    credentials_file: str = ""


class BasicAuth(Strict, frozen=True, kw_only=True):
    """User and password."""

    username: str = ""
    password: Secret | None = None
    password_file: str = ""


class TlsConfig(Strict, frozen=True, kw_only=True):
    """Certificates. There is no way to skip the check of the server's."""

    ca_file: str = ""
    cert_file: str = ""
    key_file: str = ""


class HttpConfig(Strict, frozen=True, kw_only=True):
    """Alertmanager's http_config, without redirects and OAuth 2."""

    authorization: Authorization | None = None
    basic_auth: BasicAuth | None = None
    tls_config: TlsConfig = TlsConfig()
    proxy_url: str = ""
    follow_redirects: bool = False

    def check(self) -> None:
        """Raises: ValueError."""
        if self.follow_redirects:
            raise ValueError("http_config.follow_redirects: redirects are never followed; remove the field")
        if self.authorization and self.basic_auth:
            raise ValueError("http_config: authorization and basic_auth exclude each other")
        if self.proxy_url and urlsplit(self.proxy_url).scheme not in ("http", "https"):
            raise ValueError("http_config.proxy_url: must begin with http:// or https://")


class HttpSender:
    """Posts to one service. One thread."""

    def __init__(self, config: HttpConfig, opening: Opening, *, timeout_s: float = TIMEOUT_S) -> None:
        with extra_needed("notify"):
            from eventbus.util.http.guarded_http import GuardedClient
        self._config = config
        self._guard = Guard.from_environ(opening.environ)
        tls = config.tls_config
        try:
            context = ssl.create_default_context(cafile=tls.ca_file or None)
            if tls.cert_file:
                context.load_cert_chain(tls.cert_file, tls.key_file or None)
        except OSError as error:  # includes ssl.SSLError
            raise ConfigError(f"tls_config cannot be used: {error}") from error
        guard = self._guard
        if config.proxy_url:  # the connection is to the proxy, which the operator has chosen
            guard = Guard(allow_hosts=frozenset({(urlsplit(config.proxy_url).hostname or "").lower()}))
        self._client = GuardedClient(guard, tls=context, timeout_s=timeout_s, proxy=config.proxy_url)

    def check_url(self, url: str) -> None:
        """Check the field url. Raises: ConfigError: no message may go there."""
        try:
            self._guard.check_url(url)
        except ConfigError as error:
            raise ConfigError(f"url: {error}", cure=error.cure) from None

    def post(self, url: str, body: bytes, headers: Mapping[str, str]) -> tuple[bytes, Mapping[str, str]]:
        """Post *body*. Returns: body and headers of the answer, which was 2xx.

        Raises: SinkUnreachable, Throttled, UnexpectedReply, EventRejected: see `Receiver.send`.
        """
        from eventbus.util.http.guarded_http import error_of

        try:
            self._guard.check_url(url)
            authorized = {"user-agent": "eventbus", **headers, **self._authorization()}
        except ConfigError as error:  # a file of a secret has changed, and may change again
            raise SinkUnreachable(str(error)) from error
        reply = self._client.post(url, authorized, body)
        if refused := error_of(reply, "the receiver"):
            raise refused
        return reply.body, reply.headers

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def _authorization(self) -> dict[str, str]:
        given, basic = self._config.authorization, self._config.basic_auth
        if basic:
            password = secret_of("password", basic.password, basic.password_file)
            word = base64.b64encode(f"{basic.username}:{password}".encode()).decode()
            return {"authorization": f"Basic {word}"}
        if given:
            credentials = secret_of("credentials", given.credentials, given.credentials_file)
            return authorization(given.type, credentials)
        return {}


def authorization(kind: str, credentials: str) -> dict[str, str]:
    """Return the header. Raises: ConfigError: the HTTP client would log credentials that no header can contain."""
    if not (credentials and credentials.isascii() and credentials.isprintable()):
        raise ConfigError("the credentials are empty, or contain something else than printable ASCII")
    return {"authorization": f"{kind} {credentials}"}
