"""Urls of API workers: what is read, and what is shown of them."""

from __future__ import annotations

import pytest

from eventbus.cli.contexts import Context
from eventbus.client.address import parse_api_url, safe_api_url
from eventbus.errors import ConfigError
from eventbus.settings import Settings


@pytest.mark.parametrize(
    "url",
    [
        "http+unix:/x?s3cret",
        "http+unix:/x#s3cret",
        "http+unix:///x?token=s3cret",
        "http+unix://user:s3cret@/x",
        "http+unix://s3cret@host/x",
        "https://host/?s3cret",
        "https://host/#s3cret",
        "https://user:s3cret@host/",
        "https://s3cret@host/",
        "https://:s3cret@host/",
        "https://user/s3cret@host/",
        "https://user:0/s3cret@host/",
        "https://host:s3cret/",
        "https:s3cret",
        "s3cret",
        "ftp://user:s3cret@host",
    ],
)
def test_a_url_that_may_hold_a_secret_is_refused_and_never_shown(url: str) -> None:
    with pytest.raises(ConfigError) as refused:
        parse_api_url(url, Settings())
    assert "s3cret" not in str(refused.value)
    assert "s3cret" not in safe_api_url(url)
    assert "s3cret" not in Context(name="prod", url=url).where


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("http+unix:/run/a%3Fb.sock", "http+unix:/run/a?b.sock"),
        ("http+unix:///run/a.sock/", "http+unix:/run/a.sock"),
        ("HTTPS://[::1]/base/", "https://[::1]:443/base"),
    ],
)
def test_a_url_without_a_secret_is_shown(url: str, shown: str) -> None:
    assert str(parse_api_url(url, Settings())) == safe_api_url(url) == shown
