"""Finds the address of a client of trusted proxies, from X-Forwarded-For."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from typing import Final, TypeAlias

from aiohttp import web

from eventbus.errors import ConfigError

_Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address
#: Entries of X-Forwarded-For that are read, from the last one: each proxy appends one.
MOST_PROXIES: Final = 10


class TrustedProxies:
    """The networks of --trusted-proxy. A header of any other sender is ignored, because its sender can write anything.

    Raises: ConfigError: a network cannot be read.
    """

    def __init__(self, networks: Iterable[str] = ()) -> None:
        self._networks = tuple(map(_network, networks))

    def client(self, request: web.Request) -> str:
        """Return the address of the client; that of the last trusted proxy if it does not report a valid one.

        For a unix socket: `unix`.
        """
        sender = request.remote
        if sender is None:
            return "unix"
        address = _address(sender)
        if not self._trusts(address):
            return sender
        header = ",".join(request.headers.getall("X-Forwarded-For", ()))
        for text in reversed(header.rsplit(",", MOST_PROXIES)[-MOST_PROXIES:]):
            if (reported := _address(text)) is None:
                break  # a trusted proxy passed it on unread: earlier addresses are not known either
            address = reported
            if not self._trusts(address):
                break
        return str(address)

    def _trusts(self, address: _Address | None) -> bool:
        return address is not None and any(address in network for network in self._networks)


def _network(text: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network:
    try:
        return ipaddress.ip_network(text)
    except ValueError as error:
        cure = "give an address or a network, like 10.0.0.0/24"
        raise ConfigError(f"--trusted-proxy {text!r}: {error}: {cure}", cure=cure) from error


def _address(text: str) -> _Address | None:
    """Parse an address, with the port that some proxies add, without its zone; None if it is none."""
    text = text.strip()
    if text.startswith("["):
        text = text[1:].partition("]")[0]
    elif text.count(":") == 1:
        text = text.partition(":")[0]
    try:
        address = ipaddress.ip_address(text.partition("%")[0])  # a zone may have any characters
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return mapped or address
