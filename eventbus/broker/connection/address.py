"""Parses the url of the bus: servers, database, user, and options of TLS."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import parse_qs, quote, unquote

import msgspec

from eventbus.errors import ConfigError

#: scheme → (default port, whether it means TLS)
_TCP = {
    "redis": (6379, False),
    "rediss": (6379, True),
    "redis+sentinel": (26379, False),
    "rediss+sentinel": (26379, True),
}
_SOCKET = "unix"
VALID = (
    "redis://host:6379/0, rediss://host:6379/0 (TLS), redis://a:6379,b:6379 (nodes of one cluster, which is recognized "
    "by itself), redis+sentinel://s1:26379,s2:26379/name-of-the-primary/0 and unix:///path/to.sock"
)

#: options of TLS, as redis-py names them, and which of them name a file or a folder
TLS_FILES = ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile")
TLS_FOLDERS = ("ssl_ca_path",)
_TLS = {*TLS_FILES, *TLS_FOLDERS, "ssl_password", "ssl_cert_reqs", "ssl_check_hostname", "ssl_min_version"}
_SENTINEL = {"sentinel_username", "sentinel_password"}
#: allowed parameters of a url's query. redis-py would let it override anything, also retries and reply shapes
_OPTIONS = {"db", "username", "password", *_TLS}


class Endpoint(NamedTuple):
    """The host and port of one server."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Address(msgspec.Struct, frozen=True, kw_only=True):
    """A valid url of the bus, with the password.

    *endpoints* are the server, nodes of a cluster, or the sentinels of *primary*; empty: there is a *socket*. *options*
    are the rest of the query.
    """

    scheme: str
    endpoints: tuple[Endpoint, ...] = ()
    socket: str = ""
    primary: str = ""
    database: int = 0
    username: str = ""
    password: str = ""
    options: Mapping[str, str] = {}

    shown: str  #: for messages, without secrets

    def __repr__(self) -> str:
        return f"Address({self.shown!r})"

    @property
    def tls(self) -> bool:
        """Return True if connections use TLS."""
        return self.scheme.startswith("rediss")


def parse_address(url: str) -> Address:
    """Parse *url*. Raises: ConfigError: it cannot be used; the message holds no secret."""
    parts = _split(url)
    shown = safe_url(url)
    username = parts.query.get("username", parts.username)
    password = parts.query.get("password", parts.password)
    if parts.scheme == _SOCKET:
        if not parts.path:
            raise ConfigError(f"{shown} names no socket; say unix:///path/to.sock, with three slashes")
        endpoints: tuple[Endpoint, ...] = ()
        primary, database, tls = "", parts.query.get("db", ""), False
    else:
        port, tls = _TCP[parts.scheme]
        endpoints = tuple(_endpoint(host, port, shown) for host in parts.hosts.split(","))
        primary, database = _path(parts, shown)
    known = _OPTIONS | (_SENTINEL if primary else set())
    if unknown := parts.query.keys() - known:
        # The text after an unquoted & may be the rest of a password.
        named = "one that is not known (an & in a password is %26)" if "password" in parts.query else sorted(unknown)
        raise ConfigError(f"{shown} has options {named}; valid are {', '.join(sorted(known))}")
    if database and not (database.isdecimal() and database.isascii()):
        raise ConfigError(f"{shown} must end with the number of a database, or nothing")
    options = {name: value for name, value in parts.query.items() if name not in ("db", "username", "password")}
    if not tls and (stray := sorted(options.keys() & _TLS)):
        raise ConfigError(f"{shown} has {stray[0]} and speaks no TLS: use rediss://, or leave it out")
    return Address(
        scheme=parts.scheme,
        endpoints=endpoints,
        socket=unquote(parts.path) if parts.scheme == _SOCKET else "",
        primary=primary,
        database=int(database or 0),
        username=username,
        password=password,
        options=options,
        shown=shown,
    )


def with_password(url: str, password: str | None) -> str:
    """Return *url* with *password*, unless it has its own. Raises: ConfigError: the url cannot be used."""
    if not password or parse_address(url).password:
        return url
    scheme, _, rest = url.partition("://")
    end = min((rest.find(sign) for sign in "/?#" if sign in rest), default=len(rest))
    user, _, hosts = rest[:end].rpartition("@")
    return f"{scheme}://{user.rstrip(':')}:{quote(password, safe='')}@{hosts}{rest[end:]}"


def safe_url(url: str) -> str:
    """Return *url* for messages: scheme, user, hosts, port, path; never a password, even if *url* cannot be parsed.

    A user without a password is not shown: usually it is the password in the wrong place.
    """
    scheme, separator, _ = url.partition("://")
    if not separator or not scheme.replace("+", "").replace("-", "").isalnum():
        return "***"
    try:
        parts = _split(url)
        for host in parts.hosts.split(",") if parts.scheme in _TCP else ():
            _endpoint(host, 0, "")
    except ConfigError:
        return f"{scheme}://***"
    named = bool(parts.password or "password" in parts.query) or not parts.user_part
    user = (parts.user_part.partition(":")[0] if named else "***") + "@" if "@" in parts.authority else ""
    return f"{scheme}://{user}{parts.hosts}{parts.path}"


class _Parts(NamedTuple):
    scheme: str
    authority: str
    path: str
    query: Mapping[str, str]

    @property
    def user_part(self) -> str:
        return self.authority.rpartition("@")[0]

    @property
    def hosts(self) -> str:
        return self.authority.rpartition("@")[2]

    @property
    def username(self) -> str:
        return unquote(self.user_part.partition(":")[0])

    @property
    def password(self) -> str:
        return unquote(self.user_part.partition(":")[2])


def _split(url: str) -> _Parts:
    """Split by hand, because urlsplit has no list of hosts. Raises: ConfigError."""
    scheme, separator, rest = url.partition("://")
    if not separator or scheme not in (*_TCP, _SOCKET):
        given = f"{scheme}://" if separator else "no scheme"
        over_http = (
            "; the url of an API worker goes into EVENTBUS_URL" if scheme in ("http", "https", "http+unix") else ""
        )
        raise ConfigError(f"the url of the bus (EVENTBUS_REDIS_URL) has {given}; valid are {VALID}{over_http}")
    before, _, fragment = rest.partition("#")
    place, _, query = before.partition("?")
    authority, slash, path = place.partition("/")
    # An unquoted /, ? or # in a password ends the hosts too early; then the @ comes after it.
    stray = bool(authority) and "@" in path + query
    if fragment or "#" in rest or stray or set(authority.rpartition("@")[0]) & set("[]"):
        raise _unreadable(scheme)
    values = {name: separator[-1] for name, separator in parse_qs(query).items()}
    return _Parts(scheme, authority, slash + path, values)


def _endpoint(text: str, default: int, shown: str) -> Endpoint:
    if text.startswith("["):
        host, closed, port = text[1:].partition("]")
        well = bool(closed) and (not port or port.startswith(":"))
        port = port[1:]
    else:
        host, _, port = text.partition(":")
        well = not set(host) & set("[]%\\ ")
    if not well or (port and not (port.isdecimal() and port.isascii() and int(port) < 65_536)):
        raise _unreadable(shown.partition("://")[0])
    return Endpoint(host or "localhost", int(port or default))


def _path(parts: _Parts, shown: str) -> tuple[str, str]:
    """Return the sentinels' name of the primary, and the database; '' for a missing one."""
    names = [unquote(name) for name in parts.path.strip("/").split("/") if name]
    if "sentinel" not in parts.scheme:
        return "", parts.query.get("db", "/".join(names))
    if not names or len(names) > 2:
        raise ConfigError(
            f"{shown} must have the name of the primary at the sentinels: redis+sentinel://host:26379/NAME/0"
        )
    return names[0], parts.query.get("db", "".join(names[1:]))


def _unreadable(scheme: str) -> ConfigError:
    return ConfigError(
        f"the url of the bus ({scheme}://***) cannot be read: is the port a number? "
        "In a password / ? # @ [ ] must be quoted as %2F %3F %23 %40 %5B %5D, or use EVENTBUS_REDIS_PASSWORD"
    )
