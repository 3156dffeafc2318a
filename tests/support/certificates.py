"""Certificates for servers and clients of tests, made by the openssl program."""

from __future__ import annotations

import shutil
import ssl
import subprocess
from pathlib import Path

import pytest


def make_certificate(folder: Path, names: str, *, ca: bool = True) -> tuple[Path, ssl.SSLContext]:
    """Self-signed, for two days. Skips the test where there is no openssl.

    Args:     names: as subjectAltName has them: `DNS:hooks.example,IP:127.0.0.1`.
              ca: False: one that rustls accepts from a server.
    Returns:  the file to trust, and the server's context.
    """
    program = shutil.which("openssl")
    if not program:
        pytest.skip("needs openssl")
    key, certificate = folder / "key.pem", folder / "certificate.pem"
    words = ["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"]
    made = ["-subj", "/CN=test", "-addext", f"subjectAltName={names}", "-keyout", str(key), "-out", str(certificate)]
    made += [] if ca else ["-addext", "basicConstraints=critical,CA:FALSE"]
    subprocess.run([program, *words, *made], check=True, capture_output=True, timeout=50)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    return certificate, context


def make_client_certificate(folder: Path, authority: Path, subject: str) -> tuple[Path, Path]:
    """Made in *folder*, for two days, of the CA in the folder *authority*. Skips the test where there is no openssl.

    Args:     subject: as `/O=dev/CN=ann`: the groups, and the user.
    Returns:  the certificate and its key.
    """
    program = shutil.which("openssl")
    if not program:
        pytest.skip("needs openssl")
    key, request, certificate = (folder / f"client.{ending}" for ending in ("key", "csr", "crt"))
    ec = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")
    made = (program, "req", *ec, "-subj", subject, "-keyout", key, "-out", request)
    ca = ("-CA", authority / "ca.crt", "-CAkey", authority / "ca.key", "-CAcreateserial")
    signed = (program, "x509", "-req", "-in", request, *ca, "-days", "2", "-out", certificate)
    for words in (made, signed):
        subprocess.run(words, check=True, capture_output=True, timeout=50)
    return certificate, key
