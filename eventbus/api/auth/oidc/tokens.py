"""Finds the user of a token that an issuer of `--authentication-config` has signed.

Source: the API server's `plugin/pkg/authenticator/token/oidc`. Departures: names that begin with `system:` are refused
unless the prefix does; a clock may be off by `LEEWAY_S`, also for `exp`; no distributed claims; users are cached until
`exp`, as long as the issuer's keys are the same.
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter, OrderedDict
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import jwt

from eventbus.api.auth.access import AUTHENTICATED, User
from eventbus.api.auth.oidc.configuration import FLAG, JwtConfig, PrefixedClaim, read_configuration
from eventbus.api.auth.oidc.keys import ALGORITHMS, IssuerKeys, Key
from eventbus.api.reread_file import RereadFile
from eventbus.util.clock import Clock, SystemClock
from eventbus.util.log import log
from eventbus.util.text import printable

#: Maximum length of a token in characters. A token with two hundred groups has about 10 000.
MAX_TOKEN: Final = 16 * 1024
#: Seconds by which an issuer's clock may be off.
LEEWAY_S: Final = 10
#: Maximum number of cached tokens, about 1 KB each.
MAX_KNOWN: Final = 4096
#: Minimum seconds between two log lines with the same reason, so that invalid tokens do not flood the log.
_LOG_S: Final = 10.0
#: Prefix of names that tokens must not claim.
RESERVED: Final = "system:"
#: PyJWT's exceptions, with the reason in the metric. The first match counts.
_REASONS: Final[tuple[tuple[type[Exception], str], ...]] = (
    (jwt.InvalidSignatureError, "signature"),
    (jwt.InvalidAlgorithmError, "algorithm"),
    (jwt.InvalidKeyError, "algorithm"),
    (jwt.ExpiredSignatureError, "expired"),
    (jwt.ImmatureSignatureError, "not_yet_valid"),
    (jwt.InvalidAudienceError, "audience"),
    (jwt.InvalidIssuerError, "issuer"),
    (jwt.MissingRequiredClaimError, "claims"),
)


class _Refused(Exception):
    """The token is refused. *reason*: its label in the metric."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class _Issuer(NamedTuple):
    config: JwtConfig
    keys: IssuerKeys


class _Known(NamedTuple):
    """A cached user. *until*: seconds since 1970.  *by*: the issuer's keys at that time."""

    user: User
    until: float
    issuer: _Issuer
    by: tuple[Key, ...]


class JwtUsers:
    """The users of all issuers in the file *path*, which is read again when it changes. Runs in the loop.

    Raises: ConfigError: the file cannot be read, or has an unsupported field. A later failure is only logged, and the
            previous configuration stays in use.
    """

    def __init__(self, path: Path, *, clock: Clock | None = None) -> None:
        self.file = RereadFile(FLAG, path, read_configuration)
        self._configs: tuple[JwtConfig, ...] = ()
        self._clock = clock or SystemClock()
        self._issuers: dict[str, _Issuer] = {}
        self._known: OrderedDict[bytes, _Known] = OrderedDict()
        self._logged: dict[str, float] = {}
        self.refused: Counter[str] = Counter()  #: tokens, by reason
        self._take_configuration()

    async def user(self, token: str) -> User | None:
        """Return the user of *token*; None: it is refused, counted and logged.

        If no cached key fits, wait for the issuer's keys, for at most `keys.FETCH_S`.
        """
        await self.file.refresh()
        self._take_configuration()
        digest = hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()
        known = self._known.get(digest)
        if known is not None and known.by is known.issuer.keys.known and self._now() < known.until:
            known.issuer.keys.freshen()
            self._known.move_to_end(digest)
            return known.user
        try:
            known = await self._find(token)
        except _Refused as refused:
            self._known.pop(digest, None)
            self._tell(refused)
            return None
        self._known[digest] = known
        if len(self._known) > MAX_KNOWN:
            self._known.popitem(last=False)
        return known.user

    async def _find(self, token: str) -> _Known:
        """Raises: _Refused."""
        if len(token) > MAX_TOKEN:
            raise _Refused("too_long", f"it has {len(token)} characters, more than {MAX_TOKEN}")
        kid, name = _unverified(token)
        issuer = self._issuers.get(name)
        if issuer is None:
            raise _Refused("issuer", f"its issuer {printable(name[:200])!r} is not in {FLAG}")
        keys = await issuer.keys.find(kid)
        if self._issuers.get(name) != issuer:  # the file was read again during the wait
            return await self._find(token)
        if not keys:
            if not issuer.keys.known:
                raise _Refused("no_keys", f"the keys of {name} are not known")
            raise _Refused("unknown_key", f"{name} has no key {printable((kid or '')[:200])!r}")
        by = issuer.keys.known
        claims = _verified(token, keys, issuer.config)
        return _Known(_user(claims, issuer.config), claims["exp"] + LEEWAY_S, issuer, by)

    def _tell(self, refused: _Refused) -> None:
        self.refused[refused.reason] += 1
        now = self._clock.monotonic()
        if now - self._logged.get(refused.reason, -math.inf) >= _LOG_S:
            self._logged[refused.reason] = now
            log.warning("a token was refused: %s (%s)", refused, refused.reason)

    def _now(self) -> float:
        return self._clock.time_ns() / 1e9

    def _take_configuration(self) -> None:
        """Apply a changed file. Unchanged issuers keep their keys; all tokens are verified again."""
        if self._configs is self.file.value:
            return
        self._configs = self.file.value
        issuers = {}
        for config in self._configs:
            before = self._issuers.get(config.issuer.url)
            same = before is not None and before.config.issuer == config.issuer
            keys = before.keys if before is not None and same else IssuerKeys(config.issuer, clock=self._clock)
            issuers[config.issuer.url] = _Issuer(config, keys)
        self._issuers = issuers
        self._known.clear()


def _unverified(token: str) -> tuple[str | None, str]:
    """Return the key id and the issuer in *token*, both unverified. Raises: _Refused."""
    try:
        token_parts = jwt.decode_complete(token, options={"verify_signature": False})
    except (jwt.PyJWTError, ValueError) as error:  # text that is not valid UTF-8
        raise _Refused("malformed", f"it cannot be read: {printable(str(error))[:200]}") from None
    algorithm, kid, issuer = (
        token_parts["header"].get("alg"),
        token_parts["header"].get("kid"),
        token_parts["payload"].get("iss"),
    )
    if not isinstance(algorithm, str) or algorithm not in ALGORITHMS:
        raise _Refused("algorithm", f"it is signed by {printable(str(algorithm))[:50]!r}")
    if not isinstance(issuer, str):
        raise _Refused("issuer", "it names no issuer")
    return kid, issuer


def _verified(token: str, keys: tuple[Key, ...], config: JwtConfig) -> Mapping[str, Any]:
    """Return the verified claims of *token*. Raises: _Refused: wrong signature, audience or time."""
    wrong: Exception | None = None
    for key in keys:
        try:
            claims: dict[str, Any] = jwt.decode(
                token,
                key.public,
                algorithms=key.algorithms,
                audience=config.issuer.audiences,
                issuer=config.issuer.url,
                leeway=LEEWAY_S,
                options={
                    "require": ["exp"],
                    "verify_iat": False,
                    "verify_sub": False,
                    "verify_jti": False,
                    "enforce_minimum_key_length": True,
                },
            )
        except (jwt.InvalidSignatureError, jwt.InvalidAlgorithmError, jwt.InvalidKeyError, TypeError) as error:
            if wrong is None or isinstance(error, jwt.InvalidSignatureError):  # the most specific reason
                wrong = error
            continue  # another key may fit
        except (jwt.PyJWTError, ValueError, OverflowError) as error:
            wrong = error
            break
        for name in ("exp", "nbf"):
            if name in claims and (isinstance(claims[name], bool) or not isinstance(claims[name], int | float)):
                raise _Refused("claims", f"its {name} is no number")
        return claims
    reason = next((reason for sort, reason in _REASONS if isinstance(wrong, sort)), "malformed")
    raise _Refused(reason, printable(str(wrong))[:200])


def _user(claims: Mapping[str, Any], config: JwtConfig) -> User:
    """Return the user of *claims*; checks run in the API server's order. Raises: _Refused."""
    mappings = config.claim_mappings
    name = _mapped(_text(claims, mappings.username.claim), mappings.username)
    if mappings.username.claim == "email" and claims.get("email_verified", True) is not True:
        raise _Refused("claims", "email_verified is not true")
    groups: Any = claims.get(mappings.groups.claim, []) if mappings.groups.claim else []
    groups = [groups] if isinstance(groups, str) else groups
    if not isinstance(groups, list) or not all(isinstance(group, str) for group in groups):
        raise _Refused("claims", f"{mappings.groups.claim} is neither a text nor a list of texts")
    uid = _text(claims, mappings.uid.claim) if mappings.uid.claim else ""
    for rule in config.claim_validation_rules:
        if _text(claims, rule.claim, empty=True) != rule.required_value:
            raise _Refused("claims", f"{rule.claim} is not {rule.required_value!r}")
    named = [_mapped(group, mappings.groups) for group in groups if group]
    return User(name=name, groups=(*dict.fromkeys(named), AUTHENTICATED), uid=uid)


def _text(claims: Mapping[str, Any], claim: str, *, empty: bool = False) -> str:
    """Raises: _Refused: the claim is missing, or is not valid text."""
    value = claims.get(claim)
    if not isinstance(value, str) or not (value or empty):
        raise _Refused("claims", f"{claim} is not there, or is no text")
    return value


def _mapped(value: str, mapping: PrefixedClaim) -> str:
    """Return *value* with its prefix. Raises: _Refused: the name is reserved, or not valid UTF-8."""
    prefix = mapping.prefix or ""
    name = prefix + value
    if name.startswith(RESERVED) and not prefix.startswith(RESERVED):
        raise _Refused("reserved", f"{printable(name[:200])!r} of {mapping.claim} begins with {RESERVED}; set a prefix")
    if not name.isascii():
        try:
            name.encode()
        except UnicodeEncodeError:
            raise _Refused("claims", f"{mapping.claim} cannot be written in UTF-8") from None
    return name
