"""Numbers that lie in Redis as text: what is one, and what is said of the rest."""

from __future__ import annotations

import pytest

from eventbus.broker.bus import parse_options_version, parse_partitions
from eventbus.broker.keys import whole_number
from eventbus.errors import ConfigError


@pytest.mark.parametrize(("text", "number"), [(b"0", 0), ("17", 17), (b"007", 7), (b"9" * 19, 10**19 - 1)])
def test_digits_are_a_number(text: bytes | str, number: int) -> None:
    assert whole_number(text) == number


@pytest.mark.parametrize(
    "text", [None, b"", "", b"-1", b"+1", b" 1", b"1.5", b"1e3", b"nan", b"\xff", "²", "１", b"9" * 20]
)
def test_everything_else_is_none(text: bytes | str | None) -> None:
    assert whole_number(text) is None


@pytest.mark.parametrize("text", [b"0", b"1025", b"1000000000", b"many", b"", b"9" * 5000, b"\xff"])
def test_partitions_are_1_to_1024_and_the_cure_names_the_key(text: bytes) -> None:
    with pytest.raises(ConfigError, match=r"HSET eb:\{0\}:bus partitions .* of the keys eb:\{N\}:meta") as caught:
        parse_partitions(text, b"eb:{0}:bus")
    assert len(str(caught.value)) < 250
    assert "\n" not in str(caught.value)


def test_a_bus_without_a_version_of_its_options_has_the_first() -> None:
    assert (parse_options_version(None), parse_options_version(b"3")) == (1, 3)
    with pytest.raises(ConfigError, match="is 'x', no number: `eventbus options set`"):
        parse_options_version(b"x")
