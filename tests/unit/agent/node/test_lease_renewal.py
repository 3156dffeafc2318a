"""Two agents of one node's name, which know of each other by the lease alone."""

from __future__ import annotations

import logging
from contextlib import suppress

import pytest

from eventbus.agent.node.lease_renewal import PASSING, LeaseRenewal
from eventbus.errors import Conflict, NotFound
from eventbus.model.objects.cluster import Lease
from eventbus.testing.clock import FakeClock


class Leases:
    """One lease; whoever replaces another than the one that is there is refused."""

    def __init__(self) -> None:
        self.held: Lease | None = None

    def get(self, name: str, namespace: str = "") -> Lease:
        if self.held is None:
            raise NotFound(name)
        return self.held

    def create(self, found: Lease) -> Lease:
        self.held = found
        return found

    def replace(self, former: Lease, new: Lease) -> Lease:
        if former is not self.held:
            raise Conflict("it was changed")
        self.held = new
        return new

    def delete(self, name: str, namespace: str = "") -> None:
        self.held = None


def renew(*agents: LeaseRenewal) -> None:
    for _ in range(3):
        for agent in agents:
            with suppress(*PASSING):
                agent.renew()


def test_two_agents_of_one_name_are_told_once_and_one_that_comes_after_another_is_not(
    caplog: pytest.LogCaptureFixture,
) -> None:
    leases = Leases()
    former, first, second, third = (
        LeaseRenewal(leases=leases, clock=FakeClock(), name="n1", holder=holder, duration_s=40)
        for holder in ("n1_1", "n1_2", "n1_3", "n1_4")
    )
    renew(former)
    renew(first)
    assert caplog.messages == []
    with caplog.at_level(logging.ERROR, "eventbus"):
        renew(first, second, first, second)
        renew(third, first, third, first)
    own = [message for message in caplog.messages if not message.startswith("n1_2")]
    assert [message.partition(":")[0] for message in own] == ["n1_3 renews the lease of node n1, too"]
