"""The sources held back, folded or evicted: summed over all partitions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from eventbus.broker.bus import Bus, open_bus
from eventbus.broker.health.status import SourceCounts, read_sources
from eventbus.settings import Settings


@pytest.fixture
def bus(any_server_url: str, prefix: str) -> Bus:
    return open_bus(any_server_url, Settings(prefix=prefix, partitions=2))


@pytest.fixture
def client(bus: Bus) -> Iterator[Any]:
    made = bus.client()
    yield made
    made.close()


def test_partitions_are_summed_and_what_the_functions_keep_for_themselves_is_left_out(bus: Bus, client: Any) -> None:
    client.hset(bus.keys[0].suppressed, mapping={"S\0web\0Pod\0Normal\0Started": 3, "A\0other\0\0\0": 9, "names\0S": 1})
    client.hset(
        bus.keys[1].suppressed,
        mapping={
            "S\0web\0Pod\0Normal\0Started": 4,
            "E\0web\0Pod\0Normal\0Started": 1,
            "s\0web\0Pod\0Normal\0Started": 99,
        }
        | {"credit\0S": 99},
    )
    other, web = read_sources(bus, client)
    assert web == SourceCounts("web", "Pod", "Normal", "Started", suppressed=7, evicted=1)
    assert (other.names, other.aggregated, other.total) == (("<other>", "", "", ""), 9, 9)
