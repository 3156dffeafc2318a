"""Finds the user of a request: by token, cookie, client certificate, or the uid of the local process that connects."""

from __future__ import annotations

import asyncio
import base64
import binascii
import csv
import hashlib
import hmac
import io
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakKeyDictionary

from aiohttp import web

from eventbus.api import status
from eventbus.api.auth.access import AUTHENTICATED, MASTERS, User
from eventbus.api.auth.peers import is_unix, tcp_peer_uid, unix_peer_uid
from eventbus.api.reread_file import RereadFile
from eventbus.api.token_path import is_ping, path_token
from eventbus.errors import ConfigError
from eventbus.util.own_files import check_own_folders, read_own

if TYPE_CHECKING:
    from eventbus.api.auth.oidc.tokens import JwtUsers

#: The user of processes of our own uid on this machine. `admin` may not write pods or read secrets; `operator` may.
LOCAL: Final = User(name="system:local", groups=(MASTERS, AUTHENTICATED))
#: The prefix of a WebSocket protocol that contains a token: pages cannot set the headers of a WebSocket.
BEARER_PROTOCOL: Final = "base64url.bearer.authorization.k8s.io."
_HASHED: Final = "sha256:"
_BROWSER: Final = ("Origin", "Sec-Fetch-Site", "Sec-Fetch-Mode", "Sec-Fetch-Dest")
#: Bytes of a file of tokens.
MAX_TOKEN_FILE: Final = 16 * 1024 * 1024


class TokenFile:
    """The API server's static tokens: `token,user,uid[,"group1,group2"]` a line, read again when the file changes.

    A token may be written as `sha256:<hex>`. Raises: ConfigError: it cannot be read, others can write it, or a line is
    wrong.
    """

    def __init__(self, path: Path) -> None:
        self.file = RereadFile("--token-file", path, _read_tokens)

    async def user(self, token: str) -> User | None:
        """Return the owner of the token. Compares digests, so that the duration reveals nothing about the token."""
        await self.file.refresh()
        asked = hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()
        found = None
        for digest, user in self.file.value.items():
            if hmac.compare_digest(digest, asked):
                found = user
        return found


def _read_tokens(path: Path) -> dict[bytes, User]:
    """The users of a file of tokens, by the digests of their tokens. Raises: ConfigError."""
    try:
        check_own_folders(path)
        text = read_own(path, MAX_TOKEN_FILE).decode("utf-8")
        rows = list(csv.reader(io.StringIO(text, newline="")))
    except (ConfigError, OSError, UnicodeDecodeError, csv.Error) as error:
        raise ConfigError(f"--token-file {path}: {error}") from error
    return dict(_token_of_line(path, number, row) for number, row in enumerate(rows, 1) if row)


def _token_of_line(path: Path, number: int, row: Sequence[str]) -> tuple[bytes, User]:
    token, name, uid = ([*row, "", "", ""])[:3]
    if len(row) < 3 or not token or not name:
        raise ConfigError(f'--token-file {path}, line {number}: write token,user,uid[,"group1,group2"]')
    groups = tuple(group.strip() for group in row[3].split(",") if group.strip()) if len(row) > 3 else ()
    user = User(name=name, uid=uid, groups=(*groups, AUTHENTICATED))
    if not token.startswith(_HASHED):
        return hashlib.sha256(token.encode()).digest(), user
    try:
        digest = bytes.fromhex(token.removeprefix(_HASHED))
    except ValueError:
        digest = b""
    if len(digest) != hashlib.sha256().digest_size:
        raise ConfigError(f"--token-file {path}, line {number}: sha256: is followed by 64 hex digits")
    return digest, user


class Authenticator:
    """Finds the user of a request.

    Args: tokens: the users of --token-file.  jwts: the users of --authentication-config.
          certificates: True: the subjects of client certificates, which TLS has verified, are users.
    """

    def __init__(self, *, tokens: TokenFile | None, jwts: JwtUsers | None = None, certificates: bool = False) -> None:
        self._tokens = tokens
        self._jwts = jwts
        self._certificates = certificates
        self._uids: WeakKeyDictionary[asyncio.BaseTransport, int | None] = WeakKeyDictionary()

    @property
    def takes_credentials(self) -> bool:
        """True if users can authenticate by a token or a certificate, not only by the uid of their process."""
        return self.takes_tokens or self._certificates

    @property
    def takes_tokens(self) -> bool:
        """True if users can authenticate by a token."""
        return self._tokens is not None or self._jwts is not None

    @property
    def files(self) -> list[RereadFile[Any]]:
        """Return the files that are read again when they change."""
        return [users.file for users in (self._tokens, self._jwts) if users is not None]

    @property
    def refused(self) -> Mapping[str, int] | None:
        """Return the number of refused signed tokens by reason; None: signed tokens are not accepted."""
        return None if self._jwts is None else self._jwts.refused

    def connected(self, transport: asyncio.BaseTransport) -> None:
        """Store the uid of the process that has opened a connection, if users are found by their uid.

        Call it when the connection is accepted: later, the client may have closed its socket, which then has no uid.
        """
        if self.takes_credentials or is_unix(transport):
            return
        peer, ours = transport.get_extra_info("peername"), transport.get_extra_info("sockname")
        if peer and ours:
            self._uids[transport] = tcp_peer_uid(peer, ours)

    async def user(self, request: web.Request) -> User:
        """Return the user of *request*. A token is ignored if none are configured. Raises: ApiError: 401, 403."""
        token = _token_of(request) or path_token(request)
        if token is not None and self.takes_tokens:
            found = await self.token_user(token)
            if found is not None:
                return found
            raise status.unauthorized()
        # A ping can be a GET, which any site can make a browser send with the cookie: a browser must send a token.
        if token is None and not is_ping(request) and (found := await self.cookie_user(request)) is not None:
            _check_own_page(request)
            return found
        if is_ping(request) and is_from_browser(request):
            raise status.ApiError(403, "Forbidden", "a ping from a browser needs a token")
        if self._certificates and (certificate := request.get_extra_info("peercert")):
            return _certified(certificate)
        if self._is_own_process(request):
            return LOCAL
        raise status.unauthorized()

    async def token_user(self, token: str) -> User | None:
        """Return the user of *token*: by the file, or by its signed claims. A slow issuer can take seconds."""
        user = None if self._tokens is None else await self._tokens.user(token)
        if user is None and self._jwts is not None:
            user = await self._jwts.user(token)
        return user

    async def cookie_user(self, request: web.Request) -> User | None:
        """Return the user of the cookie; None: there is no cookie, or its token is not valid any more."""
        token = _cookie_token(request) if self.takes_tokens else None
        return None if token is None else await self.token_user(token)

    def _is_own_process(self, request: web.Request) -> bool:
        transport = request.transport
        if transport is None or transport.get_extra_info("sslcontext") is not None:
            return False
        if is_unix(transport):
            return unix_peer_uid(transport.get_extra_info("socket")) == os.getuid()
        return self._uids.get(transport) == os.getuid()


def cookie_name(request: web.Request) -> str:
    """Return the name of the cookie that has the token of the page's user.

    It contains the port, because the ports of a host share their cookies. Browsers accept a name with `__Host-` only
    over TLS, and send this cookie only to the host that has set it.
    """
    port = request.host.rpartition(":")[2]
    port = port if port.isascii() and port.isdecimal() else "443" if request.secure else "80"
    return f"{'__Host-' if request.secure else ''}eventbus-{port[:5]}"


def cookie_value(token: str) -> str:
    """Encode *token*, which may have any characters, for a cookie."""
    return base64.urlsafe_b64encode(token.encode("utf-8", "surrogateescape")).decode().rstrip("=")


def _cookie_token(request: web.Request) -> str | None:
    """Return the token in the cookie of *request*; None: there is none."""
    value = request.cookies.get(cookie_name(request))
    return _decoded(value) if value else None


def _check_own_page(request: web.Request) -> None:
    """Raise unless a write with the cookie comes from our page: browsers send the cookie with requests of all pages.

    Raises: ApiError: 403.
    """
    if request.method in ("GET", "HEAD"):
        return
    # `check_sender` has refused a request with another Origin.
    if "Origin" not in request.headers and request.headers.get("Sec-Fetch-Site") != "same-origin":
        raise status.ApiError(403, "Forbidden", "a write by cookie must name its Origin; or send a token")


def is_from_browser(request: web.Request) -> bool:
    """Return True if *request* has a header that browsers set themselves in requests of pages."""
    return any(name in request.headers for name in _BROWSER)


def _token_of(request: web.Request) -> str | None:
    scheme, _, token = request.headers.get("Authorization", "").partition(" ")
    if scheme.lower() == "bearer" and token.strip():
        return token.strip()
    for protocol in request.headers.get("Sec-WebSocket-Protocol", "").split(","):
        if (encoded := protocol.strip()).startswith(BEARER_PROTOCOL):
            return _decoded(encoded.removeprefix(BEARER_PROTOCOL))
    return None


def _decoded(text: str) -> str:
    try:
        return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)).decode("utf-8", "surrogateescape")
    except (binascii.Error, ValueError):
        return ""


def _certified(certificate: dict[str, Any]) -> User:
    """Return the user of a client certificate: CN is the name, each O a group. Raises: ApiError: 401: no CN."""
    fields = [pair for part in certificate.get("subject", ()) for pair in part]
    names = [value for key, value in fields if key == "commonName"]
    if not names or not names[-1]:
        raise status.unauthorized()
    groups = [value for key, value in fields if key == "organizationName"]
    return User(name=names[-1], groups=(*groups, AUTHENTICATED))
