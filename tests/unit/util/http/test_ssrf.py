"""The written rules for where a webhook may go: addresses, URLs, names."""

from __future__ import annotations

from ipaddress import ip_address

import pytest

from eventbus.errors import ConfigError, SinkUnreachable
from eventbus.util.http.ssrf import Guard, is_allowed

OUTSIDE = ["1.1.1.1", "93.184.215.14", "100.63.255.255", "100.128.0.0", "172.15.0.1", "172.32.0.1", "2606:4700::1111"]
INSIDE = [
    "0.1.2.3",
    "10.0.0.1",
    "100.64.0.1",
    "100.127.255.255",
    "127.0.0.1",
    "127.255.255.254",
    "172.16.0.1",
    "172.31.255.255",
    "192.168.1.1",
    "::1",
    "fc00::1",
    "fdff::1",
    "::ffff:10.0.0.1",  # v4-mapped
    "::ffff:1.1.1.1",  # however public: nobody writes it so in good faith
    "::127.0.0.1",  # v4-compatible
    "64:ff9b::7f00:1",  # NAT64
    "64:ff9b::101:101",
    "64:ff9b:1::a00:1",
    "2002:7f00:1::",  # 6to4
    "2001:0:4136:e378:8000:63bf:3fff:fdd2",  # Teredo
    "::ffff:0:127.0.0.1",  # IPv4-translated
    "::ffff:0:1.1.1.1",
    "2600::5efe:10.0.0.1",  # ISATAP
    "2600::200:5efe:10.0.0.1",
    "4000::1",  # no unicast address of the Internet
    "1000::1",
]
NOWHERE = [
    "0.0.0.0",
    "169.254.169.254",
    "224.0.0.1",
    "239.1.1.1",
    "255.255.255.255",
    "::",
    "fe80::1",
    "ff02::1",
    "::ffff:169.254.169.254",
    "64:ff9b::a9fe:a9fe",
    "2002:a9fe:a9fe::",
    "::ffff:0:169.254.169.254",
    "::169.254.169.254",
    "64:ff9b:1:a9fe:a9:fe00::",  # NAT64 with a prefix of 48 bits
    "64:ff9b:1::a9fe:a9fe",
    "2001:0:4136:e378:8000:63bf:5601:5601",  # Teredo, whose client is inverted
    "2001:0:a9fe:a9fe:8000:63bf:3fff:fdd2",  # and whose server is not
    "2600::5efe:169.254.169.254",
]


@pytest.mark.parametrize("address", OUTSIDE)
def test_the_world_outside_is_allowed(address: str) -> None:
    assert is_allowed(ip_address(address), trusted=False)


@pytest.mark.parametrize("address", INSIDE)
def test_our_own_network_is_allowed_to_trusted_hosts_alone(address: str) -> None:
    assert not is_allowed(ip_address(address), trusted=False)
    assert is_allowed(ip_address(address), trusted=True)


@pytest.mark.parametrize("address", NOWHERE)
def test_link_local_multicast_and_nowhere_are_allowed_to_nobody(address: str) -> None:
    assert not is_allowed(ip_address(address), trusted=False)
    assert not is_allowed(ip_address(address), trusted=True)


@pytest.mark.parametrize(
    "url",
    [
        "https://hooks.example/x?y=1",
        "https://hooks.example:443/",
        "https://hooks.example:8443/",
        "https://1.1.1.1/x",
        "https://[2606:4700::1111]/x",
    ],
)
def test_a_url_that_is_allowed(url: str) -> None:
    Guard().check_url(url)


@pytest.mark.parametrize(
    ("url", "cause"),
    [
        ("http://hooks.example/", "https"),
        ("https://hooks.example:22/", "port"),
        ("https://hooks.example:6379/", "port"),
        ("https://me:hunter2@hooks.example/", "password"),
        ("https://me@hooks.example/", "password"),
        ("https://hooks.example@127.0.0.1/", "password"),
        ("https://127.0.0.1/", "no request"),
        ("https://[::1]/", "no request"),
        ("https://[::ffff:127.0.0.1]/", "no request"),
        ("https://169.254.169.254/latest/meta-data", "no request"),
        ("https:///x", "host"),
        ("https://hooks.example:99999/", "read"),
        ("https://h\u00f6oks.example/", "ASCII"),
        ("https://hooks.example/ x", "ASCII"),
    ],
)
def test_a_url_that_is_refused(url: str, cause: str) -> None:
    with pytest.raises(ConfigError, match=cause) as caught:
        Guard().check_url(url)
    assert "hunter2" not in str(caught.value)


def test_a_host_that_was_allowed_may_be_anywhere_but_still_has_no_password() -> None:
    guard = Guard(allow_hosts=frozenset({"localhost"}))
    guard.check_url("http://LOCALHOST:8080/x")
    with pytest.raises(ConfigError):
        guard.check_url("http://me:x@localhost:8080/x")
    with pytest.raises(ConfigError):
        guard.check_url("http://127.0.0.1:8080/x")


# An IPv4 address written as a number, in octal or cut short is one to the resolver, whatever a parser of URLs thinks.
@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "2130706433", "0x7f000001", "0177.0.0.1", "127.1"])
def test_every_spelling_of_this_machine_is_refused_when_it_is_resolved(host: str) -> None:
    with pytest.raises(SinkUnreachable):
        Guard().resolve(host, 443)


def test_a_trusted_name_is_resolved_to_addresses() -> None:
    assert set(Guard(frozenset({"localhost"})).resolve("localhost", 443)) <= {"127.0.0.1", "::1"}
