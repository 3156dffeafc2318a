"""Options of TLS that cannot be used: each is told in one line, before anything is lost to it."""

from __future__ import annotations

import shutil
import ssl
import subprocess
from pathlib import Path

import pytest

from eventbus.broker.connection.address import parse_address
from eventbus.broker.connection.connect import make_client
from eventbus.broker.connection.tls import explain, tls_options
from eventbus.errors import BusRefused, ConfigError

HOST = "rediss://host:6379"


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """c.pem and k.pem belong together, other.pem is another key, locked.pem is encrypted, garbage.pem is none."""
    program = shutil.which("openssl")
    if not program:
        pytest.skip("needs openssl")
    folder = tmp_path_factory.mktemp("tls")
    made = ["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-days", "2", "-subj", "/CN=t"]
    for key, certificate, more in (
        ("k.pem", "c.pem", ["-nodes"]),
        ("other.pem", "oc.pem", ["-nodes"]),
        ("locked.pem", "lc.pem", ["-passout", "pass:hush"]),
    ):
        words = [*made, *more, "-keyout", str(folder / key), "-out", str(folder / certificate)]
        subprocess.run([program, *words], check=True, capture_output=True, timeout=30)
    (folder / "garbage.pem").write_text("no certificate\n")
    (folder / "folder").mkdir()
    return folder


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("ssl_min_version=TLSv1.1", r"ssl_min_version is 'TLSv1.1'; valid are TLSv1.2, TLSv1.3"),
        ("ssl_min_version=771", "valid are TLSv1.2, TLSv1.3"),
        ("ssl_cert_reqs=maybe", "valid are required, optional, none"),
        ("ssl_check_hostname=perhaps", "valid are true"),
        ("ssl_ca_certs={0}/none.pem", "there is no such file"),
        ("ssl_ca_certs={0}/folder", "is a folder: a folder of certificates is ssl_ca_path"),
        ("ssl_ca_path={0}/c.pem", "is no folder: a file of certificates is ssl_ca_certs"),
        ("ssl_ca_certs={0}/garbage.pem", "holds no certificate in PEM form"),
        ("ssl_keyfile={0}/k.pem", "ssl_keyfile needs a certificate"),
        ("ssl_certfile={0}/c.pem", "add ssl_keyfile="),
        ("ssl_certfile={0}/folder&ssl_keyfile={0}/k.pem", "is a folder; give a file"),
        ("ssl_certfile={0}/garbage.pem&ssl_keyfile={0}/k.pem", "no certificate and key in PEM form"),
        ("ssl_certfile={0}/c.pem&ssl_keyfile={0}/other.pem", "do not belong together"),
        ("ssl_certfile={0}/lc.pem&ssl_keyfile={0}/locked.pem", "ssl_password is missing or wrong"),
        ("ssl_certfile={0}/lc.pem&ssl_keyfile={0}/locked.pem&ssl_password=wrong", "ssl_password is missing or wrong"),
    ],
)
def test_an_option_that_cannot_be_used_is_told_in_one_line(files: Path, query: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words) as caught:
        make_client(f"{HOST}?{query.format(files)}")
    assert "\n" not in str(caught.value)
    assert "ssl_password=" not in str(caught.value)


def test_options_that_can_be_used_become_those_of_redis_py(files: Path) -> None:
    query = (
        f"ssl_min_version=TLSv1.2&ssl_ca_certs={files}/c.pem&ssl_certfile={files}/lc.pem&ssl_keyfile={files}/locked.pem"
    )
    options = tls_options(parse_address(f"{HOST}?{query}&ssl_password=hush&ssl_check_hostname=false"))
    assert options["ssl_min_version"] is ssl.TLSVersion.TLSv1_2
    assert options["ssl_check_hostname"] is False
    assert options["ssl_cert_reqs"] == "required"
    assert options["ssl_password"] == "hush"


def test_the_least_that_tls_looks_at_is_everything() -> None:
    options = tls_options(parse_address(HOST))
    assert (options["ssl_cert_reqs"], options["ssl_check_hostname"]) == ("required", True)


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        ("TLSV13_ALERT_CERTIFICATE_REQUIRED", "ssl_certfile="),
        ("TLSV1_ALERT_UNKNOWN_CA", "does not trust our certificate"),
        ("TLSV1_ALERT_PROTOCOL_VERSION", "ssl_min_version"),
        ("WRONG_VERSION_NUMBER", "needs a server that speaks TLS"),
    ],
)
def test_a_handshake_that_failed_is_told_with_its_cure(reason: str, words: str) -> None:
    error = ssl.SSLError(1, f"[SSL: {reason}]")
    error.reason = reason
    found = explain(error)
    assert found is not None
    assert found[0] is BusRefused
    assert words in found[1]


@pytest.mark.parametrize(
    ("code", "words"), [(9, "not valid yet"), (10, "has expired"), (18, "not trusted"), (62, "name")]
)
def test_a_certificate_that_is_refused_is_told_with_what_is_wrong_with_it(code: int, words: str) -> None:
    error = ssl.SSLCertVerificationError(1, "certificate verify failed")
    error.verify_code = code
    found = explain(error)
    assert found is not None
    assert words in found[1]
    assert explain(OSError("refused")) is None


def test_the_url_of_an_api_in_place_of_that_of_redis_is_refused_with_the_right_setting() -> None:
    with pytest.raises(ConfigError, match="the url of an API worker goes into EVENTBUS_URL"):
        parse_address("http://localhost:6480")
