"""The map of a cluster: whom it asks, whom it believes, and for whom nobody waits. Nodes are told, not run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from redis.exceptions import ClusterError, ConnectionError, ResponseError

from eventbus.broker.connection.address import Endpoint
from eventbus.broker.connection.cluster import ClusterMap, Node, key_slot, parse_slots, slot_of

A, B, C = (Endpoint("10.0.0.1", port) for port in (1, 2, 3))


def slots(*ranges: tuple[int, int, Endpoint], cluster: str = "x") -> list[Any]:
    """A reply to CLUSTER SLOTS."""
    return [[a, b, [node.host.encode(), node.port, f"{cluster}{node.port}".encode(), []]] for a, b, node in ranges]


class Told:
    """The answer of each node; a node without one refuses."""

    def __init__(self) -> None:
        self.maps: dict[Endpoint, list[Any]] = {}
        self.asked: list[Endpoint] = []

    def slots(self, endpoint: Endpoint) -> Sequence[Any]:
        self.asked.append(endpoint)
        if endpoint not in self.maps:
            raise ConnectionError(f"{endpoint} refused")
        return self.maps[endpoint]

    def ping(self, node: Node) -> None:
        self.slots(node.endpoint)


@pytest.fixture
def told() -> Told:
    return Told()


def test_any_node_ever_learnt_is_asked_when_the_one_of_the_url_is_gone(told: Told) -> None:
    told.maps = {A: slots((0, 9, A), (10, 16383, B))}
    nodes = ClusterMap([A], told.slots, told.ping)
    nodes.load()
    told.maps = {B: slots((0, 16383, B))}
    nodes.load()
    assert nodes.owner(3).endpoint == B
    assert list(nodes.primaries().values()) == [0]
    assert not nodes.knows(Node(A, "x1"))


def test_another_cluster_at_an_address_that_was_learnt_is_not_believed(told: Told) -> None:
    told.maps = {A: slots((0, 9, A), (10, 16383, B))}
    nodes = ClusterMap([A], told.slots, told.ping)
    nodes.load()
    told.maps = {B: slots((0, 16383, C), cluster="other")}
    with pytest.raises(ConnectionError):
        nodes.load()
    assert nodes.owner(3).endpoint == A


def test_another_cluster_at_the_address_of_the_url_is_the_one_to_go_to(told: Told) -> None:
    told.maps = {A: slots((0, 9, A), (10, 16383, B))}
    nodes = ClusterMap([A], told.slots, told.ping)
    nodes.load()
    told.maps = {A: slots((0, 16383, C), cluster="other")}
    nodes.load()
    assert nodes.owner(3) == Node(C, "other3")


def test_a_cluster_without_slots_is_told(told: Told) -> None:
    told.maps = {A: []}
    with pytest.raises(ClusterError, match="no slots yet"):
        ClusterMap([A], told.slots, told.ping).load()


def test_nobody_waits_for_a_node_that_is_away_until_it_answers(told: Told) -> None:
    told.maps = {B: slots((0, 9, A), (10, 16383, B))}
    nodes = ClusterMap([B], told.slots, told.ping)
    nodes.load()
    dead = nodes.owner(3)
    nodes.failed(dead, ConnectionError("refused"))
    with pytest.raises(ClusterError, match=r"10\.0\.0\.1:1 is away: refused"):
        nodes.owner(3)
    assert nodes.owner(10).endpoint == B
    nodes._look()
    with pytest.raises(ClusterError, match="is away"):
        nodes.owner(3)
    told.maps[A] = told.maps[B]
    assert nodes._look()
    assert nodes.owner(3) == dead


def test_a_node_that_says_no_is_not_away(told: Told) -> None:
    told.maps = {A: slots((0, 16383, A))}
    nodes = ClusterMap([A], told.slots, told.ping)
    nodes.load()
    nodes.failed(nodes.owner(0), ResponseError("WRONGTYPE"))
    assert nodes.owner(0).endpoint == A


def test_what_has_moved_is_there_until_the_next_map(told: Told) -> None:
    told.maps = {A: slots((0, 9, A), (10, 16383, B))}
    nodes = ClusterMap([A], told.slots, told.ping)
    nodes.load()
    assert nodes.moved(3, B) == Node(B, "x2")
    assert nodes.owner(3).endpoint == B
    assert nodes.owner(4).endpoint == A


def test_a_node_that_names_no_host_of_its_own_is_where_it_was_asked() -> None:
    found = parse_slots([[0, 5, [b"", 7, b"i", []]], [6, 9, [None, 0, b"j", []]]], Endpoint("asked", 1))
    assert found.ranges == ((0, 5, Node(Endpoint("asked", 7), "i")),)


@pytest.mark.parametrize(
    ("command", "key"),
    [
        (("FCALL", "f", 2, b"eb:{3}:a", b"eb:{3}:b", b"{9}"), b"eb:{3}:a"),
        (("FCALL", "eb1_build", 0), None),
        (("XREADGROUP", "GROUP", "STREAMS", "c", "BLOCK", 5, "STREAMS", b"{3}s", ">"), b"{3}s"),
        (("XREAD", "COUNT", 5, "STREAMS", b"{3}s", b"{3}t", "0", "0"), b"{3}s"),
        (("XINFO GROUPS", b"{3}s"), b"{3}s"),
        (("XGROUP", "CREATE", b"{3}s", "g", "0"), b"{3}s"),
        (("mget", b"{3}a", b"{3}b"), b"{3}a"),
        (("HSET", "{3}a", "f", "{4}"), b"{3}a"),
        (("INFO", "memory"), None),
        (("FUNCTION LOAD", "code"), None),
    ],
)
def test_a_command_belongs_to_the_slot_of_its_key(command: tuple[Any, ...], key: bytes | None) -> None:
    assert slot_of(command) == (None if key is None else key_slot(key))
