"""An OpenID Connect issuer over TLS: discovery, keys that a test rotates, and tokens signed with them."""

from __future__ import annotations

import json
import ssl
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import jwt
import yaml
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from jwt.algorithms import ECAlgorithm, RSAAlgorithm

from eventbus.api.tls import own_files

DISCOVERY = "/.well-known/openid-configuration"
AUDIENCE = "eventbus"


class Issuer:
    """What it answers, and what it was asked; for any thread."""

    def __init__(self, url: str, ca: str) -> None:
        self.url = url
        self.ca = ca  #: PEM
        self.asked: list[str] = []  #: paths
        self.replies: dict[str, tuple[int, bytes]] = {}  #: status and body in the place of the right ones, by path
        self.open = threading.Event()  #: while it is not set, whoever asks waits
        self.open.set()
        self._private: dict[str, Any] = {}
        self._published: dict[str, dict[str, Any]] = {}
        self.add_key("rsa", rsa_key(0))
        self.add_key("ec", ec.generate_private_key(ec.SECP256R1()))

    def add_key(self, kid: str, key: Any = None, **more: Any) -> None:
        """Publish a key; by default the second RSA key of all issuers. *more*: fields of its JWK."""
        private = key or rsa_key(1)
        maker: Any = RSAAlgorithm if isinstance(private, rsa.RSAPrivateKey) else ECAlgorithm
        self._private[kid] = private
        self._published[kid] = maker.to_jwk(private.public_key(), as_dict=True) | {"kid": kid, "use": "sig"} | more

    def withdraw_key(self, kid: str) -> None:
        """It is published no more, and signs as before."""
        del self._published[kid]

    def public_key(self, kid: str) -> Any:
        return self._private[kid].public_key()

    def claims(self, **changed: Any) -> dict[str, Any]:
        """Those of a good token; one that is None is left out."""
        now = int(time.time())
        good = {"iss": self.url, "aud": AUDIENCE, "sub": "ann", "iat": now, "exp": now + 3600} | changed
        return {name: value for name, value in good.items() if value is not None}

    def token(
        self, kid: str | None = "rsa", algorithm: str = "RS256", *, sign_as: str = "", header: Any = None, **claims: Any
    ) -> str:
        """*sign_as*: the key that really signs."""
        headers = {"kid": kid} | (header or {})
        named = {name: value for name, value in headers.items() if value is not None}
        private = self._private[sign_as or kid or "rsa"]
        return jwt.encode(self.claims(**claims), private, algorithm, headers=named)

    def reply(self, path: str) -> tuple[int, bytes]:
        self.asked.append(path)
        self.open.wait()
        if path in self.replies:
            return self.replies[path]
        match path:
            case "/.well-known/openid-configuration":
                return 200, json.dumps({"issuer": self.url, "jwks_uri": self.url + "/keys"}).encode()
            case "/keys":
                return 200, json.dumps({"keys": list(self._published.values())}).encode()
        return 404, b""


@cache
def rsa_key(_number: int) -> rsa.RSAPrivateKey:
    """Return a key that all issuers share: to make one takes longer than a test."""
    return rsa.generate_private_key(65537, 2048)


@contextmanager
def oidc_issuer(folder: Path) -> Iterator[Issuer]:
    """An issuer on a free port of loopback; its CA is made in *folder*."""
    files = own_files(folder, ["127.0.0.1", "localhost"])
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files.certificate, files.key)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, body = issuer.reply(self.path)
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            if 300 <= status < 400:
                self.send_header("Location", issuer.url + "/elsewhere")
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    class Server(ThreadingHTTPServer):
        daemon_threads = False  # its end waits for them

        def handle_error(self, request: Any, client_address: Any) -> None:
            """Who has hung up, or does not trust us, is no news."""

        def process_request_thread(self, request: Any, client_address: Any) -> None:
            try:
                wrapped = context.wrap_socket(request, server_side=True)
            except OSError:
                request.close()
                return
            super().process_request_thread(wrapped, client_address)

    with Server(("127.0.0.1", 0), Handler) as server:
        issuer = Issuer(f"https://127.0.0.1:{server.server_address[1]}", (folder / "ca.crt").read_text())
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield issuer
        finally:
            issuer.open.set()
            server.shutdown()
            thread.join()


def authenticator(issuer: Issuer, /, **changed: Any) -> dict[str, Any]:
    """An item of `jwt` for this issuer: sub is the user behind `oidc:`, groups are behind `team:`."""
    mappings = {"username": {"claim": "sub", "prefix": "oidc:"}, "groups": {"claim": "groups", "prefix": "team:"}}
    known = {"url": issuer.url, "audiences": [AUDIENCE], "certificateAuthority": issuer.ca}
    return {"issuer": known, "claimMappings": mappings} | changed


def write_configuration(path: Path, every: Sequence[Mapping[str, Any]], **more: Any) -> Path:
    """*path*, with an AuthenticationConfiguration of these items of `jwt`; replaced as a whole."""
    plain = {"apiVersion": "apiserver.config.k8s.io/v1", "kind": "AuthenticationConfiguration", "jwt": list(every)}
    new = path.with_suffix(".new")
    new.write_text(yaml.safe_dump(plain | more))
    new.replace(path)
    return path


__all__ = ["AUDIENCE", "DISCOVERY", "Issuer", "authenticator", "oidc_issuer", "rsa_key", "write_configuration"]
