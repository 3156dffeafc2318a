"""The API server's AuthenticationConfiguration: what is read of it, and how that which is not served is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from eventbus.api.auth.oidc.configuration import (
    ClaimMappings,
    IssuerConfig,
    JwtConfig,
    PlainClaim,
    PrefixedClaim,
    RequiredClaim,
    read_configuration,
)
from eventbus.errors import ConfigError

ISSUER: dict[str, Any] = {"url": "https://id.example", "audiences": ["eventbus"]}
USERNAME: dict[str, Any] = {"claim": "sub", "prefix": ""}
HEAD = {"apiVersion": "apiserver.config.k8s.io/v1", "kind": "AuthenticationConfiguration"}


def read(folder: Path, plain: Any) -> tuple[JwtConfig, ...]:
    path = folder / "users.yaml"
    path.write_text(plain if isinstance(plain, str) else yaml.safe_dump(plain))
    return read_configuration(path)


def one(**changed: Any) -> dict[str, Any]:
    return HEAD | {"jwt": [{"issuer": ISSUER, "claimMappings": {"username": USERNAME}} | changed]}


def mapped(**changed: Any) -> dict[str, Any]:
    return one(claimMappings={"username": USERNAME} | changed)


def test_the_api_servers_file_is_read(tmp_path: Path) -> None:
    text = """
apiVersion: apiserver.config.k8s.io/v1beta1
kind: AuthenticationConfiguration
jwt:
- issuer:
    url: https://id.example/realms/ops
    discoveryURL: https://keycloak.svc/realms/ops/.well-known/openid-configuration
    audiences: [eventbus, kubernetes]
    audienceMatchPolicy: MatchAny
  claimValidationRules:
  - claim: hd
    requiredValue: example.com
  claimMappings:
    username: {claim: email, prefix: "oidc:"}
    groups: {claim: groups, prefix: ""}
    uid: {claim: sub}
"""
    inside = "https://keycloak.svc/realms/ops/.well-known/openid-configuration"
    issuer = IssuerConfig(
        url="https://id.example/realms/ops",
        audiences=("eventbus", "kubernetes"),
        discovery_url=inside,
        audience_match_policy="MatchAny",
    )
    claims = ClaimMappings(
        username=PrefixedClaim(claim="email", prefix="oidc:"),
        groups=PrefixedClaim(claim="groups", prefix=""),
        uid=PlainClaim(claim="sub"),
    )
    rules = (RequiredClaim(claim="hd", required_value="example.com"),)
    assert read(tmp_path, text) == (JwtConfig(issuer=issuer, claim_mappings=claims, claim_validation_rules=rules),)


@pytest.mark.parametrize(
    ("plain", "problem"),
    [
        ("jwt: [", "expected the node content"),
        ("null", "Expected `object`"),
        (HEAD | {"jwt": []}, "jwt: give 1 to 64 issuers"),
        (one() | {"apiVersion": "v1"}, "must be apiVersion apiserver.config.k8s.io/v1"),
        (one() | {"kind": "Configuration"}, "kind AuthenticationConfiguration"),
        (one() | {"jwt": one()["jwt"] * 2}, "issuer.url: 'https://id.example' occurs twice"),
        (one() | {"anonymous": {"enabled": True}}, "anonymous: anonymous requests may read only /healthz"),
        (one(userValidationRules=[]), "jwt[0].userValidationRules: CEL is not served here"),
        (one(claimValidationRules=[{"expression": "true"}]), "jwt[0].claimValidationRules[0].expression: CEL is not"),
        (one(claimValidationRules=[{"claim": "hd", "message": "x"}]), "unknown field `message`"),
        (one(claimValidationRules=[{"claim": ""}]), "jwt[0].claimValidationRules: each names a claim"),
        (one(claimValidationRules=[{"claim": "hd"}] * 2), "jwt[0].claimValidationRules.claim: 'hd' occurs twice"),
        (mapped(username={"expression": "claims.sub"}), "jwt[0].claimMappings.username.expression: CEL is not served"),
        (mapped(extra=[]), "jwt[0].claimMappings.extra: users have nothing extra here: leave it out"),
        (
            mapped(username={"claim": "sub"}),
            'claimMappings.username.prefix: is required where claim is set; "" is none',
        ),
        (mapped(username={"prefix": "a"}), "jwt[0].claimMappings.username.claim: name the claim"),
        (mapped(groups={"claim": "groups"}), "jwt[0].claimMappings.groups.prefix: is required"),
        (mapped(groups={"prefix": "a"}), "jwt[0].claimMappings.groups.claim: is required"),
        (one(claimMappings={}), "missing required field `username`"),
        (one(issuer=ISSUER | {"url": "http://id.example"}), "jwt[0].issuer.url: must be an address that begins with"),
        (one(issuer=ISSUER | {"url": "https://"}), "jwt[0].issuer.url: must be an address"),
        (one(issuer=ISSUER | {"url": "https://a:b@id.example"}), "must have no user, password, query or fragment"),
        (one(issuer=ISSUER | {"url": "https://id.example?a=b"}), "must have no user, password, query or fragment"),
        (one(issuer=ISSUER | {"discoveryURL": "https://id.example/"}), "jwt[0].issuer.discoveryURL: must differ"),
        (one(issuer=ISSUER | {"audiences": []}), "jwt[0].issuer.audiences: name at least one"),
        (one(issuer=ISSUER | {"audiences": ["a", "b"]}), "jwt[0].issuer.audienceMatchPolicy: must be MatchAny"),
        (one(issuer=ISSUER | {"audienceMatchPolicy": "All"}), "jwt[0].issuer.audienceMatchPolicy: must be MatchAny"),
        (one(issuer=ISSUER | {"certificateAuthority": "/ca.crt"}), "jwt[0].issuer.certificateAuthority: give certif"),
        (one(issuer=ISSUER | {"egressSelectorType": "cluster"}), "there are no egress selectors here"),
        (one(issuer=ISSUER | {"clientID": "x"}), "unknown field `clientID`"),
    ],
)
def test_what_is_wrong_or_not_served_is_named_with_its_cure(tmp_path: Path, plain: Any, problem: str) -> None:
    with pytest.raises(ConfigError) as raised:
        read(tmp_path, plain)
    assert str(raised.value).startswith(f"--authentication-config {tmp_path / 'users.yaml'}: ")
    assert problem in str(raised.value)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file"):
        read_configuration(tmp_path / "none.yaml")
