"""Makes clients of a cluster, and keeps one map of each cluster in this process."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import redis
from redis.exceptions import ConnectionError, NoPermissionError

from eventbus.broker.connection.address import Address, Endpoint
from eventbus.broker.connection.plain_client import plain_client

if TYPE_CHECKING:
    from eventbus.broker.connection.cluster_client import ClusterClient
    from eventbus.broker.connection.cluster_map import ClusterMap, Node

#: seconds to connect to a node, and for its answer, when it is asked for the slots
ASK_S = 1.0

#: by url; kept for the life of the process: a second open must find the cluster without the node of the url
_maps: dict[str, ClusterMap] = {}


def find_map(url: str) -> ClusterMap | None:
    """Return the map of the cluster at *url*, if this process has connected to it."""
    return _maps.get(url)


def keep_map(url: str, address: Address) -> ClusterMap:
    """Return the map of the cluster at *url*, made if it is missing; no node is asked yet."""
    from eventbus.broker.connection.cluster_map import ClusterMap

    return _maps.setdefault(url, ClusterMap(address.endpoints, _Asker(address)))


def forget_map(url: str) -> None:
    """Forget the map of *url*: there is no cluster any more."""
    _maps.pop(url, None)


def cluster_client(nodes: ClusterMap, address: Address, *, block_ms: int, name: str) -> ClusterClient:
    """Make a client for all nodes; nothing is sent yet."""
    from eventbus.broker.connection.cluster_client import ClusterClient

    def make(node: Node) -> redis.Redis:
        return plain_client(address, name=name, endpoint=node.endpoint, block_ms=block_ms, on_connect=_greeting(node))

    return ClusterClient(nodes, make)


class _Asker:
    def __init__(self, address: Address) -> None:
        self._address = address

    def slots(self, endpoint: Endpoint) -> Sequence[Any]:
        with plain_client(self._address, name="eventbus-cluster", endpoint=endpoint, timeout_s=ASK_S) as client:
            reply: Sequence[Any] = client.execute_command("CLUSTER", "SLOTS")
            return reply

    def ping(self, node: Node) -> None:
        greeting = _greeting(node)
        with plain_client(
            self._address, name="eventbus-cluster", endpoint=node.endpoint, timeout_s=ASK_S, on_connect=greeting
        ) as client:
            client.ping()


def _greeting(node: Node) -> Any:
    """Make the greeting of a new connection, which refuses any other node than *node*.

    Its address may belong to another cluster by now, with another bus."""

    def greet(connection: Any) -> None:
        connection.on_connect()
        if not node.id:
            return
        connection.send_command("CLUSTER", "MYID")
        try:
            found = connection.read_response()
        except NoPermissionError:
            return
        if found.decode() != node.id:
            raise ConnectionError(f"another node listens at {node} now")

    return greet


__all__ = ["cluster_client", "find_map", "forget_map", "keep_map"]
