"""The local copy that a lifecycle worker polls, and the election, on a real server."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from eventbus.broker.bus import open_bus
from eventbus.lifecycle.election import Election
from eventbus.lifecycle.polled_cache import Polled, PolledCache
from eventbus.model.objects.cluster import LIFECYCLE_LEASE, NODE_LEASES, Lease
from eventbus.settings import Settings
from eventbus.testing.clock import FakeClock
from tests.support.node_world import NodeWorld


@pytest.fixture
def world(any_server_url: str, prefix: str) -> Iterator[NodeWorld]:
    made = NodeWorld(open_bus(any_server_url, Settings(prefix=prefix)), FakeClock())
    yield made
    made.close()


def test_a_poll_tells_what_was_written_and_what_is_gone(world: NodeWorld) -> None:
    cache: PolledCache[Lease] = PolledCache(world.leases, NODE_LEASES)
    assert cache.poll() == Polled(set(), set())
    world.renew("a")
    world.renew("b")
    assert cache.poll() == Polled({"a", "b"}, set())
    world.clock.advance(1)
    world.renew("a")
    world.leases.delete("b", NODE_LEASES)
    world.renew("c")
    world.leases.delete("c", NODE_LEASES)
    assert cache.poll() == Polled({"a"}, {"b", "c"})
    assert cache.poll() == Polled(set(), set())
    assert (list(cache.items), cache.lists) == (["a"], 1)


def test_changes_that_were_trimmed_are_made_up_for_by_a_list(world: NodeWorld) -> None:
    cache: PolledCache[Lease] = PolledCache(world.leases, NODE_LEASES)
    world.renew("a")
    world.renew("b")
    cache.poll()
    world.clock.advance(1)
    world.renew("a")
    world.leases.delete("b", NODE_LEASES)
    world.renew("c")
    world.client.xtrim(world.bus.keys[0].changes_of("leases"), maxlen=1, approximate=False)
    assert cache.poll() == Polled({"a", "c"}, {"b"})
    assert cache.lists == 2


def test_a_store_that_was_made_anew_is_listed(world: NodeWorld) -> None:
    cache: PolledCache[Lease] = PolledCache(world.leases, NODE_LEASES)
    world.renew("a")
    cache.poll()
    keys = world.bus.keys[0]
    for key in world.client.scan_iter(match=keys.root + b"*leases*"):
        world.client.delete(key)
    assert cache.poll() == Polled(set(), {"a"})


def candidate(world: NodeWorld, identity: str) -> Election:
    return Election(leases=world.leases, clock=world.clock, identity=identity, now=lambda: datetime.now(UTC))


def test_one_of_two_candidates_is_elected_and_the_other_when_it_renews_no_more(world: NodeWorld) -> None:
    one, two = candidate(world, "one"), candidate(world, "two")
    assert [one.campaign(), two.campaign()] == [True, False]
    for _ in range(10):
        world.clock.advance(2)
        assert [one.campaign(), two.campaign()] == [True, False]
    world.clock.advance(6)
    assert [one.leads, two.campaign()] == [False, False]
    world.clock.advance(2)
    assert two.campaign()
    assert not one.campaign()
    namespace, name = LIFECYCLE_LEASE
    assert world.leases.get(name, namespace).spec.holder_identity == "two"


def test_who_resigns_makes_room_at_once(world: NodeWorld) -> None:
    one, two = candidate(world, "one"), candidate(world, "two")
    assert one.campaign()
    one.resign()
    assert (one.leads, two.campaign()) == (False, True)


def test_a_candidate_that_slept_does_not_take_the_lease_of_one_who_renews(world: NodeWorld) -> None:
    one, two = candidate(world, "one"), candidate(world, "two")
    assert [one.campaign(), two.campaign()] == [True, False]
    for _ in range(30):
        world.clock.advance(2)
        assert one.campaign()
    assert not two.campaign()
    assert one.campaign()
