"""The client's address behind proxies: only trusted ones are believed, and nothing in a header can be too long."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from multidict import CIMultiDict

from eventbus.api.auth.proxies import TrustedProxies
from eventbus.errors import ConfigError

TRUSTED = TrustedProxies(["10.0.0.0/24", "fd00::1"])


def client(remote: str | None, *headers: str, proxies: TrustedProxies = TRUSTED) -> str:
    request: Any = SimpleNamespace(
        protocol=None, remote=remote, headers=CIMultiDict([("X-Forwarded-For", header) for header in headers])
    )
    return proxies.client(request)


@pytest.mark.parametrize(
    ("remote", "headers", "found"),
    [
        ("10.0.0.5", ["203.0.113.7"], "203.0.113.7"),
        ("10.0.0.5", ["203.0.113.7:49152"], "203.0.113.7"),
        ("fd00::1", ["[2001:db8::7]:443"], "2001:db8::7"),
        ("::ffff:10.0.0.5", [" 2001:db8::7 "], "2001:db8::7"),
        ("10.0.0.5", ["203.0.113.7, 10.0.0.9"], "203.0.113.7"),
        ("10.0.0.5", ["203.0.113.7", "10.0.0.9"], "203.0.113.7"),
        ("10.0.0.5", ["10.0.0.8, 10.0.0.9"], "10.0.0.8"),
        ("10.0.0.5", [], "10.0.0.5"),
        ("10.0.0.5", [""], "10.0.0.5"),
        (None, ["203.0.113.7"], "unix"),
    ],
)
def test_a_trusted_proxy_reports_its_client(remote: str | None, headers: list[str], found: str) -> None:
    assert client(remote, *headers) == found


@pytest.mark.parametrize("remote", ["203.0.113.7", "10.0.1.5", "fd00::2", "fe80::1%eth0"])
def test_a_client_that_is_no_proxy_cannot_claim_another_address(remote: str) -> None:
    assert client(remote, "198.51.100.1") == remote


def test_what_the_client_itself_wrote_before_the_proxys_entry_is_not_believed() -> None:
    assert client("10.0.0.5", "198.51.100.1, 203.0.113.7") == "203.0.113.7"
    assert client("10.0.0.5", "198.51.100.1, unknown, 10.0.0.9") == "10.0.0.9"
    assert client("10.0.0.5", "198.51.100.1\x1b[31m") == "10.0.0.5"


def test_the_zone_of_an_address_which_may_have_any_characters_is_left_out() -> None:
    assert client("10.0.0.5", "fe80::1%eth0 user=root \x9b31m") == "fe80::1"
    assert client("10.0.0.5", "[2001:db8::7%\u202e]:443") == "2001:db8::7"


def test_without_trusted_proxies_the_header_means_nothing() -> None:
    assert client("10.0.0.5", "203.0.113.7", proxies=TrustedProxies()) == "10.0.0.5"


def test_only_the_last_ten_entries_are_read() -> None:
    assert client("10.0.0.5", ", ".join(["198.51.100.1", *["10.0.0.9"] * 9])) == "198.51.100.1"
    assert client("10.0.0.5", ", ".join(["198.51.100.1", *["10.0.0.9"] * 10])) == "10.0.0.9"


@pytest.mark.parametrize("text", ["", "10.0.0.0/33", "10.0.0.1/24", "balancer", "10.0.0.0/8,10.1.0.0/16"])
def test_a_network_that_cannot_be_read_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="--trusted-proxy"):
        TrustedProxies([text])
