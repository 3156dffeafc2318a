"""docs/team.md: a worker with the options of the page knows its users and grants, and audits the client's address."""

from __future__ import annotations

import hashlib
import re
import shlex
import ssl
import urllib.request
from pathlib import Path

import pytest

from eventbus.api.tls import own_files
from tests.acceptance.programs import Program, environment
from tests.waiting import eventually

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "team.md").read_text("utf-8")


def block_after(comment: str) -> str:
    (found,) = re.findall(rf"```\w*\n# {comment}\n(.*?)```", PAGE, re.DOTALL)
    return str(found)


def test_a_worker_with_the_options_of_the_page_serves_a_program_with_its_grant(
    embedded_url: str, prefix: str, tmp_path: Path
) -> None:
    (text,) = re.findall(r'WORKER_OPTIONS="(--listen.*?)"', PAGE, re.DOTALL)
    options = shlex.split(text.replace("\\\n", " ").replace("/etc/eventbus", str(tmp_path)))
    for name in ("--listen", "--metrics-port"):
        options[options.index(name) + 1] = "127.0.0.1:0"
    options[options.index("--trusted-proxy") + 1] = "127.0.0.1"  # the page's balancer is on another host
    certificate = own_files(tmp_path / "ca", ["bus.example", "127.0.0.1"])
    certificate.certificate.rename(tmp_path / "api.crt")
    certificate.key.rename(tmp_path / "api.key")
    (tmp_path / "users.yaml").write_text(block_after("/etc/eventbus/users.yaml"))
    (tmp_path / "grants").write_text(block_after("/etc/eventbus/grants"))
    digest = hashlib.sha256(b"secret").hexdigest()
    (line,) = re.findall(r'(?m)^echo "(sha256:.*)" >> tokens.csv$', PAGE)
    (tmp_path / "tokens.csv").write_text(line.replace("$hash", digest) + "\n")
    (body,) = re.findall(r"-d '(\{.*\})'", PAGE)
    with Program("worker", "api", *options, env=environment(embedded_url, prefix), folder=tmp_path) as worker:
        eventually(lambda: "the API answers at" in worker.err)
        url = worker.err.partition("the API answers at ")[2].split()[0]
        headers = {
            "Authorization": "Bearer secret",
            "Content-Type": "application/json",
            "X-Forwarded-For": "203.0.113.7",
        }
        asked = urllib.request.Request(f"{url}/eventbus/v1/record", body.encode(), headers)
        trusted = ssl.create_default_context(cafile=str(tmp_path / "ca" / "ca.crt"))
        with urllib.request.urlopen(asked, context=trusted, timeout=60) as reply:
            assert reply.status == 200
        expected = "audit: user=shop from=203.0.113.7 via=127.0.0.1 POST /eventbus/v1/record -> 200"
        eventually(lambda: expected in worker.err)


def test_the_page_names_the_version_of_the_file_that_oidc_reads(tmp_path: Path) -> None:
    pytest.importorskip("jwt")
    from eventbus.api.auth.oidc.configuration import read_configuration

    path = tmp_path / "users.yaml"
    path.write_text(block_after("/etc/eventbus/users.yaml"))
    (issuer,) = read_configuration(path)
    assert "oidc:" in repr(issuer)
