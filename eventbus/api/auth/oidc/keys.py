"""Fetches and caches the public keys of an issuer."""

from __future__ import annotations

import asyncio
import math
import socket
import threading
from contextlib import suppress
from typing import Any, Final, NamedTuple

import aiohttp
import jwt
import msgspec
from aiohttp.abc import AbstractResolver, ResolveResult

from eventbus.api.auth.oidc.configuration import IssuerConfig, trusting
from eventbus.model.decodable import decodable
from eventbus.util.clock import Clock
from eventbus.util.log import log
from eventbus.util.text import printable

#: Timeout of a fetch in seconds, and of a sign-in that waits for it.
FETCH_S: Final = 5.0
#: Minimum seconds between the starts of two fetches, so that made-up key ids do not cause a fetch each.
AGAIN_S: Final = 10.0
#: Seconds after which keys are fetched again, so that withdrawn keys stop working.
REFRESH_S: Final = 3600.0
#: Maximum size of a document in bytes. Microsoft's keys take about 20 KiB.
_MOST: Final = 512 * 1024
_MOST_KEYS: Final = 256
#: Maximum keys to try for a token without a key id. Such tokens are proper only if the issuer has a single key. A
#: verification blocks the loop for a quarter of a millisecond, and any client can send tokens.
MOST_TRIED: Final = 4
_WELL_KNOWN: Final = "/.well-known/openid-configuration"

#: Asymmetric algorithms by key type, as in the API server. HMAC (HS) and `none` are never accepted.
_RSA: Final = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")
_EC: Final = ("ES256", "ES384", "ES512")
ALGORITHMS: Final = frozenset(_RSA + _EC)


class Key(NamedTuple):
    """A public key. *public*: of `cryptography`; *algorithms*: those that its issuer allows for it."""

    kid: str | None
    public: Any
    algorithms: tuple[str, ...]


class _Discovery(msgspec.Struct, frozen=True):
    issuer: str
    jwks_uri: str


class _KeySet(msgspec.Struct, frozen=True):
    keys: list[dict[str, Any]]


class IssuerKeys:
    """Keys of one issuer, used in the loop. One fetch runs at a time, as a task that survives a canceled sign-in."""

    def __init__(self, issuer: IssuerConfig, *, clock: Clock) -> None:
        self._issuer = issuer
        self._context = trusting(issuer)
        self._clock = clock
        self._begun = self._fetched = -math.inf
        self._fetching: asyncio.Task[None] | None = None
        self.known: tuple[Key, ...] = ()  #: replaced as a whole, and only if the keys differ

    async def find(self, kid: str | None) -> tuple[Key, ...]:
        """Return the candidate keys for a token with key id *kid*. Waits for at most `FETCH_S`."""
        if keys := self._named(kid):
            self.freshen()
            return keys
        self._begin()
        if self._is_fetching and self._fetching is not None:
            await asyncio.wait([self._fetching], timeout=FETCH_S)
        return self._named(kid)

    def freshen(self) -> None:
        """Start a fetch in the background if the keys are old."""
        if self._clock.monotonic() - self._fetched >= REFRESH_S:
            self._begin()

    @property
    def _is_fetching(self) -> bool:
        return self._fetching is not None and not self._fetching.done()

    def _begin(self) -> None:
        """Start a fetch, unless one is running or has started recently."""
        now = self._clock.monotonic()
        if not self._is_fetching and now - self._begun >= AGAIN_S:
            self._begun = now
            self._fetching = asyncio.create_task(self._fetch())

    def _named(self, kid: str | None) -> tuple[Key, ...]:
        return tuple(key for key in self.known if kid is None or key.kid == kid)[:MOST_TRIED]

    async def _fetch(self) -> None:
        try:
            async with asyncio.timeout(FETCH_S):
                keys = await _fetched(self._issuer, self._context)
        except (aiohttp.ClientError, OSError, ValueError, RecursionError) as error:  # a timeout is an OSError
            why = printable(str(error))[:300] or f"no answer within {FETCH_S:.0f} s"
            consequence = "the former keys stay in use" if self.known else "its tokens are refused until then"
            log.warning("the keys of %s cannot be fetched: %s; %s", self._issuer.url, why, consequence)
            return
        self._fetched = self._clock.monotonic()
        if keys != self.known:
            self.known = keys


class _Resolver(AbstractResolver):
    """Resolves names in daemon threads. Asyncio's own resolver would delay the exit of the process."""

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        """See `AbstractResolver`. Raises: OSError: the name has no address."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[list[Any]] = loop.create_future()

        def look_up() -> None:
            result: list[Any] | OSError
            try:
                result = socket.getaddrinfo(host, port, family, socket.SOCK_STREAM)
            except OSError as error:
                result = error
            with suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(tell, result)

        def tell(result: list[Any] | OSError) -> None:
            if future.done():  # it was canceled
                return
            if isinstance(result, OSError):
                future.set_exception(result)
            else:
                future.set_result(result)

        threading.Thread(target=look_up, name="eventbus-issuer", daemon=True).start()
        return [
            ResolveResult(hostname=host, host=str(where[0]), port=port, family=of, proto=protocol, flags=0)
            for of, _, protocol, _, where in await future
        ]

    async def close(self) -> None:
        """See `AbstractResolver`. There is nothing to close."""


async def _fetched(issuer: IssuerConfig, context: Any) -> tuple[Key, ...]:
    """Fetch the discovery document, then the keys. Raises: OSError, ValueError, aiohttp.ClientError."""
    connector = aiohttp.TCPConnector(ssl=context, resolver=_Resolver())
    headers = {"Accept": "application/json", "Accept-Encoding": "identity", "User-Agent": "eventbus"}
    async with aiohttp.ClientSession(connector=connector, headers=headers, auto_decompress=False) as session:
        where = issuer.discovery_url or issuer.url.rstrip("/") + _WELL_KNOWN
        discovery = msgspec.json.decode(await _document(session, where), type=decodable(_Discovery))
        if discovery.issuer != issuer.url:
            raise ValueError(f"{where} is of the issuer {discovery.issuer!r}")
        if not discovery.jwks_uri.startswith("https://"):
            raise ValueError(f"{where} names keys at {discovery.jwks_uri!r}, which is not https")
        return _read_keys(await _document(session, discovery.jwks_uri))


async def _document(session: aiohttp.ClientSession, url: str) -> bytes:
    """Fetch a document. Follows no redirect, which could lead to a URL without TLS."""
    async with session.get(url, allow_redirects=False) as answer:
        if answer.status != 200:
            raise ValueError(f"{url} answers {answer.status}")
        body = bytearray()
        async for chunk in answer.content.iter_any():
            body += chunk
            if len(body) > _MOST:
                raise ValueError(f"{url} is longer than {_MOST} bytes")
        return bytes(body)


def _read_keys(document: bytes) -> tuple[Key, ...]:
    """Read a JWK set; skip keys that cannot verify tokens. Raises: ValueError: no key is left."""
    keys = []
    for plain in msgspec.json.decode(document, type=decodable(_KeySet)).keys[:_MOST_KEYS]:
        try:
            key = _key(plain)
        except (jwt.PyJWTError, TypeError, ValueError):
            continue
        if key is not None:
            keys.append(key)
    if not keys:
        raise ValueError("there is no RSA or EC key to verify signatures with among the issuer's keys")
    return tuple(keys)


def _key(plain: dict[str, Any]) -> Key | None:
    """Read a key; None: it has another use. The issuer decides the algorithms, never the token."""
    algorithm, kid = plain.get("alg"), plain.get("kid")
    possible = {"RSA": _RSA, "EC": _EC}.get(str(plain.get("kty")), ())  # of EC, the curve decides
    if plain.get("use", "sig") != "sig" or not possible or (algorithm is not None and algorithm not in possible):
        return None
    public = jwt.PyJWK({name: value for name, value in plain.items() if name != "d"}).key
    return Key(kid if isinstance(kid, str) else None, public, (algorithm,) if algorithm else possible)
