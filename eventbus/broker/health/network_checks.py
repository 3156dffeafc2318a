"""The doctor's checks of the connection: TLS, and whether the default user is open."""

from __future__ import annotations

import ipaddress
import socket

import msgspec

from eventbus.broker.connection.address import Address, Endpoint, parse_address
from eventbus.broker.connection.tls import checks_name
from eventbus.broker.health.findings import Finding, ok, warning


def check_tls(url: str) -> Finding:
    """Check that passwords and events do not cross a network in the open."""
    address = parse_address(url)
    if address.tls:
        if address.options.get("ssl_cert_reqs") == "none":
            cure = "take ssl_cert_reqs=none out of the url; a private authority: ?ssl_ca_certs=/path/ca.pem"
            return warning("tls", "TLS without looking at the certificate: anybody can pose as the server", cure)
        if not checks_name(address):
            problem = (
                "TLS without looking whose certificate it is: anybody whom that authority trusts can pose as the server"
            )
            return warning(
                "tls", problem, "take ssl_check_hostname out of the url, and connect by a name in the certificate"
            )
        return ok("tls", "TLS")
    if is_local(url):
        return ok("tls", "not needed: the server is on this machine")
    cure = "let the server speak TLS (tls-port), and use rediss://"
    return warning("tls", "passwords and events cross the network unencrypted", cure)


def check_default_user(url: str) -> Finding:
    """Check that the all-powerful user `default` is not open to everybody who reaches the server."""
    address = parse_address(url)
    named = bool(address.username) and address.username != "default"
    if is_local(url) and not named:
        return ok("user", "default, on this machine")
    if named and not _opens(address):
        return ok("user", f"{address.username}; default is closed")
    cure = "eventbus acl --role … makes users; then ACL SETUSER default off"
    if named:
        return warning("user", "the user `default` is open to everybody, and may do everything", cure)
    who = "everybody who has the password" if address.password else "everybody"
    return warning("user", f"{who} is the user `default`, who may do everything", cure)


def is_local(url: str) -> bool:
    """Return True if all servers are on this machine: a socket, or names that resolve to loopback addresses only."""
    return all(map(_is_loopback, parse_address(url).endpoints))


def _is_loopback(endpoint: Endpoint) -> bool:
    try:
        addresses = {str(found[4][0]) for found in socket.getaddrinfo(endpoint.host, None)}
    except OSError:
        return False
    return all(ipaddress.ip_address(address.partition("%")[0]).is_loopback for address in addresses)


def _opens(address: Address) -> bool:
    """Return True if the server accepts a client without user and password."""
    from redis.exceptions import RedisError

    from eventbus.broker.connection.plain_client import plain_client

    nameless = msgspec.structs.replace(address, username="", password="")
    with plain_client(nameless, name="eventbus-doctor") as client:
        try:
            return bool(client.ping())
        except RedisError:
            return False
