"""TLS by a CA of our own and by given files, users by certificate, and the kubeconfig for all that."""

from __future__ import annotations

import asyncio
import errno
import http.client
import json
import os
import shutil
import ssl
import subprocess
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml
from cryptography import x509

from eventbus.api import reread_file
from eventbus.api import tls as tls_module
from eventbus.api.tls import ServerTls, own_files
from eventbus.cli.commands.kubeconfig import make_config, merge_config, write_config
from eventbus.errors import ConfigError
from tests.acceptance.programs import environment, run
from tests.support.api_replay import EVENTS
from tests.support.api_worker import api_worker
from tests.support.certificates import make_client_certificate

pytestmark = pytest.mark.xdist_group("api tls")
KUBECTL = shutil.which("kubectl")


@pytest.fixture(autouse=True)
def looked_at_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reread_file, "LOOK_EVERY_S", 0)


def refresh(tls: ServerTls) -> None:
    """Reload changed files, as the server does."""
    asyncio.run(tls.refresh())


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


def served(tls: ServerTls, authority: Path, name: str) -> int:
    """The serial number of the certificate that is served to who trusts *authority* and wants *name*."""
    into, out = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = ssl.create_default_context(cafile=str(authority)).wrap_bio(into, out, server_hostname=name)
    server = tls.context.wrap_bio(out, into, server_side=True)
    for side in (client, server, client, server):
        with suppress(ssl.SSLWantReadError):
            side.do_handshake()
    certificate = client.getpeercert(binary_form=True)
    assert certificate
    return x509.load_der_x509_certificate(certificate).serial_number


def test_workers_that_share_a_folder_share_the_ca_and_each_serves_its_own_names(tmp_path: Path) -> None:
    first = own_files(tmp_path, ["localhost", "127.0.0.1"])
    tls, authority = ServerTls(first), (tmp_path / "ca.crt").read_bytes()
    serial = served(tls, tmp_path / "ca.crt", "localhost")
    other = ServerTls(own_files(tmp_path, ["bus.example"]))
    assert served(other, tmp_path / "ca.crt", "bus.example") != serial
    refresh(tls)
    assert served(tls, tmp_path / "ca.crt", "localhost") == serial
    assert own_files(tmp_path, ["127.0.0.1", "localhost"]) == first
    assert (tmp_path / "ca.crt").read_bytes() == authority
    assert all(path.stat().st_mode & 0o777 == 0o600 for path in (tmp_path / "ca.key", first.key))


def test_a_leaf_that_ends_soon_is_renewed_while_it_is_served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tls_module, "_LEAF_LIFE", timedelta(days=59))
    files = own_files(tmp_path, ["localhost"])
    tls = ServerTls(files, renew=lambda: own_files(tmp_path, ["localhost"]))
    serial = served(tls, tmp_path / "ca.crt", "localhost")
    refresh(tls)
    assert served(tls, tmp_path / "ca.crt", "localhost") == serial, "it is looked at once an hour"
    monkeypatch.setattr(tls_module, "_RENEW_EVERY_S", 0)
    refresh(tls)
    assert served(tls, tmp_path / "ca.crt", "localhost") != serial


def test_a_leaf_whose_key_is_of_another_is_made_anew(tmp_path: Path) -> None:
    """As after an end between the two writes."""
    files, other = own_files(tmp_path, ["localhost"]), own_files(tmp_path, ["bus.example"])
    files.key.write_bytes(other.key.read_bytes())
    served(ServerTls(own_files(tmp_path, ["localhost"])), tmp_path / "ca.crt", "localhost")


@pytest.mark.parametrize("broken", ["certificate", "key", "gone"])
def test_a_renewed_certificate_that_cannot_be_used_is_told_once_and_the_one_of_before_served(
    tmp_path: Path, broken: str, caplog: pytest.LogCaptureFixture
) -> None:
    files, other = own_files(tmp_path, ["localhost"]), own_files(tmp_path, ["bus.example"])
    tls = ServerTls(files)
    serial = served(tls, tmp_path / "ca.crt", "localhost")
    match broken:
        case "certificate":
            files.certificate.write_text("nonsense")
        case "key":
            files.certificate.write_bytes(other.certificate.read_bytes())
        case _:
            files.certificate.unlink()
    for _ in range(2):
        refresh(tls)
        assert "--tls-cert" in tls.file.problem
    assert told(caplog) == ["ERROR"]
    assert served(tls, tmp_path / "ca.crt", "localhost") == serial
    if broken == "key":
        files.key.write_bytes(other.key.read_bytes())
        refresh(tls)
        assert served(tls, tmp_path / "ca.crt", "bus.example") != serial


def test_files_that_change_between_their_check_and_their_use_leave_the_former_certificate(tmp_path: Path) -> None:
    files, other = own_files(tmp_path, ["localhost"]), own_files(tmp_path, ["bus.example"])
    tls = ServerTls(files)
    serial = served(tls, tmp_path / "ca.crt", "localhost")
    for mine, its in zip(files, other, strict=True):
        mine.write_bytes(its.read_bytes())
    asyncio.run(tls.file.refresh())  # as a check that ends late
    files.certificate.write_bytes((tmp_path / "ca.crt").read_bytes())
    with pytest.raises(ConfigError):
        refresh(tls)
    assert served(tls, tmp_path / "ca.crt", "localhost") == serial
    files.certificate.write_bytes(other.certificate.read_bytes())
    refresh(tls)
    assert served(tls, tmp_path / "ca.crt", "bus.example") != serial


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    """The levels of the lines about the certificate."""
    return [record.levelname for record in caplog.records if "--tls-cert" in record.message]


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


@pytest.mark.parametrize("text", ["foo: [bar\n", "contexts: 5\n", "users: [5]\n", "- 1\n", f"a: {'[' * 5000}"])
def test_a_kubeconfig_that_cannot_be_merged_is_one_line_and_stays(text: str, tmp_path: Path) -> None:
    path = tmp_path / "config"
    path.write_text(text)
    ran = run("kubeconfig", "--merge", env={**os.environ, "KUBECONFIG": str(path)})
    assert ran.returncode == 2
    assert ran.stderr.startswith(f"error: {path}")
    assert (ran.stderr.count("\n"), "\\x0a" in ran.stderr) == (1, False)
    assert path.read_text() == text


def test_a_kubeconfig_without_room_on_the_disk_leaves_no_part_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_given: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "replace", fail)
    with pytest.raises(ConfigError, match="No space left on device"):
        write_config(tmp_path / "config", "token: secret")
    assert list(tmp_path.iterdir()) == []


def test_a_kubeconfig_is_printed_where_nothing_is_merged(embedded_url: str, prefix: str) -> None:
    ran = run("kubeconfig", env=environment(embedded_url, prefix))
    assert yaml.safe_load(ran.stdout)["clusters"][0]["cluster"]["server"] == "http://127.0.0.1:6480"
    assert run("kubeconfig", "--use", env=environment(embedded_url, prefix)).returncode == 2
