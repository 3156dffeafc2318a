"""Lines of an `eventbus up`, as others see them."""

from __future__ import annotations

import os
import socket

from eventbus.agent.procfile.orphaned_processes import claim_bus


def test_a_bus_is_claimed_by_one_up_until_it_ends() -> None:
    name = f"redis://host {os.urandom(4).hex()}"
    first = claim_bus(name)
    assert isinstance(first, socket.socket)
    assert claim_bus(name) == f"process {os.getpid()}"
    other = claim_bus(f"{name}2")
    first.close()
    again = claim_bus(name)
    for claim in (other, again):
        assert isinstance(claim, socket.socket)
        claim.close()
