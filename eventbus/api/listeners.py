"""Opens the addresses on which the API listens: parses them, checks their protection, and binds them."""

from __future__ import annotations

import errno
import ipaddress
import os
import socket
import ssl
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from eventbus.errors import ConfigError

#: Of this machine alone, and with no users.
DEFAULT_PORT: Final = 6480
LOOPBACK: Final = "127.0.0.1"
BACKLOG: Final = 1024


class Address(NamedTuple):
    """A TCP address, or the *path* of a unix socket."""

    host: str = ""
    port: int = 0
    path: str = ""

    @classmethod
    def parse(cls, text: str) -> Address:
        """Read `6480`, `host:6480`, `[::1]:6480` or `unix:PATH`. Raises: ConfigError."""
        if text.startswith("unix:"):
            if not (path := text.removeprefix("unix:")):
                raise ConfigError(f"--listen {text!r}: give a path after unix:")
            return cls(path=path)
        host, colon, port = text.rpartition(":")
        if not port.isdecimal() or not port.isascii() or int(port) > 65_535:
            raise ConfigError(f"--listen {text!r}: give HOST:PORT, a port of this machine alone, or unix:PATH")
        return cls(host=host.strip("[]") if colon else LOOPBACK, port=int(port))

    @property
    def is_local(self) -> bool:
        """True if only processes of this machine reach it."""
        if self.path or self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False


class Listener:
    """A bound socket. Clients can connect when a server listens on it. *tls*: None is plain."""

    def __init__(self, address: Address, *, tls: ssl.SSLContext | None, reuse_port: bool) -> None:
        self.tls = None if address.path else tls
        self._path = address.path
        self.socket = _bind_unix(address.path) if address.path else _bind_tcp(address, reuse_port)

    @property
    def url(self) -> str:
        """As clients are given it."""
        if self._path:
            return f"unix:{self._path}"
        host, port = self.socket.getsockname()[:2]
        return f"{'https' if self.tls else 'http'}://{f'[{host}]' if ':' in host else host}:{port}"

    def close(self) -> None:
        """Idempotent."""
        if self.socket.fileno() != -1 and self._path:
            Path(self._path).unlink(missing_ok=True)
        self.socket.close()


def check_protected(addresses: Sequence[Address], *, tls: bool, authenticator: bool) -> None:
    """Raise where an address that others reach is not protected. Raises: ConfigError."""
    for address in addresses:
        if not address.is_local and not (tls and authenticator):
            missing = [name for name, there in (("TLS", tls), ("users", authenticator)) if not there]
            cure = "give --tls or --tls-cert and --tls-key, and --token-file, --authentication-config or --client-ca"
            where = f"--listen {address.host}:{address.port}"
            raise ConfigError(f"{where} is reached by others and has no {' and no '.join(missing)}: {cure}")


def _bind_tcp(address: Address, reuse_port: bool) -> socket.socket:
    try:
        family, kind, protocol, _, where = socket.getaddrinfo(
            address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        bound = socket.socket(family, kind, protocol)
    except OSError as error:
        raise _cannot(f"{address.host}:{address.port}", error) from error
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if reuse_port:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        bound.bind(where)
        bound.setblocking(False)
    except OSError as error:
        bound.close()
        raise _cannot(f"{address.host}:{address.port}", error) from error
    return bound


def _bind_unix(path: str) -> socket.socket:
    """Bind a socket of mode 0600. A socket without a listener is removed first."""
    bound = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        if Path(path).is_socket() and not _answers(path):
            os.unlink(path)
        before = os.umask(0o177)
        try:
            bound.bind(path)
        finally:
            os.umask(before)
        bound.setblocking(False)
    except OSError as error:
        bound.close()
        raise _cannot(f"unix:{path}", error) from error
    return bound


def _answers(path: str) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1)
        return probe.connect_ex(path) not in (errno.ECONNREFUSED, errno.ENOENT)


def _cannot(where: str, error: OSError) -> ConfigError:
    cure = "; another process listens there" if error.errno == errno.EADDRINUSE else ""
    return ConfigError(f"--listen {where}: {error.strerror or error}{cure}")
