"""The claim of a bus: one `eventbus up` of a user has it at a time."""

from __future__ import annotations

import os
import socket

from eventbus.workers.up_run import claim_bus, place_of


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


def test_a_claim_is_refused_without_waiting_however_often_it_was_refused_before() -> None:
    name = f"redis://host {os.urandom(4).hex()}"
    first = claim_bus(name)
    assert isinstance(first, socket.socket)
    with first:
        refusals = {str(claim_bus(name)) for _ in range(5_000)}
    assert refusals == {f"process {os.getpid()}", "another process"}


def test_a_server_has_one_place_however_its_url_is_written() -> None:
    same = ["redis://localhost", "redis://127.0.0.1:6379/0", "redis://user:secret@127.0.0.1"]
    assert {place_of(url) for url in same} == {"localhost:6379 /0"}
    others = ["redis://localhost/1", "redis://localhost:6380", "redis://127.0.0.2", "unix:///run/redis.sock"]
    assert len({place_of(url) for url in [*same, *others]}) == 1 + len(others)
