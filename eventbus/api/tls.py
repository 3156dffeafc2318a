"""TLS of the API's listeners: with given files, or with our own CA, made at the first start."""

from __future__ import annotations

import asyncio
import fcntl
import hashlib
import ipaddress
import os
import ssl
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final, NamedTuple

from eventbus.api.reread_file import RereadFile
from eventbus.errors import ConfigError
from eventbus.util.extras import extra_needed

_CA_LIFE: Final = timedelta(days=3650)
_LEAF_LIFE: Final = timedelta(days=365)
#: A leaf certificate is renewed when it has no more than this left.
_RENEWED: Final = timedelta(days=60)
#: Seconds between two checks of the leaf's expiry.
_RENEW_EVERY_S: Final = 3600.0
#: Start of validity before now, because clients' clocks may be slow.
_EARLIER: Final = timedelta(hours=1)


class Files(NamedTuple):
    """The paths of a certificate and its key."""

    certificate: Path
    key: Path


class ServerTls:
    """The TLS context of listeners, for files that `refresh` reads again when they change.

    Args:   client_ca: authenticates client certificates, which stay optional.
            renew: renews the files if they expire soon. Blocks for a moment. Raises: ConfigError.
    Raises: ConfigError: a file cannot be read, or key and certificate do not match.
    """

    def __init__(
        self, files: Files, *, client_ca: Path | None = None, renew: Callable[[], object] | None = None
    ) -> None:
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.minimum_version = ssl.TLSVersion.TLSv1_2
        self.context.set_alpn_protocols(["http/1.1"])
        self._files = files
        self._renew = renew
        self._renewed_at = time.monotonic()
        # Load into another context first: a key that does not match would leave the one in use half changed.
        self.file = RereadFile(
            "--tls-cert", files.certificate, lambda _path: self._load(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER))
        )
        self._loaded = self.file.value
        self._load(self.context)
        if client_ca is not None:
            self.context.verify_mode = ssl.CERT_OPTIONAL
            try:
                self.context.load_verify_locations(client_ca)
            except (OSError, ssl.SSLError) as error:
                raise ConfigError(f"--client-ca {client_ca}: {error}") from error

    async def refresh(self) -> None:
        """Renew the leaf if it is due, and use changed files for the next connections, if they are valid.

        Raises: ConfigError: the leaf cannot be renewed, or the files have changed once more.
        """
        if self._renew is not None and time.monotonic() - self._renewed_at >= _RENEW_EVERY_S:
            self._renewed_at = time.monotonic()
            await asyncio.to_thread(self._renew)
        await self.file.refresh()
        if self._loaded is not self.file.value:
            # In the loop, so that no handshake starts during the load. The files may have changed after their check.
            self._load(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER))
            self._load(self.context)
            self._loaded = self.file.value

    def _load(self, context: ssl.SSLContext) -> ssl.SSLContext:
        certificate, key = self._files
        try:
            # Without this argument OpenSSL would prompt for a password on the terminal.
            context.load_cert_chain(certificate, key, password="")
        except (OSError, ssl.SSLError) as error:
            raise ConfigError(f"--tls-cert {certificate}, --tls-key {key}: {error}") from error
        return context


def own_files(folder: Path, names: Sequence[str]) -> Files:
    """Return a server certificate for *names*, by the CA in *folder*; make both if they are missing.

    Workers that share the folder share the CA. With equal names they share the certificate. Blocks for a moment.

    Raises: ConfigError: the folder cannot be written, or eventbus[api] is not installed.
    """
    with extra_needed("api", "--tls"):
        import cryptography  # noqa: F401
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with _locked(folder):
            authority = Files(folder / "ca.crt", folder / "ca.key")
            if not all(path.exists() for path in authority):
                _make_authority(authority)
            # One for each set of names, or workers with different names would replace each other's certificate.
            digest = hashlib.sha256("\n".join(sorted(set(names))).encode()).hexdigest()[:16]
            leaf = Files(folder / f"server-{digest}.crt", folder / f"server-{digest}.key")
            if not _serves(leaf, authority, names):
                _make_leaf(leaf, authority, names)
            return leaf
    except (OSError, ValueError) as error:
        raise ConfigError(f"--tls: {folder}: {error}") from error


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _serves(leaf: Files, authority: Files, names: Sequence[str]) -> bool:
    """Return True if the leaf is of this CA, matches its key, has all names, and does not expire soon."""
    from cryptography import x509
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    if not all(path.exists() for path in leaf):
        return False
    key: Any = load_pem_private_key(leaf.key.read_bytes(), None)
    certificate = x509.load_pem_x509_certificate(leaf.certificate.read_bytes())
    issuer = x509.load_pem_x509_certificate(authority.certificate.read_bytes())
    alternative = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return (
        certificate.issuer == issuer.subject
        and certificate.public_key() == key.public_key()
        and set(_alternatives(names)) <= set(alternative)
        and certificate.not_valid_after_utc - datetime.now(UTC) > _RENEWED
    )


def _make_authority(files: Files) -> None:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = _name(f"eventbus CA {os.urandom(4).hex()}")
    usage = x509.KeyUsage(True, False, False, False, False, True, True, False, False)
    builder = _builder(name, name, key.public_key(), _CA_LIFE).add_extension(
        x509.BasicConstraints(ca=True, path_length=0), critical=True
    )
    _write(files, builder.add_extension(usage, critical=True), key, key)


def _make_leaf(files: Files, authority: Files, names: Sequence[str]) -> None:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    issuer = x509.load_pem_x509_certificate(authority.certificate.read_bytes())
    issuer_key: Any = load_pem_private_key(authority.key.read_bytes(), None)
    key = ec.generate_private_key(ec.SECP256R1())
    builder = _builder(_name("eventbus"), issuer.subject, key.public_key(), _LEAF_LIFE)
    builder = builder.add_extension(x509.SubjectAlternativeName(_alternatives(names)), critical=False)
    builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
    builder = builder.add_extension(x509.ExtendedKeyUsage([x509.oid.ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
    builder = builder.add_extension(
        x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key()), critical=False
    )
    _write(files, builder, key, issuer_key)


def _builder(subject: Any, issuer: Any, public_key: Any, life: timedelta) -> Any:
    from cryptography import x509

    now = datetime.now(UTC)
    builder = x509.CertificateBuilder().subject_name(subject).issuer_name(issuer).public_key(public_key)
    builder = (
        builder.serial_number(x509.random_serial_number()).not_valid_before(now - _EARLIER).not_valid_after(now + life)
    )
    return builder.add_extension(x509.SubjectKeyIdentifier.from_public_key(public_key), critical=False)


def _name(text: str) -> Any:
    from cryptography import x509

    return x509.Name([x509.NameAttribute(x509.oid.NameOID.COMMON_NAME, text)])


def _alternatives(names: Sequence[str]) -> list[Any]:
    from cryptography import x509

    entries: list[Any] = []
    for name in dict.fromkeys(names):
        try:
            entries.append(x509.IPAddress(ipaddress.ip_address(name)))
        except ValueError:
            entries.append(x509.DNSName(name))
    return entries


def _write(files: Files, builder: Any, key: Any, issuer_key: Any) -> None:
    """Write each file atomically, and to the disk. Only its owner may read the key."""
    from cryptography.hazmat.primitives import hashes, serialization

    encoding = serialization.Encoding.PEM
    plain = serialization.NoEncryption()
    private = key.private_bytes(encoding, serialization.PrivateFormat.PKCS8, plain)
    signed = builder.sign(issuer_key, hashes.SHA256()).public_bytes(encoding)
    for path, data, mode in ((files.key, private, 0o600), (files.certificate, signed, 0o644)):
        new = path.with_suffix(path.suffix + ".new")
        descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(descriptor)
        new.replace(path)
    folder = os.open(files.key.parent, os.O_RDONLY)
    try:
        os.fsync(folder)  # or the names could be lost in a power failure
    finally:
        os.close(folder)
