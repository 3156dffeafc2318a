"""Restricts webhook destinations, so that a chosen URL or DNS answer cannot reach the internal network (SSRF).

Only rules and the resolver; the connection is `guarded_http`'s. Source: reference, reliability, security of webhooks.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final, Self
from urllib.parse import SplitResult, urlsplit

import msgspec

from eventbus.errors import ConfigError, SinkUnreachable

Address = IPv4Address | IPv6Address

PORTS: Final = frozenset({443, 8443})

#: Refused unless the host is trusted. Listed here because the meaning of `is_private` differs by Python version.
_INSIDE: Final = tuple(
    ip_network(network)
    for network in (
        "0.0.0.0/8",  # this network
        "10.0.0.0/8",
        "100.64.0.0/10",  # carrier-grade NAT; some clouds keep their metadata here
        "127.0.0.0/8",
        "172.16.0.0/12",
        "192.0.0.0/24",  # protocol assignments
        "192.0.2.0/24",  # documentation, like the next two
        "198.51.100.0/24",
        "203.0.113.0/24",
        "192.168.0.0/16",
        "198.18.0.0/15",  # benchmarks
        "::1/128",
        "100::/64",  # discard
        "2001::/23",  # Teredo and other assignments: 2001::/32 holds an IPv4 address
        "2001:db8::/32",  # documentation
        "3fff::/20",
        "5f00::/16",  # segment routing
        "fc00::/7",  # unique local
    )
)

#: Always refused: no webhook has such an address, and cloud metadata is at 169.254.169.254 and fe80::.
_NEVER: Final = tuple(
    ip_network(network)
    for network in (
        "0.0.0.0/32",
        "169.254.0.0/16",
        "224.0.0.0/4",
        "240.0.0.0/4",
        "::/128",
        "fe80::/10",
        "fec0::/10",
        "ff00::/8",
    )
)

#: All unicast addresses of the Internet. Outside it are the other IPv6 forms of IPv4 addresses, too, which a gateway or
#: the kernel may turn into them: refused unless trusted.
_UNICAST: Final = IPv6Network("2000::/3")
_TO_IPV4: Final = IPv6Network("2002::/16")
_TEREDO: Final = IPv6Network("2001::/32")
#: IPv6 addresses that end with an IPv4 address: mapped, compatible, translated (RFC 2765), NAT64 (its two prefixes).
_ENDS_WITH_IPV4: Final = tuple(
    IPv6Network(network) for network in ("::ffff:0:0/96", "::/96", "::ffff:0:0:0/96", "64:ff9b::/96", "64:ff9b:1::/48")
)
#: The second quarter of the bits of an ISATAP address (RFC 5214), without the bit that says whether it is unique.
_ISATAP: Final = 0x00005EFE


class Guard(msgspec.Struct, frozen=True):
    """The rules for the hosts that a webhook may connect to.

    The hosts in *allow_hosts* (lower case) are trusted: they may be on any port, without TLS, and inside our own
    network; link-local and multicast addresses are refused even so.
    """

    allow_hosts: frozenset[str] = frozenset()

    @classmethod
    def from_environ(cls, environ: Mapping[str, str]) -> Self:
        """Read EVENTBUS_WEBHOOK_ALLOW_HOSTS."""
        hosts = environ.get("EVENTBUS_WEBHOOK_ALLOW_HOSTS", "").split(",")
        return cls(frozenset(name.strip().lower() for name in hosts if name.strip()))

    def check_url(self, url: str) -> SplitResult:
        """Return the parts of *url*, if it may be used; its name is not resolved yet. Raises: ConfigError."""
        try:
            parts = urlsplit(url)
            host, port = parts.hostname or "", parts.port
        except ValueError:  # its words may quote a part that is secret
            raise ConfigError("the URL cannot be read: its port must be a number from 1 to 65535") from None
        if "://" not in url:
            raise ConfigError("the URL needs https://, or http://, before its host")
        if not host or not url.isascii() or not url.isprintable() or " " in url:
            raise ConfigError("the URL needs a host, and only ASCII (write an international name as xn--…)")
        if parts.username is not None or parts.password is not None:
            raise ConfigError("the URL must hold no user and no password: send them in a header, such as a token")
        if not self.trusts(host):
            _check_outside(parts.scheme, host, port)
        return parts

    def check_name(self, host: str, port: int) -> None:
        """Resolve *host* once, before the export starts. A failed lookup is ignored: it may succeed later.

        Blocks as `resolve`. Raises: ConfigError: no request may go to any of its addresses.
        """
        try:
            addresses = _look_up(host, port)
        except SinkUnreachable:
            return
        trusted = self.trusts(host)
        if not any(is_allowed(ip_address(address), trusted=trusted) for address in addresses):
            cure = "" if trusted else f"; {_permit(host)}"
            raise ConfigError(f"{host} has the address {addresses[0]}, where no request may go{cure}")

    def trusts(self, host: str) -> bool:
        """Return True if *host* may have a private address."""
        return host.lower() in self.allow_hosts

    def resolve(self, host: str, port: int) -> list[str]:
        """Return the addresses of *host*, all of them checked: connect to one of these, never to the name.

        Blocks as long as the system's resolver does. Raises: SinkUnreachable: no address, or a forbidden one.
        """
        addresses = _look_up(host, port)
        for address in addresses:
            if not is_allowed(ip_address(address), trusted=self.trusts(host)):
                raise SinkUnreachable(f"{host} has the address {address}, where no request may go")
        return addresses


def is_allowed(address: Address, *, trusted: bool) -> bool:
    """Return True if a webhook may go to *address*; *trusted*: its host was allowed by name."""
    addresses = (address, *_embedded(address))
    if any(_is_in(each, _NEVER) for each in addresses):
        return False
    if trusted:
        return True
    if isinstance(address, IPv6Address) and (address not in _UNICAST or address in _TO_IPV4):
        return False
    return not any(_is_in(each, _INSIDE) for each in addresses)


def _look_up(host: str, port: int) -> list[str]:
    """Resolve *host*; returns at least one address. Raises: SinkUnreachable."""
    try:
        entries = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise SinkUnreachable(f"{host} cannot be resolved: {error}") from error
    return list(dict.fromkeys(str(entry[4][0]) for entry in entries))


def _permit(host: str) -> str:
    return f"EVENTBUS_WEBHOOK_ALLOW_HOSTS={host} permits it"


def _check_outside(scheme: str, host: str, port: int | None) -> None:
    cure = _permit(host)
    if scheme != "https":
        raise ConfigError(f"the URL must use https; {cure}")
    if (port or 443) not in PORTS:
        raise ConfigError(f"the port of the URL must be 443 or 8443, not {port}; {cure}")
    try:
        address = ip_address(host)
    except ValueError:
        return
    if not is_allowed(address, trusted=False):
        raise ConfigError(f"{host} is where no request may go; {cure}")


def _embedded(address: Address) -> list[IPv4Address]:
    """The IPv4 addresses that an IPv6 address may stand for."""
    if isinstance(address, IPv4Address) or int(address) <= 1:
        return []
    bits = int(address)
    last = bits & 0xFFFFFFFF
    embedded: list[int] = []
    if any(address in network for network in _ENDS_WITH_IPV4) or bits >> 32 & 0xFDFFFFFF == _ISATAP:
        embedded.append(last)
    around = (bits >> 64 & 0xFFFF) << 16 | bits >> 40 & 0xFFFF
    if address in _ENDS_WITH_IPV4[-1] and around:  # RFC 6052 puts it around byte 8 where the prefix has 48 bits
        embedded.append(around)
    if address in _TO_IPV4:
        embedded.append(bits >> 80 & 0xFFFFFFFF)
    if address in _TEREDO:  # of its server, and of its client, inverted
        embedded += [bits >> 64 & 0xFFFFFFFF, last ^ 0xFFFFFFFF]
    return [IPv4Address(each) for each in embedded]


def _is_in(address: Address, networks: tuple[IPv4Network | IPv6Network, ...]) -> bool:
    return any(address in network for network in networks)
