"""`eventbus worker api`: the bus over HTTP, for every client of Kubernetes."""

from __future__ import annotations

import logging
import os
import secrets
import socket
import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

import click

from eventbus.errors import ConfigError
from workers.options import metrics_option

if TYPE_CHECKING:
    import ssl

    from eventbus.api.listeners import Address, Listener
    from eventbus.api.tls import ServerTls
    from workers.runtime import Context, Part

log = logging.getLogger("eventbus")

_FILE = click.Path(path_type=Path)
#: How long a thread may keep the interpreter while others want it.
SWITCH_S = 0.0005


@click.command()
@click.option(
    "--listen",
    multiple=True,
    metavar="HOST:PORT|unix:PATH",
    help="Where; may be given again.  [default: 127.0.0.1:6480, and api.sock in the state directory, if that is there]",
)
@click.option("--tls", "own_tls", is_flag=True, help="TLS, by a CA of our own, made in the state directory.")
@click.option("--tls-cert", type=_FILE, metavar="FILE", help="TLS by this certificate, read again when it changes.")
@click.option("--tls-key", type=_FILE, metavar="FILE", help="Its key.")
@click.option("--client-ca", type=_FILE, metavar="FILE", help="Known is whom it certifies: CN is the user, O a group.")
@click.option(
    "--token-file",
    type=_FILE,
    metavar="FILE",
    help='Known is whose token it has: a line is token,user,uid[,"group1,group2"], the token maybe sha256:<hex>.',
)
@click.option("--make-token", is_flag=True, help="Make --token-file, of one admin, where there is none; print it.")
@click.option(
    "--grant",
    "grants",
    multiple=True,
    metavar="ROLE=user:NAME|group:NAME[@NAMESPACE]",
    help="Who may do what: view, record, edit, operator, admin; may be given again.",
)
@click.option("--name", "names", multiple=True, help="A host name that clients use for it; may be given again.")
@click.option(
    "--event-rate-limit",
    "rate_file",
    type=_FILE,
    metavar="FILE",
    help="Bounds of written events: a Configuration of eventratelimit.admission.k8s.io/v1alpha1.",
)
@click.option("--audit", is_flag=True, help="A line in the log for every write: who, what, from where, how it ended.")
@click.option(
    "--import",
    "modules",
    multiple=True,
    metavar="MODULE",
    help="A Python module that registers kinds of yours, which are then served, too; may be given again.",
)
@click.option("--reuse-port", is_flag=True, help="Share the port with other API workers of this bus on this machine.")
@click.option("--any-port", is_flag=True, hidden=True, help="Where a port is taken, a free one: for `up`.")
@metrics_option
def api(
    listen: tuple[str, ...],
    own_tls: bool,
    tls_cert: Path | None,
    tls_key: Path | None,
    client_ca: Path | None,
    token_file: Path | None,
    make_token: bool,
    grants: tuple[str, ...],
    names: tuple[str, ...],
    rate_file: Path | None,
    audit: bool,
    modules: tuple[str, ...],
    reuse_port: bool,
    any_port: bool,
    metrics: str,
) -> None:
    """Serve the bus over HTTP, as the Kubernetes API does: to kubectl, informers, recorders, curl.

    Without users (--token-file, --client-ca) it serves processes of your own user, on this machine: they are admins.
    With users everybody is asked who he is, except by the unix socket. Who may do what says --grant; the group
    system:masters is admin. An address that others reach needs TLS and users.

    \b
    Examples:
      eventbus worker api
      eventbus worker api --listen 0.0.0.0:6443 --tls --name bus.example \\
        --token-file tokens.csv --grant view=group:everybody

    \b
    Exit codes:
      0      asked to end; watches are ended so that their clients go on elsewhere
      2      this bus, or these settings, will not do
      128+n  ended at once by a second signal n: 130 Ctrl-C, 143 SIGTERM
    """
    try:
        from eventbus.api.access import Access, Grant
        from eventbus.api.authentication import Authenticator, TokenFile
        from eventbus.api.event_rate_limit import EventRateLimit, read_limits
        from eventbus.api.listeners import DEFAULT_PORT, Address, check_protected
        from eventbus.api.server import ApiOptions, ApiServer
    except ImportError as error:
        raise ConfigError(f"worker api needs {error.name}: pip install 'eventbus[api]'") from error
    from workers.runtime import run

    for module in modules:
        try:
            import_module(module)
        except ImportError as error:
            raise ConfigError(f"--import {module}: {error}") from error
    if make_token:
        _make_token(token_file)
    addresses = [Address.parse(text) for text in listen or (str(DEFAULT_PORT),)]
    tls = _tls(own_tls, tls_cert, tls_key, client_ca, [*names, *(found.host for found in addresses if found.host)])
    authenticator = Authenticator(
        tokens=TokenFile(token_file) if token_file else None, certificates=client_ca is not None
    )
    check_protected(addresses, tls=tls is not None, authenticator=authenticator.asks)
    options = ApiOptions(
        access=Access(map(Grant.parse, grants)),
        authenticator=authenticator,
        names=(*names, socket.gethostname()),
        tls=tls,
        rates=EventRateLimit(read_limits(rate_file)) if rate_file else None,
        audit=audit,
    )
    context = tls.context if tls else None
    listeners = [_listener(address, context, reuse_port, any_port) for address in addresses]
    if not listen:
        listeners += _default_socket()

    # The loop and the pool's threads hand the interpreter to each other all the time: with 5 ms it is a fifth slower.
    sys.setswitchinterval(SWITCH_S)

    def build(context: Context) -> Part:
        return ApiServer(bus=context.bus, options=options, listeners=listeners)

    try:
        sys.exit(run("eventbus-api", build, metrics=metrics))
    finally:
        for listener in listeners:
            listener.close()


def _tls(
    own: bool, certificate: Path | None, key: Path | None, client_ca: Path | None, names: Sequence[str]
) -> ServerTls | None:
    """Raises: ConfigError."""
    from eventbus.api.tls import Files, ServerTls, own_files
    from eventbus.broker.embedded.server import default_directory

    if (certificate is None) is not (key is None) or (own and certificate):
        raise ConfigError("give --tls, or --tls-cert and --tls-key")
    if certificate and key:
        return ServerTls(Files(certificate, key), client_ca=client_ca)
    if own:
        every = ["localhost", "127.0.0.1", "::1", socket.gethostname(), *names]
        known = [name for name in every if name not in ("0.0.0.0", "::")]
        return ServerTls(own_files(default_directory(os.environ) / "api", known), client_ca=client_ca)
    if client_ca is not None:
        raise ConfigError("--client-ca needs TLS: give --tls, or --tls-cert and --tls-key")
    return None


def _listener(address: Address, tls: ssl.SSLContext | None, reuse_port: bool, any_port: bool) -> Listener:
    """Raises: ConfigError: the address cannot be had."""
    from eventbus.api.listeners import Listener

    try:
        return Listener(address, tls=tls, reuse_port=reuse_port)
    except ConfigError:
        if not any_port or address.path:
            raise
        return Listener(address._replace(port=0), tls=tls, reuse_port=reuse_port)


def _default_socket() -> list[Listener]:
    """The one in the state directory, if there is one, another worker has not got it, and its path is short enough."""
    from eventbus.api.listeners import Address, Listener
    from eventbus.broker.embedded.server import default_directory

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
