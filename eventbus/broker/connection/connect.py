"""Finds the bus's server and makes a client for it: a single server, the primary of sentinels, or a cluster."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from eventbus.broker import OLDEST_VERSION
from eventbus.broker.connection.address import Address, Endpoint, parse_address, with_password
from eventbus.broker.redis_errors import redis_errors
from eventbus.errors import BusRefused, BusUnavailable, ConfigError
from eventbus.settings import Settings

if TYPE_CHECKING:
    import redis

    from eventbus.broker.connection.cluster import ClusterMap

#: by url; kept for the life of the process: a second open must find the cluster without the node of the url
_maps: dict[str, ClusterMap] = {}

#: every client of the bus: redis.Redis or our ClusterClient; redis-py's types promise awaitables and bytes at random
Client: TypeAlias = Any


class ServerInfo(msgspec.Struct, frozen=True):
    """Facts that a server reports about itself; None: not reported."""

    kind: str  #: `redis`, `valkey`; other servers count as `redis`
    version: tuple[int, ...]  #: of that kind: Valkey 9.1 is (9, 1, 2), though it also calls itself Redis 7.2
    cluster: bool
    replica_of: str = ""  #: the address of its primary, as far as known; '' for a primary
    maxmemory_policy: str | None = None


def resolve_url(url: str | None, settings: Settings) -> str | None:
    """Return the url of the bus: *url*, else that of *settings*, else the embedded server's, started if needed.

    `none` for either means no bus: events are only logged. The password of *settings* is added where the url has none:
    show the result with `safe_url`. No connection is made to a given url, and there is no fallback from it. It
    may block for as long as the embedded server loads its data.

    Raises: ConfigError: scheme, port, options or password file cannot be used, or no embedded server can be started.
            BusUnavailable: there is an embedded server and it does not answer.
    """
    chosen = url or settings.redis_url
    if chosen.lower() == "none":
        return None
    if chosen:
        parse_address(chosen)
        return with_password(chosen, settings.password)
    from eventbus.broker.embedded.server import EmbeddedServer, default_directory

    own = {"EVENTBUS_STATE_DIR": settings.state_dir} if settings.state_dir else {}
    return EmbeddedServer(default_directory({**os.environ, **own})).start()


def connect(url: str, *, block_ms: int = 0, name: str = "eventbus") -> Client:
    """Make a client and connect it; it goes to all nodes if the server is one of a cluster.

    Arguments, threads and timeouts as in `make_client`. Blocks for 5 s at most for each host of the url that is away;
    where this process knows the cluster already, for a second or two for each node that is away.

    Raises: BusUnavailable: not reachable now; call again.  BusRefused: it will not have us; the message says why.
            ConfigError: the url cannot be used, or not for this kind of server.
    Redis:  INFO, which every role may use; a cluster: CLUSTER SLOTS.
    """
    return _connect(url, block_ms, name)[0]


def connect_checked(url: str, *, name: str) -> tuple[Client, ServerInfo]:
    """Connect as `connect` does, and check as `check_server` does. A single server gets one INFO for both."""
    client, info = _connect(url, 0, name)
    try:
        return client, check_server(client) if info is None else _checked(info)
    except BaseException:
        client.close()
        raise


def _connect(url: str, block_ms: int, name: str) -> tuple[Client, ServerInfo | None]:
    """Return a connected client, and the facts of a single server. Raises: as `connect`."""
    from redis.exceptions import RedisError

    address = parse_address(url)
    if (nodes := _maps.get(url)) is not None:
        with suppress(RedisError):
            nodes.load()
            return cluster_client(url, block_ms=block_ms, name=name), None
    problem: BusUnavailable | None = None
    # None: the socket, or the primary that the sentinels name.
    for endpoint in [None] if address.socket or address.primary else address.endpoints:
        try:
            return _connect_at(endpoint, url, address, block_ms, name)
        except BusUnavailable as error:
            problem = error
    assert problem is not None
    raise problem


def cluster_client(url: str, *, block_ms: int, name: str) -> Client:
    """Make a client for the cluster at *url*, to which this process has connected before; nothing is sent yet.

    Where it has not, as `connect`.
    """
    nodes = _maps.get(url)
    if nodes is None:
        return connect(url, block_ms=block_ms, name=name)
    from eventbus.broker.connection.cluster import client_of  # only programs that connect to a cluster need it

    return client_of(nodes, parse_address(url), block_ms=block_ms, name=name)


def make_client(url: str, *, block_ms: int = 0, name: str = "eventbus") -> redis.Redis:
    """Make a client for one server, not connected yet. Bytes in, bytes out, replies in the shapes of RESP2.

    Where the url has sentinels that is the primary they name, asked for at each connection; where it has several hosts,
    the first. One thread uses one socket, connected at its first call and again after an error; threads that share a
    client get a socket each. Nothing is retried: a call that raised BusUnavailable may have had its effect.

    Args:   block_ms: the longest BLOCK this client will be used with; a reply may take 5 s longer.
            name: for CLIENT LIST; no spaces.
    Raises: ConfigError: the url cannot be used.
    """
    from eventbus.broker.connection.plain_client import plain_client

    return plain_client(parse_address(url), block_ms=block_ms, name=name)


def check_server(client: Client) -> ServerInfo:
    """Check that the server can hold a bus, and return its facts. On a cluster every primary is asked.

    Returns: ServerInfo of the (first) server.
    Raises:  BusRefused: too old, or it evicts keys when full; the message has the cure.  BusUnavailable: no reply.
    Redis:   INFO. No CONFIG: no role has it, and each opening would leave a line in the ACL log.
    """
    with redis_errors():
        servers = [_facts(node) for node in primaries(client)]
    return _checked(*servers)


def is_cluster(client: Client) -> bool:
    """Return True if *client* routes commands to the nodes of a cluster."""
    return hasattr(client, "primaries")


def primaries(client: Client, keys: Iterable[bytes] | None = None) -> list[Client]:
    """Return a client for each server that takes writes; with *keys*, only for those that hold one of them.

    That is the client itself, or one for each of the primaries of a cluster.

    Raises: BusUnavailable: a key's node is away.
    """
    if not is_cluster(client):
        return [client]
    with redis_errors():
        clients: list[Client] = client.primaries(keys)
        return clients


def node_of(client: Client, key: bytes) -> Any:
    """Return a client for the one server that holds *key*: the client itself, or one for that node of the cluster."""
    return client.at(key) if is_cluster(client) else client


def _checked(*servers: ServerInfo) -> ServerInfo:
    for info in servers:
        _refuse_unfit(info)
    if primary := next((info.replica_of for info in servers if info.replica_of), ""):
        cure = "give the primary's address, or that of its sentinels: redis+sentinel://host:26379/NAME/0"
        raise BusUnavailable(f"this server is a replica of {primary} and takes no writes: {cure}", cure=cure)
    return servers[0]


def _connect_at(
    endpoint: Endpoint | None, url: str, address: Address, block_ms: int, name: str
) -> tuple[Client, ServerInfo | None]:
    from eventbus.broker.connection.plain_client import plain_client

    client = plain_client(address, endpoint=endpoint, block_ms=block_ms, name=name)
    try:
        with redis_errors(url):
            info = _facts(client)
        if not info.cluster:
            _refuse_several(address)
            _maps.pop(url, None)
            return client, info
    except BaseException:
        client.close()
        raise
    client.close()
    if endpoint is None or address.database:
        cure = "give the host and port of some of its nodes, and database 0"
        raise ConfigError(f"{address.shown} is a node of a cluster: {cure}", cure=cure)
    from eventbus.broker.connection.cluster import map_of

    nodes = _maps.setdefault(url, map_of(address))
    with redis_errors(url):
        nodes.load(endpoint)
    return cluster_client(url, block_ms=block_ms, name=name), None


def _refuse_several(address: Address) -> None:
    if len(address.endpoints) > 1 and not address.primary:
        raise ConfigError(
            f"{address.shown}: several hosts are nodes of one cluster, and this server is of none: give one host, or "
            "the sentinels of a primary and its replicas: redis+sentinel://s1:26379,s2:26379/NAME/0"
        )


def _facts(client: Client) -> ServerInfo:
    info = client.info()
    if "sentinel" in (info.get("redis_mode"), info.get("server_mode")):
        raise BusRefused(_is_sentinel(client))
    primary = f"{info.get('master_host')}:{info.get('master_port')}"
    return ServerInfo(
        kind="valkey" if "valkey_version" in info else "redis",
        version=_numbers(info.get("valkey_version") or info.get("redis_version", "")),
        cluster=info.get("cluster_enabled") == 1,
        replica_of=primary if info.get("role") == "slave" else "",
        maxmemory_policy=info.get("maxmemory_policy"),
    )


def _is_sentinel(client: Client) -> str:
    """Return the error message for a sentinel, with the primaries that it watches, if it reports them."""
    from redis.exceptions import RedisError

    names: list[str] = []
    with suppress(RedisError):
        watched = client.execute_command("SENTINEL", "MASTERS")
        names = [dict(zip(one[::2], one[1::2], strict=True))[b"name"].decode("utf-8", "replace") for one in watched]
    watches = f"; it watches {', '.join(names)}" if names else ""
    name = names[0] if names else "NAME"
    return f"that is a sentinel, which keeps no events{watches}: say redis+sentinel://host:26379/{name}/0"


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".") if part.isdecimal())


def _refuse_unfit(info: ServerInfo) -> None:
    if info.version and info.version < OLDEST_VERSION[info.kind]:
        shown = f"{info.kind.capitalize()} {'.'.join(map(str, info.version))}"
        raise BusRefused(f"this server is {shown}; eventbus needs Redis >= 7.0 or Valkey >= 8")
    if info.maxmemory_policy not in (None, "noeviction"):
        raise BusRefused(
            f"this server deletes keys when it is full (maxmemory-policy {info.maxmemory_policy}), and events with "
            "them: CONFIG SET maxmemory-policy noeviction, and write it into its configuration file"
        )
