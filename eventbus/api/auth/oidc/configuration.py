"""Reads the API server's AuthenticationConfiguration, except the fields that are not supported.

Source: `apiserver.config.k8s.io/v1` and its validation. Departures: no CEL, so no `expression` and no
`userValidationRules`; no `extra`, no `anonymous`.
"""

from __future__ import annotations

import ssl
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec

from eventbus.errors import ConfigError
from eventbus.model.decodable import decodable
from eventbus.util.own_files import check_own_folders, read_own

FLAG: Final = "--authentication-config"
#: Maximum size of the file in bytes.
MAX_BYTES: Final = 1024 * 1024
_VERSIONS: Final = ("apiserver.config.k8s.io/v1", "apiserver.config.k8s.io/v1beta1")
#: The API server's own limit.
_MOST: Final = 64
#: Unsupported fields of the API server, with the alternative to each.
_NOT_SERVED: Final = {
    "expression": "CEL is not served here: give a claim, and its prefix or requiredValue",
    "userValidationRules": "CEL is not served here: leave it out; names that begin with system: are refused anyway",
    "extra": "users have nothing extra here: leave it out",
    "anonymous": "anonymous requests may read only /healthz, /livez and /readyz: leave it out",
    "egressSelectorType": "there are no egress selectors here: leave it out",
}


class _Part(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """A mapping of the file."""


class IssuerConfig(_Part, frozen=True):
    """The issuer that signs the tokens (`url` is their `iss`), and their audiences."""

    url: str
    audiences: tuple[str, ...]
    certificate_authority: str = ""  #: PEM; "": use the machine's CA certificates
    discovery_url: str = msgspec.field(name="discoveryURL", default="")
    audience_match_policy: str = ""


class PrefixedClaim(_Part, frozen=True):
    """A mapped claim, and the prefix of its value."""

    claim: str = ""
    prefix: str | None = None


class PlainClaim(_Part, frozen=True):
    """A claim that is mapped without a prefix."""

    claim: str = ""


class ClaimMappings(_Part, frozen=True):
    """How claims become a user."""

    username: PrefixedClaim
    groups: PrefixedClaim = PrefixedClaim()
    uid: PlainClaim = PlainClaim()


class RequiredClaim(_Part, frozen=True):
    """A required claim, and its value, a string."""

    claim: str
    required_value: str = ""


class JwtConfig(_Part, frozen=True):
    """One issuer, with the mapping and the validation of its claims."""

    issuer: IssuerConfig
    claim_mappings: ClaimMappings
    claim_validation_rules: tuple[RequiredClaim, ...] = ()


class _Configuration(_Part, frozen=True):
    jwt: tuple[JwtConfig, ...]
    api_version: str
    kind: str


def read_configuration(path: Path) -> tuple[JwtConfig, ...]:
    """Read the issuers from a configuration file, YAML or JSON.

    Raises: ConfigError: others can write the file, or a field is invalid, which it names.
    """
    import yaml

    try:
        check_own_folders(path)
        plain = yaml.safe_load(read_own(path, MAX_BYTES).decode("utf-8"))
        for where in _not_served(plain):
            raise ValueError(f"{where}: {_NOT_SERVED[where.rpartition('.')[2]]}")
        configuration = msgspec.convert(plain, decodable(_Configuration))
        if configuration.api_version not in _VERSIONS or configuration.kind != "AuthenticationConfiguration":
            raise ValueError(f"must be apiVersion {_VERSIONS[0]}, kind AuthenticationConfiguration")
        _check(configuration.jwt)
    except (ConfigError, OSError, ValueError, yaml.YAMLError) as error:  # those of msgspec are ValueErrors
        raise ConfigError(f"{FLAG} {path}: {error}") from error
    return configuration.jwt


def trusting(issuer: IssuerConfig) -> ssl.SSLContext:
    """Make the TLS context for *issuer*. Raises: ValueError: its certificateAuthority is invalid."""
    try:
        return ssl.create_default_context(cadata=issuer.certificate_authority or None)
    except ssl.SSLError as error:
        raise ValueError(f"certificateAuthority: give certificates in PEM: {error}") from error


def _not_served(plain: Any, where: str = "") -> Iterator[str]:
    """Yield the path of each unsupported field."""
    if isinstance(plain, Mapping):
        for key, value in plain.items():
            path = f"{where}.{key}" if where else str(key)
            if key in _NOT_SERVED:
                yield path
            else:
                yield from _not_served(value, path)
    elif isinstance(plain, list):
        for number, value in enumerate(plain):
            yield from _not_served(value, f"{where}[{number}]")


def _check(configs: tuple[JwtConfig, ...]) -> None:
    """Raises: ValueError."""
    if not 1 <= len(configs) <= _MOST:
        raise ValueError(f"jwt: give 1 to {_MOST} issuers")
    _check_once("issuer.url", [config.issuer.url for config in configs])
    _check_once(
        "issuer.discoveryURL", [config.issuer.discovery_url for config in configs if config.issuer.discovery_url]
    )
    for number, config in enumerate(configs):
        try:
            _check_issuer(config.issuer)
            _check_claims(config)
        except ValueError as error:
            raise ValueError(f"jwt[{number}].{error}") from error


def _check_issuer(issuer: IssuerConfig) -> None:
    _check_url("issuer.url", issuer.url)
    if issuer.discovery_url:
        _check_url("issuer.discoveryURL", issuer.discovery_url)
        if issuer.discovery_url.rstrip("/") == issuer.url.rstrip("/"):
            raise ValueError("issuer.discoveryURL: must differ from url; it is the whole address of the document")
    if not issuer.audiences or not all(issuer.audiences):
        raise ValueError("issuer.audiences: name at least one, as the tokens have it in aud")
    if issuer.audience_match_policy not in ("MatchAny", "") or (
        len(issuer.audiences) > 1 and not issuer.audience_match_policy
    ):
        raise ValueError("issuer.audienceMatchPolicy: must be MatchAny where there are several audiences")
    try:
        trusting(issuer)
    except ValueError as error:
        raise ValueError(f"issuer.{error}") from error


def _check_claims(config: JwtConfig) -> None:
    mappings = config.claim_mappings
    if not mappings.username.claim:
        raise ValueError("claimMappings.username.claim: name the claim that users are called by, as sub or email")
    for name, mapping in (("username", mappings.username), ("groups", mappings.groups)):
        if mapping.claim and mapping.prefix is None:
            raise ValueError(f'claimMappings.{name}.prefix: is required where claim is set; "" is none')
        if mapping.prefix and not mapping.claim:
            raise ValueError(f"claimMappings.{name}.claim: is required where prefix is set")
    if not all(rule.claim for rule in config.claim_validation_rules):
        raise ValueError("claimValidationRules: each names a claim")
    _check_once("claimValidationRules.claim", [rule.claim for rule in config.claim_validation_rules])


def _check_url(where: str, url: str) -> None:
    parts = urlsplit(url)
    if parts.scheme != "https" or not parts.hostname:
        raise ValueError(f"{where}: must be an address that begins with https://")
    if parts.username is not None or parts.password is not None or parts.query or parts.fragment:
        raise ValueError(f"{where}: must have no user, password, query or fragment")


def _check_once(where: str, values: Iterable[str]) -> None:
    seen = set()
    for value in values:
        if value in seen:
            raise ValueError(f"{where}: {value!r} occurs twice")
        seen.add(value)
