"""`eventbus worker api`: the bus over HTTP, for every client of Kubernetes."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from eventbus.util.extras import extra_needed
from eventbus.workers.options import metrics_option

_FILE = click.Path(path_type=Path)


@click.command()
@click.option(
    "--listen",
    multiple=True,
    metavar="HOST:PORT|unix:PATH",
    help="Address to serve; may be repeated.  [default: 127.0.0.1:6480, and api.sock in the state directory, if "
    "it exists]",
)
@click.option(
    "--tls",
    "own_tls",
    is_flag=True,
    help="TLS with a certificate of an own CA, which is created in the state directory.",
)
@click.option("--tls-cert", type=_FILE, metavar="FILE", help="TLS with this certificate; read again when it changes.")
@click.option("--tls-key", type=_FILE, metavar="FILE", help="Key of that certificate.")
@click.option(
    "--client-ca",
    type=_FILE,
    metavar="FILE",
    help="Accept client certificates that this CA has signed: CN is the user, O a group.",
)
@click.option(
    "--token-file",
    type=_FILE,
    metavar="FILE",
    help='Accept the tokens of this file: a line is token,user,uid[,"group1,group2"]; the token may be sha256:<hex>.',
)
@click.option(
    "--authentication-config",
    type=_FILE,
    metavar="FILE",
    help="Accept tokens that the OpenID Connect issuers of this file have signed: an AuthenticationConfiguration of "
    "apiserver.config.k8s.io/v1 (pip install 'eventbus[oidc]').",
)
@click.option(
    "--make-token", is_flag=True, help="If --token-file does not exist, create it with one admin, and print the token."
)
@click.option(
    "--grant",
    "grants",
    multiple=True,
    metavar="ROLE=user:NAME|group:NAME[@NAMESPACE]",
    help="Give a user or group a role: view, record, edit, operator, admin; may be repeated.",
)
@click.option(
    "--grants-file",
    type=_FILE,
    metavar="FILE",
    help="More grants, one a line as for --grant; # begins a comment. It is read again when it changes.",
)
@click.option("--name", "names", multiple=True, help="A host name that clients use for it; may be repeated.")
@click.option("--audit", is_flag=True, help="Log a line for every write: user, object, client address, result.")
@click.option(
    "--trusted-proxy",
    "proxies",
    multiple=True,
    metavar="NETWORK",
    help="A balancer that appends the client's address to X-Forwarded-For, for --audit; may be repeated.",
)
@click.option(
    "--import",
    "modules",
    multiple=True,
    metavar="MODULE",
    help="A Python module that registers your own kinds, which are then served as well; may be repeated.",
)
@click.option("--reuse-port", is_flag=True, help="Share the port with other API workers of this bus on this machine.")
@click.option("--any-port", is_flag=True, hidden=True, help="Use a free port if the port is in use: for `up`.")
@click.option("--page-file", type=_FILE, hidden=True, help="Write the address of the page there: for `up`.")
@metrics_option
def api(metrics: str, **given: Any) -> None:
    """Serve the bus over HTTP, as the Kubernetes API does: to kubectl, informers, recorders, curl.

    Without users (--token-file, --authentication-config, --client-ca) it serves only processes of your own user on
    this machine, as admins. With users, all clients must authenticate, except over the unix socket. --grant assigns
    roles; the group system:masters is admin. An address that other machines can reach needs TLS and users. Needs pip
    install 'eventbus[api]'.

    \b
    Examples:
      eventbus worker api
      eventbus worker api --listen 0.0.0.0:6443 --tls --name bus.example \\
        --token-file tokens.csv --grant view=group:developers

    \b
    Exit codes:
      0      stopped by a signal; watches are closed, so that their clients reconnect elsewhere
      2      this bus, or these settings, cannot be used
      128+n  ended at once by a second signal n: 130 Ctrl-C, 143 SIGTERM
    """
    with extra_needed("api"):
        from eventbus.workers.api_server import ApiFlags, serve
    sys.exit(serve(ApiFlags(**given), metrics=metrics))
