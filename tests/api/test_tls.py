"""TLS by a CA of our own and by given files, users by certificate, and the kubeconfig for all that."""

from __future__ import annotations

import http.client
import json
import os
import shutil
import ssl
import subprocess
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml

from eventbus.api.tls import Files, ServerTls, own_files
from eventbus.cli.commands.kubeconfig import make_config, merge_config
from eventbus.errors import ConfigError
from tests.acceptance.programs import environment, run
from tests.support.api_replay import EVENTS
from tests.support.api_worker import api_worker
from tests.support.certificates import make_client_certificate

pytestmark = pytest.mark.xdist_group("api tls")
KUBECTL = shutil.which("kubectl")


def ask(url: str, context: ssl.SSLContext, path: str = EVENTS, **headers: str) -> tuple[int, Any]:
    where = urlsplit(url)
    assert where.hostname
    connection = http.client.HTTPSConnection(where.hostname, where.port, context=context, timeout=30)
    try:
        connection.request("GET", path, headers=headers)
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())
    finally:
        connection.close()


def test_a_worker_makes_its_ca_and_a_first_token_and_kubeconfig_knows_both(
    embedded_url: str, prefix: str, tmp_path: Path
) -> None:
    tokens, state = tmp_path / "made" / "tokens.csv", str(tmp_path / "state")
    options = ("--listen", "127.0.0.1:0", "--tls", "--token-file", str(tokens), "--make-token")
    with api_worker(embedded_url, prefix, tmp_path, *options, state_dir=state) as worker:
        token = tokens.read_text().partition(",")[0]
        assert f"the token of admin, in {tokens}: {token}" in worker.program.err
        assert tokens.stat().st_mode & 0o777 == 0o600
        trusted = ssl.create_default_context(cafile=str(tmp_path / "state" / "api" / "ca.crt"))
        assert ask(worker.url, trusted)[0] == 401
        assert ask(worker.url, trusted, Authorization=f"Bearer {token}")[0] == 200
        config = tmp_path / "config"
        words = ("--server", worker.url, "--token-file", str(tokens), "--user", "admin", "--merge", "--use")
        env = environment(embedded_url, prefix, state_dir=state) | {"KUBECONFIG": str(config), "HOME": str(tmp_path)}
        ran = run("kubeconfig", *words, env=env)
        assert (ran.returncode, config.stat().st_mode & 0o777) == (0, 0o600), ran.stderr
        if KUBECTL:
            asked = [KUBECTL, "auth", "whoami", "-o", "json"]
            found = subprocess.run(asked, env={**os.environ, **env}, capture_output=True, text=True, timeout=60)
            assert json.loads(found.stdout)["status"]["userInfo"]["username"] == "admin", found.stderr


def test_a_client_certificate_names_its_user(embedded_url: str, prefix: str, tmp_path: Path) -> None:
    folder = tmp_path / "certificates"
    server = own_files(folder, ["127.0.0.1"])
    certificate, key = make_client_certificate(tmp_path, folder, "/O=ops/O=dev/CN=ann")
    given = ("--tls-cert", str(server.certificate), "--tls-key", str(server.key), "--client-ca", str(folder / "ca.crt"))
    options = ("--listen", "127.0.0.1:0", *given, "--grant", "view=group:dev@default")
    with api_worker(embedded_url, prefix, tmp_path, *options) as worker:
        trusted = ssl.create_default_context(cafile=str(folder / "ca.crt"))
        assert ask(worker.url, trusted)[0] == 401
        trusted.load_cert_chain(certificate, key)
        assert ask(worker.url, trusted)[0] == 200
        code, refused = ask(worker.url, trusted, "/api/v1/events")
        assert (code, 'User "ann" cannot list' in refused["message"]) == (403, True)


def test_workers_that_share_a_folder_share_the_ca_and_a_new_name_makes_a_new_leaf(tmp_path: Path) -> None:
    first = own_files(tmp_path, ["localhost", "127.0.0.1"])
    authority, leaf = (tmp_path / "ca.crt").read_bytes(), first.certificate.read_bytes()
    assert own_files(tmp_path, ["127.0.0.1"]).certificate.read_bytes() == leaf
    assert own_files(tmp_path, ["bus.example"]).certificate.read_bytes() != leaf
    assert (tmp_path / "ca.crt").read_bytes() == authority
    assert all((tmp_path / name).stat().st_mode & 0o777 == 0o600 for name in ("ca.key", "server.key"))


def test_a_renewed_certificate_is_read_and_a_broken_one_is_told(tmp_path: Path) -> None:
    files = own_files(tmp_path, ["localhost"])
    tls = ServerTls(files)
    tls.refresh()
    files.certificate.write_text("nonsense")
    with pytest.raises(ConfigError, match="--tls-cert"):
        tls.refresh()
    with pytest.raises(ConfigError, match="No such file"):
        ServerTls(Files(tmp_path / "nowhere", files.key))


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (("--tls-cert", "a"), "--tls-cert and --tls-key"),
        (("--client-ca", "a"), "--client-ca needs TLS"),
        (("--make-token",), "give both"),
        (("--tls-cert", "/nowhere", "--tls-key", "/nowhere"), "No such file"),
    ],
)
def test_options_that_do_not_go_together_are_refused(
    embedded_url: str, prefix: str, options: tuple[str, ...], problem: str
) -> None:
    ran = run("worker", "api", "--listen", "0", *options, env=environment(embedded_url, prefix))
    assert (ran.returncode, problem in ran.stderr) == (2, True), ran.stderr


def test_a_kubeconfig_is_merged_beside_what_is_there() -> None:
    held = {
        "clusters": [{"name": "prod", "cluster": {"server": "https://prod"}}, {"name": "eventbus", "cluster": {}}],
        "current-context": "prod",
        "preferences": {"colors": True},
    }
    made = make_config("http://127.0.0.1:6480", None, "", "eventbus", "team-a")
    merged = merge_config(held, made, use=False)
    assert [entry["name"] for entry in merged["clusters"]] == ["prod", "eventbus"]
    assert merged["clusters"][1]["cluster"] == {"server": "http://127.0.0.1:6480"}
    assert (merged["current-context"], merged["preferences"]) == ("prod", {"colors": True})
    assert merged["contexts"][0]["context"] == {"cluster": "eventbus", "user": "eventbus", "namespace": "team-a"}
    assert merge_config(held, made, use=True)["current-context"] == "eventbus"


def test_a_kubeconfig_is_printed_where_nothing_is_merged(embedded_url: str, prefix: str) -> None:
    ran = run("kubeconfig", env=environment(embedded_url, prefix))
    assert yaml.safe_load(ran.stdout)["clusters"][0]["cluster"]["server"] == "http://127.0.0.1:6480"
    assert run("kubeconfig", "--use", env=environment(embedded_url, prefix)).returncode == 2
