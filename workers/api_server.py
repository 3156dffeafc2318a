"""Makes the server of `eventbus worker api` from its command line, and runs it."""

from __future__ import annotations

import os
import secrets
import socket
import ssl
import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click
import msgspec

from eventbus.agent.procfile.orphaned_processes import Page, write_page
from eventbus.api.auth.access import Access, Grant, grants_file
from eventbus.api.auth.authentication import Authenticator, TokenFile
from eventbus.api.auth.proxies import TrustedProxies
from eventbus.api.context import COMPONENT
from eventbus.api.listeners import DEFAULT_PORT, Address, Listener, check_protected
from eventbus.api.server import ApiOptions, ApiServer
from eventbus.api.tls import Files, ServerTls, own_files
from eventbus.broker.bus import Bus
from eventbus.broker.embedded.server import default_directory
from eventbus.errors import ConfigError
from eventbus.util.extras import extra_needed
from eventbus.workers.worker import Context, Part, run

if TYPE_CHECKING:
    from eventbus.api.auth.oidc.tokens import JwtUsers

#: The interpreter's switch interval in seconds.
SWITCH_S = 0.0005


class ApiFlags(NamedTuple):
    """The options of `eventbus worker api`; see its --help."""

    listen: tuple[str, ...]
    own_tls: bool
    tls_cert: Path | None
    tls_key: Path | None
    client_ca: Path | None
    token_file: Path | None
    authentication_config: Path | None
    make_token: bool
    grants: tuple[str, ...]
    grants_file: Path | None
    names: tuple[str, ...]
    audit: bool
    proxies: tuple[str, ...]
    modules: tuple[str, ...]
    reuse_port: bool
    any_port: bool
    page_file: Path | None


def serve(flags: ApiFlags, *, metrics: str) -> int:
    """Serve until a signal. Returns: the exit code. Raises: ConfigError, before anything is served."""
    _import_kinds(flags.modules)
    if flags.make_token:
        _make_token(flags.token_file)
    addresses = [Address.parse(text) for text in flags.listen or (str(DEFAULT_PORT),)]
    options = _options(flags, addresses)
    tls = options.tls.context if options.tls else None
    listeners = [_listener(address, tls, flags.reuse_port, flags.any_port) for address in addresses]
    if not flags.listen:
        listeners += _default_socket()

    # The loop and the pool's threads switch very often. With the default of 5 ms the server is a fifth slower.
    sys.setswitchinterval(SWITCH_S)

    def build(context: Context) -> Part:
        named = msgspec.structs.replace(options, name=context.name)
        return _Server(context.bus, named, listeners, flags.page_file)

    try:
        return run(COMPONENT, build, metrics=metrics)
    finally:
        for listener in listeners:
            listener.close()


class _Server(ApiServer):
    """Writes the address of its page to a file, for `eventbus up`."""

    def __init__(self, bus: Bus, options: ApiOptions, listeners: Sequence[Listener], page_file: Path | None) -> None:
        super().__init__(bus=bus, options=options, listeners=listeners)
        self._bus_id = bus.id
        self._page_file = page_file

    def start(self) -> None:
        super().start()
        if self._page_file is not None and self.page:
            with suppress(OSError):  # the folder is removed when its `up` ends
                write_page(self._page_file, Page(bus=self._bus_id, page=self.page))


def _import_kinds(modules: Sequence[str]) -> None:
    """Raises: ConfigError."""
    for module in modules:
        try:
            import_module(module)
        except ImportError as error:
            raise ConfigError(f"--import {module}: {error}") from error


def _options(flags: ApiFlags, addresses: Sequence[Address]) -> ApiOptions:
    """Raises: ConfigError: other machines can reach an unprotected address, or a file or grant is invalid."""
    tls = _tls(flags, [*flags.names, *(found.host for found in addresses if found.host)])
    authenticator = Authenticator(
        tokens=TokenFile(flags.token_file) if flags.token_file else None,
        jwts=_jwt_users(flags.authentication_config) if flags.authentication_config else None,
        certificates=flags.client_ca is not None,
    )
    file = grants_file(flags.grants_file) if flags.grants_file else None
    check_protected(addresses, tls=tls is not None, authenticator=authenticator.takes_credentials)
    return ApiOptions(
        access=Access(map(Grant.parse, flags.grants), file=file),
        authenticator=authenticator,
        names=(*flags.names, socket.gethostname()),
        tls=tls,
        audit=flags.audit,
        proxies=TrustedProxies(flags.proxies),
        files=tuple(each for each in (file, *authenticator.files, tls.file if tls else None) if each is not None),
    )


def _jwt_users(path: Path) -> JwtUsers:
    """Raises: ConfigError: the file is invalid, or eventbus[oidc] is not installed."""
    with extra_needed("oidc", "--authentication-config"):
        from eventbus.api.auth.oidc.tokens import JwtUsers
    return JwtUsers(path)


def _tls(flags: ApiFlags, names: Sequence[str]) -> ServerTls | None:
    """Raises: ConfigError."""
    certificate, key, client_ca = flags.tls_cert, flags.tls_key, flags.client_ca
    if (certificate is None) is not (key is None) or (flags.own_tls and certificate):
        raise ConfigError("give --tls, or --tls-cert and --tls-key")
    if certificate and key:
        return ServerTls(Files(certificate, key), client_ca=client_ca)
    if flags.own_tls:
        every = ["localhost", "127.0.0.1", "::1", socket.gethostname(), *names]
        known = [name for name in every if name not in ("0.0.0.0", "::")]
        folder = default_directory(os.environ) / "api"
        return ServerTls(own_files(folder, known), client_ca=client_ca, renew=lambda: own_files(folder, known))
    if client_ca is not None:
        raise ConfigError("--client-ca needs TLS: give --tls, or --tls-cert and --tls-key")
    return None


def _listener(address: Address, tls: ssl.SSLContext | None, reuse_port: bool, any_port: bool) -> Listener:
    """Raises: ConfigError: the address cannot be bound."""
    try:
        return Listener(address, tls=tls, reuse_port=reuse_port)
    except ConfigError:
        if not any_port or address.path:
            raise
        return Listener(address._replace(port=0), tls=tls, reuse_port=reuse_port)


def _default_socket() -> list[Listener]:
    """Listen in the state directory; [] if it is missing, its socket is in use, or the path is too long."""
    with suppress(ConfigError, OSError):
        folder = default_directory(os.environ)
        return [Listener(Address(path=str(folder / "api.sock")), tls=None, reuse_port=False)]
    return []


def _make_token(path: Path | None) -> None:
    """Raises: ConfigError."""
    if path is None:
        raise ConfigError("--make-token makes the file of --token-file: give both")
    token = secrets.token_urlsafe(24)
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return
    except OSError as error:
        raise ConfigError(f"--token-file {path}: {error.strerror}") from error
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(f'{token},admin,1,"system:masters"\n')
    click.echo(f"the token of admin, in {path}: {token}", err=True)
