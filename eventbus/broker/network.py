"""How the way to the server is guarded: TLS, and who gets in without a name."""

from __future__ import annotations

import ipaddress
import socket
from urllib.parse import parse_qs, urlsplit

from eventbus.broker.connection import make_client
from eventbus.broker.findings import Finding, ok, warning


def check_tls(url: str) -> Finding:
    """Passwords and events cross a network in the open, or not."""
    parts = urlsplit(url)
    if parts.scheme == "rediss":
        if parse_qs(parts.query).get("ssl_cert_reqs") == ["none"]:
            cure = "take ssl_cert_reqs=none out of the url; a private authority: ?ssl_ca_certs=/path/ca.pem"
            return warning("tls", "TLS without looking at the certificate: anybody can pose as the server", cure)
        return ok("tls", "TLS")
    if is_local(url):
        return ok("tls", "not needed: the server is on this machine")
    cure = "let the server speak TLS (tls-port), and use rediss://"
    return warning("tls", "passwords and events cross the network unencrypted", cure)


def check_default_user(url: str) -> Finding:
    """Whether the all-powerful user `default` is open to whoever reaches the server."""
    parts = urlsplit(url)
    named = bool(parts.username) and parts.username != "default"
    if is_local(url) and not named:
        return ok("user", "default, on this machine")
    if named and not _opens(_without_credentials(url)):
        return ok("user", f"{parts.username}; default is closed")
    cure = "eventbus acl --role … makes users; then ACL SETUSER default off"
    if named:
        return warning("user", "the user `default` is open to everybody, and may do everything", cure)
    who = "everybody who has the password" if parts.password else "everybody"
    return warning("user", f"{who} is the user `default`, who may do everything", cure)


def is_local(url: str) -> bool:
    """Whether the server is on this machine: a socket, or a name that leads to loopback addresses only."""
    host = urlsplit(url).hostname
    if url.startswith("unix:") or not host:
        return True
    try:
        addresses = {str(found[4][0]) for found in socket.getaddrinfo(host, None)}
    except OSError:
        return False
    return all(ipaddress.ip_address(address.partition("%")[0]).is_loopback for address in addresses)


def _opens(url: str) -> bool:
    from redis.exceptions import RedisError

    client = make_client(url, name="eventbus-doctor")
    try:
        return bool(client.ping())
    except RedisError:
        return False
    finally:
        client.close()


def _without_credentials(url: str) -> str:
    parts = urlsplit(url)
    query = "&".join(part for part in parts.query.split("&") if not part.startswith(("username=", "password=")))
    # By hand, since urlunsplit makes unix:/path of an empty host.
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}" + (f"?{query}" if query else "")
