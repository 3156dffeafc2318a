"""In the end every cache equals the store, and no handler got an impossible history, through any faults.

EVENTBUS_TEST_STEPS=10000 runs the long one (`make model`).
"""

from __future__ import annotations

import logging
import os
import random
from contextlib import ExitStack
from pathlib import Path

import pytest

from eventbus.broker.bus import open_bus
from eventbus.settings import Options
from tests.support.api_in_process import serving
from tests.support.harness import own_server, settings_of
from tests.support.informer_world import World, moments
from tests.thin import one

STEPS = int(os.environ.get("EVENTBUS_TEST_STEPS", "500"))
LONG = STEPS > 500
#: Times Redis is killed and started again.
KILLS = 8 if LONG else 2


@pytest.mark.timeout(1_200 if LONG else 300)
@pytest.mark.parametrize("partitions", one([4, 1]))
@pytest.mark.parametrize("way", one(["redis", "http"]))
def test_every_cache_ends_equal_to_the_store_and_every_history_is_legal(
    short_path: Path, prefix: str, partitions: int, way: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.ERROR, logger="eventbus")
    seed = int(os.environ.get("EVENTBUS_TEST_SEED", "0")) or random.randrange(10**6)
    print(f"EVENTBUS_TEST_SEED={seed}")
    chance = random.Random(seed)
    settings = settings_of(prefix, partitions=partitions)
    # fsync always: the store itself never goes back, so no witness may see it
    with own_server(short_path, appendfsync="always") as server, ExitStack() as stack:
        bus = open_bus(server.url or "", settings, options=Options(burst=100_000))
        url = stack.enter_context(serving(bus)) if way == "http" else ""
        world = World(server, bus, settings, chance, url=url)
        places = [*moments(STEPS, chance, KILLS + 1)]
        flush = chance.choice(places) if LONG else places[0]  # after a kill it waits for the clock
        kills = {*places} - {flush}
        try:
            for step in range(STEPS):
                world.step()
                if step in kills:
                    world.kill_and_restart()
                if step == flush:
                    world.flush()
            world.end()
            assert (world.kills, world.flushes) == (KILLS, 1)
            again = [source.lists > 1 and source.watches > (3 if LONG else 1) for source in world.sources]
            assert all(again) if LONG else any(again), "nothing was disturbed"
            least = 10 if LONG else 0  # how much of 500 steps a witness is told is left to chance
            assert min(witness.told for witness, _, _ in world.witnesses[:10]) > least, "there was nothing to see"
        finally:
            world.stop()
