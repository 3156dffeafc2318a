"""Tokens of a real issuer, over TLS: which are taken, which are refused and why, and what a slow issuer holds up."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import logging
import time
import warnings
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any, TypeVar

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from jwt.algorithms import RSAAlgorithm

from eventbus.api import reread_file
from eventbus.api.auth.access import User
from eventbus.api.auth.oidc import keys, tokens
from eventbus.api.auth.oidc.tokens import JwtUsers
from eventbus.testing.clock import FakeClock
from tests.support.oidc_issuer import (
    AUDIENCE,
    DISCOVERY,
    Issuer,
    authenticator,
    oidc_issuer,
    rsa_key,
    write_configuration,
)

T = TypeVar("T")
ANN = User(name="oidc:ann", groups=("system:authenticated",))


@pytest.fixture(autouse=True)
def looked_at_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reread_file, "LOOK_EVERY_S", 0)


@pytest.fixture(autouse=True)
def _patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine may need longer than a worker waits."""
    monkeypatch.setattr(keys, "FETCH_S", 60.0)


@pytest.fixture
def issuer(tmp_path: Path) -> Iterator[Issuer]:
    with oidc_issuer(tmp_path / "issuer") as found:
        yield found


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(time.time_ns())


@pytest.fixture
def users(issuer: Issuer, clock: FakeClock, tmp_path: Path) -> JwtUsers:
    return JwtUsers(write_configuration(tmp_path / "users.yaml", [authenticator(issuer)]), clock=clock)


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    """In a loop of its own, as a worker has another after it has opened the bus anew; it ends when its sockets have."""

    async def whole() -> T:
        try:
            return await coroutine
        finally:
            sockets: Any = asyncio.get_running_loop()
            while len(sockets._selector.get_map()) > 1:  # one is the loop's own
                await asyncio.sleep(0.01)

    return asyncio.run(whole())


def ask(users: JwtUsers, token: str) -> User | None:
    return run(users.user(token))


def encoded(plain: Any) -> str:
    data = plain if isinstance(plain, bytes) else json.dumps(plain).encode()
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def test_a_token_names_its_user(issuer: Issuer, users: JwtUsers) -> None:
    for kid, algorithm in (("rsa", "RS256"), ("rsa", "RS512"), ("rsa", "PS256"), ("ec", "ES256"), (None, "RS256")):
        assert ask(users, issuer.token(kid, algorithm)) == ANN, (kid, algorithm)
    assert users.refused == {}


def test_a_user_has_the_groups_of_the_token_behind_their_prefix(
    issuer: Issuer, users: JwtUsers, tmp_path: Path
) -> None:
    for groups in (["dev", "ops", "dev"], "dev"):
        found = ask(users, issuer.token(groups=groups))
        named = ("team:dev", "team:ops") if isinstance(groups, list) else ("team:dev",)
        assert found == User(name="oidc:ann", groups=(*named, "system:authenticated"))
    mappings = {"username": {"claim": "name", "prefix": ""}, "uid": {"claim": "sub"}}
    write_configuration(tmp_path / "users.yaml", [authenticator(issuer, claimMappings=mappings)])
    found = ask(users, issuer.token(name="Ann Ä", groups=["dev"]))
    assert found == User(name="Ann Ä", groups=("system:authenticated",), uid="ann")


#: Claims of a token, and the reason why it is refused.
NOT_FOR_US: list[tuple[dict[str, Any], str]] = [
    ({"iss": "https://elsewhere.example"}, "issuer"),
    ({"iss": None}, "issuer"),
    ({"aud": "another"}, "audience"),
    ({"aud": ["another", "third"]}, "audience"),
    ({"aud": None}, "claims"),
    ({"exp": time.time() - 3600}, "expired"),
    ({"exp": None}, "claims"),
    ({"exp": "32503680000"}, "claims"),
    ({"exp": True}, "expired"),
    ({"nbf": time.time() + 3600}, "not_yet_valid"),
    ({"sub": None}, "claims"),
    ({"sub": ""}, "claims"),
    ({"sub": 7}, "claims"),
    ({"sub": "a\ud800"}, "claims"),
    ({"groups": 7}, "claims"),
    ({"groups": ["dev", 7]}, "claims"),
    ({"padding": "x" * tokens.MAX_TOKEN}, "too_long"),
]


def test_a_token_that_is_not_for_us_or_not_for_now_is_refused(issuer: Issuer, users: JwtUsers) -> None:
    for claims, reason in NOT_FOR_US:
        users.refused.clear()
        assert (ask(users, issuer.token(**claims)), users.refused) == (None, {reason: 1}), claims


def test_one_of_several_audiences_is_enough(issuer: Issuer, users: JwtUsers) -> None:
    assert ask(users, issuer.token(aud=["another", AUDIENCE])) == ANN


def test_a_clock_may_be_off(issuer: Issuer, users: JwtUsers, monkeypatch: pytest.MonkeyPatch) -> None:
    now = time.time()
    both = [issuer.token(exp=now - 1800), issuer.token(nbf=now + 1800)]
    assert [ask(users, token) for token in both] == [None, None]
    monkeypatch.setattr(tokens, "LEEWAY_S", 3600)
    assert [ask(users, token) for token in both] == [ANN, ANN]


def test_a_token_that_is_not_signed_by_a_key_of_the_issuer_is_refused(
    issuer: Issuer, users: JwtUsers, tmp_path: Path
) -> None:
    """None of what its head says is believed: no algorithm, and no key that it brings or points at."""
    pem = issuer.public_key("rsa").public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    body = encoded(issuer.claims())

    def by_secret(secret: bytes) -> str:
        signed = f"{encoded({'alg': 'HS256', 'kid': 'rsa'})}.{body}"
        return f"{signed}.{encoded(hmac.new(secret, signed.encode(), hashlib.sha256).digest())}"

    own = rsa_key(2)
    public = RSAAlgorithm.to_jwk(own.public_key(), as_dict=True)
    issuer.add_key("own", own)
    issuer.withdraw_key("own")
    good = issuer.token()
    claimed = {"jwk": public, "jku": f"{issuer.url}/other-keys", "x5u": f"{issuer.url}/x5u"}
    forged = {
        "algorithm": [
            f"{encoded({'alg': 'none', 'kid': 'rsa'})}.{body}.",
            f"{encoded({'alg': 'nOnE', 'kid': 'rsa'})}.{body}.",
            f"{encoded({'alg': ['RS256'], 'kid': 'rsa'})}.{body}.",
            f"{encoded({'kid': 'rsa'})}.{body}.",
            by_secret(pem),
            by_secret(json.dumps(public).encode()),
            issuer.token("rsa", "ES256", sign_as="ec"),
        ],
        "signature": [
            issuer.token("rsa", sign_as="own"),
            issuer.token("rsa", sign_as="own", header=claimed),
            issuer.token(None, sign_as="own", header=claimed),
            good[:-8] + "AAAAAAAA",
            f"{good.split('.')[0]}.{encoded(issuer.claims(sub='root'))}.{good.split('.')[2]}",
        ],
        "unknown_key": [issuer.token("own", header=claimed)],
        "malformed": [
            "a",
            "a.b.c",
            "..",
            "\udcff.a.b",
            f"{encoded([])}.{body}.a",
            f"{encoded({'alg': 'RS256', 'kid': 7})}.{body}.AA",
            f"{encoded(b'[' * 9000)}.{body}.AA",
            issuer.token(header={"crit": ["exp"], "exp": 1}),
        ],
    }
    for reason, every in forged.items():
        for token in every:
            users.refused.clear()
            assert (ask(users, token), users.refused) == (None, {reason: 1}), token
    assert ask(users, good) == ANN
    assert {*issuer.asked} == {DISCOVERY, "/keys"}


def test_an_address_counts_only_if_it_is_verified(issuer: Issuer, users: JwtUsers, tmp_path: Path) -> None:
    mappings = {"username": {"claim": "email", "prefix": ""}}
    write_configuration(tmp_path / "users.yaml", [authenticator(issuer, claimMappings=mappings)])
    for verified, name in ((True, "a@b.example"), (None, "a@b.example"), (False, None), ("true", None)):
        found = ask(users, issuer.token(email="a@b.example", email_verified=verified))
        assert (found.name if found else None) == name


def test_a_required_claim_must_be_there_and_be_the_text(issuer: Issuer, users: JwtUsers, tmp_path: Path) -> None:
    rules = [{"claim": "hd", "requiredValue": "example.com"}]
    write_configuration(tmp_path / "users.yaml", [authenticator(issuer, claimValidationRules=rules)])
    for value, user in (("example.com", ANN), ("example.org", None), (None, None), (["example.com"], None)):
        assert ask(users, issuer.token(hd=value)) == user


@pytest.mark.parametrize("prefix", ["", "sys"])
def test_no_token_makes_a_name_that_is_ours_to_give(
    issuer: Issuer, users: JwtUsers, tmp_path: Path, prefix: str
) -> None:
    mappings = {
        "username": {"claim": "sub", "prefix": prefix},
        "groups": {"claim": "groups", "prefix": prefix},
    }
    write_configuration(tmp_path / "users.yaml", [authenticator(issuer, claimMappings=mappings)])
    masters = "system:masters".removeprefix(prefix)
    assert ask(users, issuer.token(groups=["dev", masters])) is None
    assert ask(users, issuer.token(sub=masters)) is None
    assert users.refused == {"reserved": 2}


def test_a_prefix_of_the_admin_may_make_a_name_of_ours(issuer: Issuer, users: JwtUsers, tmp_path: Path) -> None:
    mappings = {"username": {"claim": "sub", "prefix": "system:node:"}}
    write_configuration(tmp_path / "users.yaml", [authenticator(issuer, claimMappings=mappings)])
    assert ask(users, issuer.token()) == User(name="system:node:ann", groups=("system:authenticated",))


def test_keys_are_asked_for_once_and_again_for_one_that_is_not_known(
    issuer: Issuer, users: JwtUsers, clock: FakeClock
) -> None:
    assert ask(users, issuer.token()) == ask(users, issuer.token("ec", "ES256")) == ANN
    assert issuer.asked == [DISCOVERY, "/keys"]
    issuer.add_key("new", ec.generate_private_key(ec.SECP384R1()))
    assert ask(users, issuer.token("new", "ES384")) is None
    assert (users.refused, len(issuer.asked)) == ({"unknown_key": 1}, 2), "too soon after the last time"
    clock.advance(keys.AGAIN_S)
    assert ask(users, issuer.token("new", "ES384")) == ANN
    for number in range(50):
        issuer.add_key(f"made up {number}")
        issuer.withdraw_key(f"made up {number}")
        assert ask(users, issuer.token(f"made up {number}")) is None
    assert len(issuer.asked) == 4


def test_a_token_that_names_no_key_is_tried_with_few(
    issuer: Issuer, users: JwtUsers, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(keys.MOST_TRIED):
        issuer.add_key(str(number), rsa_key(2 if number == 3 else 1))
    tried, real = [], jwt.decode

    def noted(*given: Any, **more: Any) -> Any:
        tried.append(given)
        return real(*given, **more)

    monkeypatch.setattr(jwt, "decode", noted)
    assert ask(users, issuer.token(None, sign_as="3")) is None
    assert len(tried) == keys.MOST_TRIED
    assert ask(users, issuer.token(None)) == ask(users, issuer.token("3")) == ANN


def test_a_withdrawn_key_holds_no_longer_than_until_keys_are_asked_for_anew(
    issuer: Issuer, users: JwtUsers, clock: FakeClock
) -> None:
    async def sign_in(token: str) -> tuple[User | None, User | None]:
        first = await users.user(token)
        while (fetching := [one for one in asyncio.all_tasks() if one is not asyncio.current_task()]) != []:
            await asyncio.wait(fetching)
        return first, await users.user(token)

    token = issuer.token(exp=time.time() + 8 * 3600)
    assert run(sign_in(token)) == (ANN, ANN)
    issuer.withdraw_key("rsa")
    clock.advance(keys.REFRESH_S)
    assert run(sign_in(token)) == (ANN, None), "nobody waits for what is only refreshed"
    assert users.refused == {"unknown_key": 1}


def test_a_signature_is_verified_once_and_holds_until_the_token_ends(
    issuer: Issuer, users: JwtUsers, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    verified, real = [], tokens._verified

    def noted(*given: Any) -> Any:
        verified.append(given)
        return real(*given)

    monkeypatch.setattr(tokens, "_verified", noted)
    monkeypatch.setattr(tokens, "MAX_KNOWN", 2)
    token, others = issuer.token(), [issuer.token(jti=str(number)) for number in range(2)]
    assert [ask(users, token) for _ in range(3)] == [ANN] * 3
    assert len(verified) == 1
    assert [ask(users, other) for other in others] == [ANN] * 2
    assert ask(users, token) == ANN
    assert len(verified) == 4, "what was used longest ago is forgotten"
    clock.advance(3600 + tokens.LEEWAY_S + 60)  # the tokens are younger than the clock
    ask(users, token)
    assert len(verified) == 5


def test_a_slow_issuer_holds_up_neither_whom_it_knows_nor_those_of_another(
    issuer: Issuer, clock: FakeClock, tmp_path: Path
) -> None:
    async def sign_in(users: JwtUsers, other: Issuer) -> None:
        assert await users.user(issuer.token()) == ANN
        clock.advance(keys.AGAIN_S)
        issuer.add_key("new")
        issuer.open.clear()
        waiting = [asyncio.create_task(users.user(issuer.token("new", jti=str(n)))) for n in range(20)]
        while len(issuer.asked) < 3:
            await asyncio.sleep(0.01)
        assert await users.user(issuer.token(jti="known key")) == ANN
        assert await users.user(other.token()) == ANN
        waiting.pop().cancel()  # its client is gone; the others wait on
        await asyncio.sleep(0)
        assert not any(one.done() for one in waiting)
        issuer.open.set()
        assert set(await asyncio.gather(*waiting)) == {ANN}
        assert len(issuer.asked) == 4, "it is asked once for all of them"

    with oidc_issuer(tmp_path / "other") as other:
        path = write_configuration(tmp_path / "users.yaml", [authenticator(issuer), authenticator(other)])
        run(sign_in(JwtUsers(path, clock=clock), other))


def test_who_waits_while_the_file_changes_signs_in_by_the_new_one(
    issuer: Issuer, users: JwtUsers, tmp_path: Path
) -> None:
    async def sign_in() -> User | None:
        issuer.open.clear()
        waiting = asyncio.create_task(users.user(issuer.token()))
        while not issuer.asked:
            await asyncio.sleep(0.01)
        mappings = {"username": {"claim": "sub", "prefix": "new:"}}
        write_configuration(tmp_path / "users.yaml", [authenticator(issuer, claimMappings=mappings)])
        assert await users.user("another, by whom the file is read") is None
        issuer.open.set()
        return await waiting

    found = run(sign_in())
    assert found is not None
    assert found.name == "new:ann"


def test_who_waits_in_vain_is_refused_and_the_next_try_gets_through(
    issuer: Issuer,
    users: JwtUsers,
    clock: FakeClock,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def wait_in_vain() -> User | None:
        try:
            return await users.user(issuer.token())
        finally:
            issuer.open.set()

    monkeypatch.setattr(keys, "FETCH_S", 0.2)
    issuer.open.clear()
    assert run(wait_in_vain()) is None
    assert users.refused == {"no_keys": 1}
    assert f"the keys of {issuer.url} cannot be fetched" in caplog.text
    monkeypatch.setattr(keys, "FETCH_S", 60.0)
    assert ask(users, issuer.token()) is None, "too soon after the last time"
    clock.advance(keys.AGAIN_S)
    assert ask(users, issuer.token()) == ANN


#: Path, wrong reply, and what is said of it.
WRONG_REPLIES = [
    (DISCOVERY, (500, b""), "answers 500"),
    (DISCOVERY, (302, b""), "answers 302"),
    (DISCOVERY, (200, b"<html>"), "JSON is malformed"),
    (DISCOVERY, (200, b'{"x": ' + b"[" * 100_000), "recursion"),
    (DISCOVERY, (200, b'{"issuer": "https://elsewhere", "jwks_uri": "https://x"}'), "of the issuer"),
    ("/keys", (200, b"x" * (600 * 1024)), "is longer than"),
    ("/keys", (200, b'{"keys": [{"kty": "oct", "k": "c2VjcmV0", "kid": "rsa"}]}'), "there is no RSA or EC key"),
]


def test_an_issuer_that_answers_wrongly_is_told_and_what_was_known_before_holds(
    issuer: Issuer, clock: FakeClock, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = write_configuration(tmp_path / "users.yaml", [authenticator(issuer)])
    for number, (asked, reply, why) in enumerate(WRONG_REPLIES):
        users = JwtUsers(path, clock=clock)
        caplog.clear()
        issuer.replies[asked] = reply
        assert (ask(users, issuer.token()), users.refused) == (None, {"no_keys": 1}), why
        assert why in caplog.text
        del issuer.replies[asked]
        clock.advance(keys.AGAIN_S)
        assert ask(users, issuer.token()) == ANN, why
        issuer.replies[asked] = reply
        clock.advance(keys.AGAIN_S)
        issuer.add_key(f"new {number}")
        assert ask(users, issuer.token(f"new {number}")) is None, why
        assert ask(users, issuer.token(jti="again")) == ANN, why
        del issuer.replies[asked]


def test_keys_come_over_tls_of_an_authority_that_is_trusted_alone(
    issuer: Issuer, clock: FakeClock, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    plain = {"issuer": {"url": issuer.url, "audiences": [AUDIENCE]}}
    users = JwtUsers(write_configuration(tmp_path / "users.yaml", [authenticator(issuer, **plain)]), clock=clock)
    assert ask(users, issuer.token()) is None
    assert "certificate verify failed" in caplog.text
    document = {"issuer": issuer.url, "jwks_uri": issuer.url.replace("https", "http") + "/keys"}
    issuer.replies[DISCOVERY] = (200, json.dumps(document).encode())
    write_configuration(tmp_path / "users.yaml", [authenticator(issuer)])
    assert ask(users, issuer.token()) is None
    assert "which is not https" in caplog.text


def test_a_discovery_url_is_asked_in_the_place_of_the_issuers_own(
    issuer: Issuer, clock: FakeClock, tmp_path: Path
) -> None:
    inside = issuer.url.replace("127.0.0.1", "localhost")
    document = {"issuer": "https://outside.example", "jwks_uri": f"{inside}/keys"}
    issuer.replies["/inside"] = (200, json.dumps(document).encode())
    found = {"url": "https://outside.example", "discoveryURL": f"{inside}/inside", "audiences": [AUDIENCE]}
    every = [authenticator(issuer, issuer=found | {"certificateAuthority": issuer.ca})]
    users = JwtUsers(write_configuration(tmp_path / "users.yaml", every), clock=clock)
    assert ask(users, issuer.token(iss="https://outside.example")) == ANN
    assert issuer.asked == ["/inside", "/keys"]


def test_a_key_serves_for_what_its_issuer_says_alone(issuer: Issuer, users: JwtUsers) -> None:
    issuer.add_key("bound", alg="RS384")
    issuer.add_key("encrypts", use="enc")
    issuer.add_key("short", rsa.generate_private_key(65537, 1024))
    assert ask(users, issuer.token("bound", "RS384")) == ANN
    for kid, reason in (("bound", "algorithm"), ("encrypts", "unknown_key"), ("short", "algorithm")):
        users.refused.clear()
        with warnings.catch_warnings(action="ignore"):  # that a key is short
            token = issuer.token(kid)
        assert (ask(users, token), users.refused) == (None, {reason: 1})


def test_a_changed_file_is_read_again_and_a_broken_one_is_told(
    issuer: Issuer, users: JwtUsers, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    path, token = tmp_path / "users.yaml", issuer.token()
    assert ask(users, token) == ANN
    path.write_text("jwt: [")
    assert [ask(users, token), ask(users, token)] == [ANN, ANN]
    assert caplog.text.count("the content read before is used") == 1
    path.unlink()
    assert ask(users, token) == ANN
    mappings = {"username": {"claim": "sub", "prefix": "b:"}}
    write_configuration(path, [authenticator(issuer, claimMappings=mappings)])
    found = ask(users, token)
    assert found is not None
    assert found.name == "b:ann", "what was remembered by the rules of before counts no more"
    assert len(issuer.asked) == 2, "an issuer that stays the same keeps its keys"
