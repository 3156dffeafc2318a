"""`eventbus worker api --authentication-config`: the worker itself, and kubectl, with tokens of a real issuer."""

from __future__ import annotations

import base64
import json
import os
import secrets
import shutil
import ssl
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.programs import environment, run
from tests.api.test_sockets import Client, post
from tests.api.test_tls import ask
from tests.support.api_replay import EVENTS
from tests.support.api_worker import ApiWorker, api_worker, with_users
from tests.support.metrics import value
from tests.support.oidc_issuer import Issuer, authenticator, oidc_issuer, write_configuration
from tests.waiting import eventually

KUBECTL = shutil.which("kubectl")
REVIEW = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
TOKEN_REVIEWS = "/apis/authentication.k8s.io/v1/tokenreviews"
GRANTS = ("--grant", "view=group:team:dev", "--grant", "edit=user:oidc:root")


@pytest.fixture(scope="module")
def issuer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Issuer]:
    with oidc_issuer(tmp_path_factory.mktemp("issuer")) as found:
        yield found


@pytest.fixture(scope="module")
def worker(embedded_url: str, issuer: Issuer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiWorker]:
    """A worker that takes the issuer's tokens, and those of a file beside; it is asked without any."""
    folder = tmp_path_factory.mktemp("oidc")
    path = write_configuration(folder / "users.yaml", [authenticator(issuer)])
    options = (*with_users(folder), "--authentication-config", str(path), *GRANTS)
    with api_worker(embedded_url, f"t{secrets.token_hex(6)}", folder, *options) as found:
        eventually(lambda: found.call("POST", REVIEW, {}, **bearer(issuer.token())).status == 201)  # it has the keys
        yield found


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def test_a_token_signs_in_as_its_user_with_his_groups_and_rights(worker: ApiWorker, issuer: Issuer) -> None:
    token = issuer.token(groups=["dev", "ops"])
    found = worker.call("POST", REVIEW, {}, **bearer(token)).json["status"]["userInfo"]
    assert found == {"username": "oidc:ann", "groups": ["team:dev", "team:ops", "system:authenticated"]}
    assert worker.call("GET", EVENTS, **bearer(token)).status == 200
    refused = worker.call("DELETE", EVENTS, **bearer(token))
    assert (refused.status, 'User "oidc:ann" cannot' in refused.json["message"]) == (403, True)
    assert worker.call("GET", EVENTS, **bearer(issuer.token("ec", "ES256"))).status == 403
    assert worker.call("GET", EVENTS, **bearer("admin-token")).status == 200


def test_a_token_that_is_refused_is_401_and_counted(worker: ApiWorker, issuer: Issuer) -> None:
    assert worker.call("GET", EVENTS, **bearer(issuer.token(aud="another"))).status == 401
    answer = worker.call("GET", EVENTS, **bearer(issuer.token(padding="x" * 17_000)))
    assert (answer.status, answer.json["reason"]) == (401, "Unauthorized")
    assert worker.call("GET", EVENTS).status == 401
    text = worker.call("GET", "/metrics", **bearer("admin-token")).data.decode()
    for reason in ("audience", "too_long"):
        assert value(text, "eventbus_apiserver_jwt_refused_total", reason=reason) == 1
    eventually(lambda: "a token was refused: " in worker.program.err)


def test_a_token_review_knows_it_too(worker: ApiWorker, issuer: Issuer) -> None:
    for token, authenticated in ((issuer.token(groups="dev"), True), (issuer.token(exp=1), False)):
        found = worker.call("POST", TOKEN_REVIEWS, {"spec": {"token": token}}, **bearer("admin-token")).json["status"]
        assert found.get("authenticated", False) is authenticated
        assert not authenticated or found["user"]["username"] == "oidc:ann"


def test_a_watch_over_a_socket_takes_it_as_a_subprotocol(worker: ApiWorker, issuer: Issuer) -> None:
    token = base64.urlsafe_b64encode(issuer.token(groups="dev").encode()).decode().rstrip("=")
    offered = f"base64url.bearer.authorization.k8s.io.{token}, base64.binary.k8s.io"
    client = Client(worker.url, f"{EVENTS}?watch=1&timeoutSeconds=100", f"Sec-WebSocket-Protocol: {offered}")
    try:
        assert client.status == 101
        asked = ApiWorker(worker.program, worker.url, issuer.token(sub="root"))
        post(asked, f"seen.{secrets.token_hex(4)}")
        assert client.read()[1]["type"] == "ADDED"
    finally:
        client.close()


def test_a_page_signs_in_with_one_that_a_cookie_can_hold(worker: ApiWorker, issuer: Issuer) -> None:
    session = "/eventbus/v1/session"
    answer = worker.call("POST", session, {"token": issuer.token(groups="dev")})
    assert (answer.status, answer.json["user"]) == (200, "oidc:ann")
    cookie = answer.headers["Set-Cookie"].partition(";")[0]
    assert worker.call("GET", session, Cookie=cookie).json["signedIn"] is True
    assert worker.call("POST", session, {"token": issuer.token(padding="x" * 4000)}).status == 413


def test_a_slow_issuer_takes_no_place_of_other_requests(
    embedded_url: str, prefix: str, issuer: Issuer, tmp_path: Path
) -> None:
    """Strangers who wait for it would else be 400 reads, and everybody else were told to come again."""
    path = write_configuration(tmp_path / "users.yaml", [authenticator(issuer)])
    options = (*with_users(tmp_path), "--authentication-config", str(path))
    with api_worker(embedded_url, prefix, tmp_path, *options) as worker:
        asked = len(issuer.asked)
        issuer.open.clear()

        def wait(number: int) -> None:
            worker.call("GET", EVENTS, **bearer(issuer.token(jti=str(number))))

        threads = [threading.Thread(target=wait, args=(number,)) for number in range(20)]
        try:
            for thread in threads:
                thread.start()
            eventually(lambda: len(issuer.asked) > asked)
            text = worker.call("GET", "/metrics", **bearer("admin-token")).data.decode()
            assert value(text, "eventbus_apiserver_current_inflight_requests", request_kind="readOnly") == 1
        finally:
            issuer.open.set()
            for thread in threads:
                thread.join()


@pytest.mark.skipif(KUBECTL is None, reason="the machine has no kubectl")
def test_kubectl_signs_in_with_a_token_over_tls(embedded_url: str, prefix: str, issuer: Issuer, tmp_path: Path) -> None:
    assert KUBECTL
    path = write_configuration(tmp_path / "users.yaml", [authenticator(issuer)])
    state = str(tmp_path / "state")
    options = ("--listen", "127.0.0.1:0", "--tls", "--authentication-config", str(path), *GRANTS)
    with api_worker(embedded_url, prefix, tmp_path, *options, state_dir=state) as worker:
        ca = tmp_path / "state" / "api" / "ca.crt"
        env = os.environ | {"KUBECONFIG": "/dev/null", "HOME": str(tmp_path)}

        def kubectl(token: str, *words: str) -> subprocess.CompletedProcess[str]:
            known = [KUBECTL or "", "--server", worker.url, "--certificate-authority", str(ca), "--token", token]
            return subprocess.run([*known, *words], env=env, capture_output=True, text=True, timeout=60)

        token = issuer.token(groups=["dev"])
        trusted = ssl.create_default_context(cafile=str(ca))
        eventually(lambda: ask(worker.url, trusted, **bearer(token))[0] == 200)  # it has the keys
        found = json.loads(kubectl(token, "auth", "whoami", "-o", "json").stdout)["status"]["userInfo"]
        assert found["username"] == "oidc:ann"
        assert found["groups"] == ["team:dev", "system:authenticated"]
        assert kubectl(token, "auth", "can-i", "list", "events").stdout == "yes\n"
        assert kubectl(token, "get", "events").stderr == "No resources found in default namespace.\n"
        assert "Unauthorized" in kubectl(issuer.token(exp=1), "get", "events").stderr
        assert ask(worker.url, trusted)[0] == 401


def test_a_worker_starts_without_its_issuer_and_reads_a_changed_file(
    embedded_url: str, prefix: str, tmp_path: Path
) -> None:
    path = tmp_path / "users.yaml"
    with oidc_issuer(tmp_path / "first") as first, oidc_issuer(tmp_path / "second") as second:
        gone = Issuer("https://127.0.0.1:1", first.ca)
        write_configuration(path, [authenticator(gone), authenticator(first)])
        with api_worker(embedded_url, prefix, tmp_path, "--authentication-config", str(path), *GRANTS) as worker:

            def code(found: Issuer) -> int:
                return worker.call("GET", EVENTS, **bearer(found.token(groups="dev"))).status

            assert [code(gone), code(second)] == [401, 401]
            eventually(lambda: code(first) == 200)
            eventually(lambda: "the keys of https://127.0.0.1:1 cannot be fetched" in worker.program.err)
            path.write_text("jwt: []")
            eventually(lambda: code(first) == 200 and "the content read before is used" in worker.program.err)
            write_configuration(path, [authenticator(second)])
            eventually(lambda: code(second) == 200)
            assert code(first) == 401


@pytest.mark.parametrize(
    ("changed", "problem"),
    [
        ({"userValidationRules": [{"expression": "true"}]}, "jwt[0].userValidationRules: CEL is not served here"),
        ({"claimMappings": {"username": {"claim": "sub"}}}, "jwt[0].claimMappings.username.prefix: is required"),
    ],
)
def test_a_file_that_will_not_do_ends_the_worker_at_its_start(
    embedded_url: str, prefix: str, issuer: Issuer, tmp_path: Path, changed: dict[str, Any], problem: str
) -> None:
    path = write_configuration(tmp_path / "users.yaml", [authenticator(issuer, **changed)])
    ran = run("worker", "api", "--authentication-config", str(path), env=environment(embedded_url, prefix))
    assert (ran.returncode, problem in ran.stderr) == (2, True), ran.stderr


def test_without_the_extra_the_cure_is_named_and_others_do_not_import_it(
    embedded_url: str, prefix: str, issuer: Issuer, tmp_path: Path
) -> None:
    path = write_configuration(tmp_path / "users.yaml", [authenticator(issuer)])
    (tmp_path / "lacking").mkdir()
    (tmp_path / "lacking" / "jwt.py").write_text('raise ModuleNotFoundError("No module named \'jwt\'", name="jwt")\n')
    env = environment(embedded_url, prefix) | {"PYTHONPATH": str(tmp_path / "lacking")}
    ran = run("worker", "api", "--authentication-config", str(path), env=env, afresh=True)
    assert (ran.returncode, "eventbus[oidc] is needed: pip install 'eventbus[oidc]'" in ran.stderr) == (2, True), (
        ran.stderr
    )
    with api_worker(embedded_url, prefix, tmp_path) as worker:
        assert worker.call("GET", EVENTS).status == 200
