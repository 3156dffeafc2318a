"""Clients of a cluster of three nodes: slots that move, nodes that die, and what a pipeline says of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from redis.exceptions import ClusterError, ConnectionError, ResponseError

from eventbus.broker.bus import change_options, open_bus
from eventbus.broker.connection import cluster as cluster_module
from eventbus.broker.connection.cluster import key_slot
from eventbus.broker.connection.connect import _maps, connect, node_of, primaries
from eventbus.broker.health.status import execute
from eventbus.broker.redis_errors import redis_errors
from eventbus.errors import BusUnavailable
from eventbus.settings import Options, Settings
from tests.functions.cluster import SLOTS, Cluster
from tests.functions.nodes import wait_for

pytestmark = pytest.mark.xdist_group("cluster-client")  # one worker process starts the cluster once
#: one key on each node
KEYS = [next(b"{%d}" % tag for tag in range(100) if key_slot(b"{%d}" % tag) * 3 // SLOTS == node) for node in range(3)]
#: No failover is waited for here: a node that is not run for a while is not to be taken for a dead one.
PATIENT: dict[str, Any] = {"cluster-node-timeout": "15000"}


@pytest.fixture(autouse=True)
def _ask_patiently(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_module, "ASK_S", 5.0)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Shared: a test that does harm to it makes one of its own."""
    with Cluster(tmp_path_factory.mktemp("c"), replicas=False, **PATIENT) as started:
        yield started


@pytest.fixture
def client(cluster: Cluster) -> Iterator[Any]:
    with connect(cluster.url) as made:
        yield made
        for key in KEYS:
            made.delete(key)


def test_each_command_goes_to_the_node_of_its_key(cluster: Cluster, client: Any) -> None:
    pipe = client.pipeline(transaction=False)
    for number, key in enumerate(KEYS):
        pipe.set(key, number)
        pipe.incr(key)
    assert pipe.execute() == [True, 1, True, 2, True, 3]
    for number, key in enumerate(KEYS):
        with cluster.node(number) as node:
            assert int(node.get(key) or 0) == number + 1
    assert [node.info("server")["tcp_port"] for node in primaries(client)] == cluster.ports
    assert [int(node_of(client, key).info("server")["tcp_port"]) for key in KEYS] == cluster.ports
    assert len(primaries(client, [KEYS[0], KEYS[0] + b"more", KEYS[2]])) == 2
    assert client.ping()


def test_keys_of_several_slots_are_refused_before_anything_is_sent(client: Any) -> None:
    with pytest.raises(ValueError, match="several slots"):
        client.mget(KEYS)
    with pytest.raises(ValueError, match="a transaction has one slot"):
        client.pipeline(transaction=True)


def test_an_error_of_one_command_leaves_the_others_their_replies(client: Any) -> None:
    client.set(KEYS[1], "text")
    pipe = client.pipeline(transaction=False)
    pipe.incr(KEYS[0]).incr(KEYS[1]).incr(KEYS[2])
    first, second, third = pipe.execute(raise_on_error=False)
    assert (first, third) == (1, 1)
    assert isinstance(second, ResponseError)
    with pytest.raises(ResponseError):
        client.pipeline().incr(KEYS[1]).execute()


def test_a_slot_that_has_moved_is_followed(cluster: Cluster, client: Any) -> None:
    client.ping()
    cluster.move_slot(key_slot(KEYS[0]), 0, 1)
    try:
        pipe = client.pipeline(transaction=False)
        pipe.set(KEYS[0], "here").get(KEYS[0]).set(KEYS[2], "there")
        assert pipe.execute() == [True, b"here", True]
        with cluster.node(1) as node:
            assert node.get(KEYS[0]) == b"here"
        wait_for(lambda: int(node_of(client, KEYS[0]).info("server")["tcp_port"]) == cluster.ports[1])
    finally:
        cluster.move_slot(key_slot(KEYS[0]), 1, 0)


def test_a_slot_that_is_moving_is_asked_for_where_it_goes(cluster: Cluster, client: Any) -> None:
    slot = key_slot(KEYS[0])
    with cluster.node(0) as source, cluster.node(1) as target:
        its, others = (node.execute_command("CLUSTER", "MYID").decode() for node in (source, target))
        target.execute_command("CLUSTER", "SETSLOT", slot, "IMPORTING", its)
        source.execute_command("CLUSTER", "SETSLOT", slot, "MIGRATING", others)
        try:
            pipe = client.pipeline(transaction=False)
            pipe.set(KEYS[0], "new").incr(KEYS[2]).get(KEYS[0])
            assert pipe.execute() == [True, 1, b"new"]
            assert client.get(KEYS[0]) == b"new"
            assert client.delete(KEYS[0]) == 1
        finally:
            target.execute_command("CLUSTER", "SETSLOT", slot, "STABLE")
            source.execute_command("CLUSTER", "SETSLOT", slot, "STABLE")


def test_keys_of_which_some_have_moved_are_called_for_again(cluster: Cluster, client: Any) -> None:
    slot = key_slot(KEYS[0])
    client.set(KEYS[0], "still here")
    with cluster.node(0) as source, cluster.node(1) as target:
        others = target.execute_command("CLUSTER", "MYID").decode()
        source.execute_command("CLUSTER", "SETSLOT", slot, "MIGRATING", others)
        try:
            with pytest.raises(BusUnavailable, match="is moving the slot: try again"), redis_errors():
                client.mget([KEYS[0], KEYS[0] + b"gone"])
        finally:
            source.execute_command("CLUSTER", "SETSLOT", slot, "STABLE")


def test_options_are_changed_in_a_transaction(cluster: Cluster, prefix: str) -> None:
    settings = Settings(prefix=prefix, partitions=2)
    open_bus(cluster.url, settings)
    with connect(cluster.url) as client:
        change_options(client, prefix, lambda _: Options(burst=7))
    assert open_bus(cluster.url, settings).options == Options(burst=7)


def test_only_the_commands_of_a_dead_node_fail_and_who_comes_later_finds_the_others(short_path: Path) -> None:
    with Cluster(short_path, replicas=False, **PATIENT) as cluster, connect(cluster.url) as client:
        assert client.ping()
        cluster.kill(0)
        for _ in range(3):
            pipe = client.pipeline(transaction=False)
            pipe.incr(KEYS[0]).incr(KEYS[1]).incr(KEYS[2])
            dead, *living = pipe.execute(raise_on_error=False)
            assert isinstance(dead, ConnectionError | ClusterError)
            assert all(isinstance(reply, int) for reply in living)
        with pytest.raises(ClusterError, match="is away"):
            client.pipeline().incr(KEYS[0]).execute(raise_on_error=False)
        with pytest.raises(BusUnavailable, match="wait for the failover"):
            execute(node_of(client, KEYS[0]).pipeline().get(KEYS[0]))
        # The url names the dead node alone, but this process knows the others.
        with connect(cluster.url) as later:
            assert later.incr(KEYS[1]) == 4
        cluster.restart(0)
        wait_for(lambda: client.incr(KEYS[0]))


def test_another_node_at_an_address_of_old_is_not_spoken_to(short_path: Path) -> None:
    """A pod's address may pass to a node of another cluster; here the node has only forgotten who it was."""
    with Cluster(short_path, replicas=False, **PATIENT) as cluster, connect(cluster.url) as client:
        client.incr(KEYS[0])
        with cluster.node(0) as node:
            node.flushall()
            node.execute_command("CLUSTER", "RESET", "HARD")
            node.config_set("cluster-node-timeout", 1500)  # about as long as it waits before it says that it is ready
            node.execute_command("CLUSTER", "ADDSLOTSRANGE", 0, SLOTS - 1)
            node.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
            wait_for(lambda: "cluster_state:ok" in str(node.execute_command("CLUSTER", "INFO")))
        nodes = _maps.get(cluster.url)
        assert nodes is not None
        with pytest.raises(ConnectionError, match="another node listens at"):
            client.incr(KEYS[0])
        for _ in range(5):
            nodes.load()  # it tells of a cluster of its own, and is not believed
        assert client.incr(KEYS[1]) == 1
        with cluster.node(0) as node:
            assert node.get(KEYS[0]) is None
