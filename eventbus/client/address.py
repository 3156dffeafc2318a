"""Reads the address of an API worker and our credentials from EVENTBUS_URL and related settings."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from eventbus.errors import ConfigError
from eventbus.settings import Settings, read_secret

if TYPE_CHECKING:
    import ssl

VALID = "http://host:port, https://host:port or http+unix:/path"
_SCHEMES = ("http", "https", "http+unix")
_PORTS = {"http": 80, "https": 443}


def is_api_url(url: str) -> bool:
    """Return True if *url* is the address of an API worker rather than of Redis."""
    return url.partition(":")[0].lower() in _SCHEMES


class ApiAddress(msgspec.Struct, frozen=True, kw_only=True):
    """The address of an API worker or a load balancer. *host* is "" if *socket* names a unix socket."""

    url: str  #: for messages; has no password
    host: str
    port: int
    socket: str = ""
    base: str = ""  #: the prefix of every path
    tls: bool = False
    settings: Settings

    def __str__(self) -> str:
        return self.url

    def token(self) -> str:
        """Return the token. Its file is read each time. Raises: ConfigError."""
        path = self.settings.token_file
        if not path:
            return _printable(self.settings.token, "EVENTBUS_TOKEN")
        return _printable(read_secret("EVENTBUS_TOKEN_FILE", path), "EVENTBUS_TOKEN_FILE")

    def tls_context(self) -> ssl.SSLContext:
        """Build the TLS context with the trusted authorities and our certificate, if we have one.

        Raises: ConfigError: a file cannot be used.
        """
        import ssl

        ours = self.settings
        try:
            context = ssl.create_default_context(cafile=ours.ca_file or None)
        except OSError as error:
            raise ConfigError(f"EVENTBUS_CA_FILE cannot be used: {ours.ca_file}: {error}") from error
        if ours.client_cert:
            try:
                # Without a password OpenSSL would ask for one on the terminal.
                context.load_cert_chain(ours.client_cert, ours.client_key or None, password="")
            except OSError as error:
                raise ConfigError(f"EVENTBUS_CLIENT_CERT cannot be used: {ours.client_cert}: {error}") from error
        return context


def parse_api_url(url: str, settings: Settings) -> ApiAddress:
    """Parse *url* without connecting. Raises: ConfigError: it cannot be used; the message names valid forms."""
    from urllib.parse import unquote, urlsplit

    scheme = url.partition(":")[0].lower()
    if scheme not in _SCHEMES:
        raise ConfigError(f"EVENTBUS_URL must be {VALID}; the url of Redis goes into EVENTBUS_REDIS_URL")
    if scheme == "http+unix":
        rest = url.partition(":")[2].removeprefix("//")
        if "?" in rest or "#" in rest:
            raise ConfigError(f"EVENTBUS_URL has a query or a fragment (a path has %3F, %23); valid are {VALID}")
        path = unquote(rest)
        if not path.startswith("/"):
            raise ConfigError(f"the path of a socket begins with a slash: {VALID}")
        path = path.rstrip("/")
        return ApiAddress(url=f"http+unix:{path}", host="", port=0, socket=path, settings=settings)
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port or _PORTS[scheme]
    except ValueError:
        raise ConfigError(f"EVENTBUS_URL cannot be read; valid are {VALID}") from None
    if not host or parts.query or parts.fragment:
        raise ConfigError(f"EVENTBUS_URL has no host, or a query or a fragment; valid are {VALID}")
    if "@" in parts.netloc or "@" in parts.path:  # an @ in the path belongs to a password that has a slash
        raise ConfigError("EVENTBUS_URL must hold no user: set EVENTBUS_TOKEN_FILE, or EVENTBUS_CLIENT_CERT")
    secret = settings.token or settings.token_file or settings.client_cert
    if scheme == "http" and secret and not _is_loopback(host):
        raise ConfigError(f"a token must not travel in the clear: use https://{host}, or a loopback address")
    base = parts.path.rstrip("/")
    shown = f"[{host}]" if ":" in host else host
    return ApiAddress(
        url=f"{scheme}://{shown}:{port}{base}",
        host=host,
        port=port,
        base=base,
        tls=scheme == "https",
        settings=settings,
    )


def safe_api_url(url: str) -> str:
    """Return *url* for messages, or only its scheme if it has a secret."""
    try:
        return parse_api_url(url, Settings()).url
    except ConfigError:
        return f"{url.partition(':')[0]}:***" if is_api_url(url) else "***"


def _is_loopback(host: str) -> bool:
    import ipaddress

    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def _printable(token: str, variable: str) -> str:
    """Raises: ConfigError: the token would break the header."""
    if token and not (token.isascii() and token.isprintable() and " " not in token):
        raise ConfigError(f"{variable} is no token: a token is printable ASCII without blanks")
    return token
