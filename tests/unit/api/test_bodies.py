"""What says what a body is."""

from __future__ import annotations

import pytest

from eventbus.api.kube.bodies import Body, media_type_of
from eventbus.api.kube.negotiation import JSON
from eventbus.api.status import ApiError


@pytest.mark.parametrize("head", ["application/json", "application/json;charset=utf-8", "application/json;"])
def test_blanks_in_a_content_type_are_read_but_once(head: str) -> None:
    """Read again from each of them, a million would take hours, in which the loop answers nobody."""
    blanks = " " * 1_000_000
    assert media_type_of(f"{head}{blanks}") == "application/json"
    with pytest.raises(ApiError, match="unknown format"):
        media_type_of(f"{head}{blanks}x")


@pytest.mark.parametrize(("begin", "end"), [(b'{"a":', b"}"), (b"[", b"]")])
def test_keys_that_are_nested_deeper_than_can_be_looked_at_are_refused(begin: bytes, end: bytes) -> None:
    body = Body(begin * 100_000 + b"1" + end * 100_000, JSON)
    with pytest.raises(ApiError, match="nested too deeply"):
        body.doubles()


def test_double_keys_below_a_long_key_are_told_in_few_bytes() -> None:
    """Told whole, each of 3 000 would bring the megabyte of the key above it: 3 GB, and a client could send more."""
    twice = b",".join(b'"%d":0,"%d":0' % (number, number) for number in range(3000))
    told = Body(b'{"' + b"k" * 1_000_000 + b'":{' + twice + b"}}", JSON).doubles()
    assert len(told) == 100
    assert sum(map(len, told)) < 100_000
