"""The uid of a recorded event comes out of the store as its batch says it, whatever its producer calls itself."""

from __future__ import annotations

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventbus.model.encoding.wire import open_uid, pack_uid
from tests.builders import texts

HEX = "bddc4e51c99cbb93"


def stored(producer: str, sequence: int) -> object:
    return msgpack.unpackb(msgpack.packb(pack_uid(producer, sequence)), raw=True)


@given(texts(24) | st.binary(min_size=8, max_size=8).map(bytes.hex), st.integers(-5, 2**64 + 5))
def test_any_uid_is_read_as_it_was(producer: str, sequence: int) -> None:
    assert open_uid(stored(producer, sequence)) == f"{producer}:{sequence}"


@pytest.mark.parametrize("producer", [HEX, HEX.upper(), HEX[:14] + " 9", "p1", "", HEX[:8], "producer"])
@pytest.mark.parametrize("sequence", [0, 1, 255, 256, 20_816, 2**53, 2**64 - 1, 2**64, -1])
def test_so_are_those_near_the_usual_shape(producer: str, sequence: int) -> None:
    assert open_uid(stored(producer, sequence)) == f"{producer}:{sequence}"


def test_the_usual_one_takes_half_the_bytes() -> None:
    assert pack_uid(HEX, 20_816) == bytes.fromhex(HEX) + b"\x51\x50"


@pytest.mark.parametrize("nothing", [None, False, b"", [], [1, 2], {}])
def test_where_there_is_none_it_is_empty(nothing: object) -> None:
    assert open_uid(nothing) == ""
