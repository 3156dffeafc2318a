"""Where the bus is, and the only maker of redis clients.

redis-py retries every command ten times by default and so duplicates what it sends; no client made here retries
anything. Who may call again, and when, is decided by the callers around idempotent calls.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import parse_qs, quote, urlsplit

import msgspec

from eventbus.broker.redis_errors import redis_errors, safe_url, translate
from eventbus.broker.server_version import OLDEST_VERSION
from eventbus.errors import BusRefused, BusUnavailable, ConfigError
from eventbus.settings import Settings

if TYPE_CHECKING:
    import redis

#: every client of the bus: redis.Redis or redis.RedisCluster, whose own types promise awaitables and bytes at random
Client: TypeAlias = Any

SCHEMES = ("redis", "rediss", "unix")
#: how long a reply may be late, seconds; a blocking read adds its block, else redis-py would give it up in the middle
REPLY_S = 5.0
CONNECT_S = 5.0

#: what an url's query may say. redis-py lets it override anything, retries and reply shapes included
_URL_OPTIONS = {"db", "username", "password"} | {
    f"ssl_{name}"
    for name in ("ca_certs", "ca_path", "certfile", "keyfile", "password", "cert_reqs", "check_hostname", "min_version")
}
#: those of them that name a file or folder
_FILE_OPTIONS = {f"ssl_{name}" for name in ("ca_certs", "ca_path", "certfile", "keyfile")}


class ServerInfo(msgspec.Struct, frozen=True):
    """What a server tells of itself. None: it did not, or the user may not ask."""

    kind: str  #: `redis`, `valkey`; whatever else speaks the protocol counts as `redis`
    version: tuple[int, ...]  #: of that kind: Valkey 9.1 is (9, 1, 2), though it also calls itself Redis 7.2
    cluster: bool
    maxmemory: int | None = None  #: bytes, 0: no limit
    maxmemory_policy: str | None = None
    aof_enabled: bool | None = None


def resolve_url(url: str | None, environ: Mapping[str, str]) -> str | None:
    """The url of the bus: *url*, else EVENTBUS_REDIS_URL, else that of the embedded server, started if need be.

    `none` for either means no bus: events are only logged. The password of EVENTBUS_REDIS_PASSWORD_FILE or
    EVENTBUS_REDIS_PASSWORD is put in where the url has none: show the result with `safe_url`. No connection is made to
    a given url, and there is no fallback from it. The embedded server may block for as long as it loads its data.

    Raises: ConfigError: scheme, port, options or password file cannot be used, or no embedded server can be started.
            BusUnavailable: there is an embedded server and it does not answer.
    """
    chosen = url or environ.get("EVENTBUS_REDIS_URL", "")
    if chosen.lower() == "none":
        return None
    if chosen:
        return _with_password(chosen, _password_of(environ))
    from eventbus.broker.embedded import EmbeddedServer, default_directory

    return EmbeddedServer(default_directory(environ)).start()


def connect(url: str, *, block_ms: int = 0, name: str = "eventbus", password: str | None = None) -> Client:
    """A client that has reached its server, and goes to all nodes if that is one of a cluster.

    Arguments, threads and timeouts as in `make_client`. Blocks for 5 s at most (a cluster: per node that is away).

    Raises: BusUnavailable: not reachable now; call again.  BusRefused: it will not have us; the message says why.
            ConfigError: the url cannot be used, or not for a cluster (unix socket, database other than 0).
    Redis:  INFO, or HELLO where the user may not; a cluster: CLUSTER SLOTS.
    """
    client = make_client(url, block_ms=block_ms, name=name, password=password)
    try:
        with redis_errors(url):
            if not _facts(client).cluster:
                return client
    except BaseException:
        client.close()
        raise
    client.close()
    return _make_cluster_client(url, block_ms=block_ms, name=name, password=password)


def make_client(url: str, *, block_ms: int = 0, name: str = "eventbus", password: str | None = None) -> redis.Redis:
    """A client for one server that has not connected yet. Bytes in, bytes out, replies in the shapes of RESP2.

    One thread uses one socket, connected at its first call and again after an error; threads that share a client get a
    socket each. Nothing is retried: a call that raised BusUnavailable may have had its effect.

    Args:   block_ms: the longest BLOCK this client will be used with; a reply may take 5 s longer.
            name: for CLIENT LIST; no spaces.  password: used where the url has none.
    Raises: ConfigError: the url cannot be used.
    """
    import redis

    _check_url(url)
    return redis.Redis.from_url(_with_password(url, password), **_options(url, block_ms, name))


def check_server(client: Client) -> ServerInfo:
    """What kind of server this is, or why it will not do. On a cluster every primary is asked.

    What the user may not read is taken to be right.

    Returns: ServerInfo of the (first) server.
    Raises:  BusRefused: too old, or it evicts keys when full; the message has the cure.  BusUnavailable: no reply.
    Redis:   INFO, or HELLO. No CONFIG: no role has it, and each opening would leave a line in the ACL log.
    """
    with redis_errors():
        servers = [_facts(node) for node in primaries(client)]
    for info in servers:
        _refuse_unfit(info)
    return servers[0]


def _check_url(url: str) -> None:
    scheme, found, _ = url.partition("://")
    if not found or scheme not in SCHEMES:
        given = f"{scheme}://" if found else "no scheme"
        raise ConfigError(
            f"the url of the bus has {given}; valid are redis://host:6379/0, rediss://host:6379/0 (TLS) and "
            "unix:///path/to.sock; a cluster is recognised by itself"
        )
    if (shown := safe_url(url)) == f"{scheme}://***":
        raise ConfigError(
            f"the url of the bus ({shown}) cannot be read: is the port a number? "
            "In a password / ? # @ [ ] must be quoted as %2F %3F %23 %40 %5B %5D, or use EVENTBUS_REDIS_PASSWORD"
        )
    parts = urlsplit(url)
    if unknown := parse_qs(parts.query).keys() - _URL_OPTIONS:
        raise ConfigError(f"{shown} has options {sorted(unknown)}; valid are {', '.join(sorted(_URL_OPTIONS))}")
    if scheme == "unix" and not parts.path:
        raise ConfigError(f"{shown} names no socket; say unix:///path/to.sock, with three slashes")
    for option, paths in parse_qs(parts.query).items():
        if option in _FILE_OPTIONS and not os.path.exists(paths[0]):
            raise ConfigError(f"{shown}: {option}={paths[0]}: there is no such file")
    if scheme != "unix" and parts.path.strip("/") and not parts.path.strip("/").isdecimal():
        raise ConfigError(f"{shown} must end with the number of a database, or nothing")


def _password_of(environ: Mapping[str, str]) -> str | None:
    return Settings(
        redis_password=environ.get("EVENTBUS_REDIS_PASSWORD", ""),
        redis_password_file=environ.get("EVENTBUS_REDIS_PASSWORD_FILE", ""),
    ).password


def _with_password(url: str, password: str | None) -> str:
    _check_url(url)
    parts = urlsplit(url)
    if not password or parts.password or "password" in parse_qs(parts.query):
        return url
    user, _, host = parts.netloc.rpartition("@")
    return parts._replace(netloc=f"{user.rstrip(':')}:{quote(password, safe='')}@{host}").geturl()


def _options(url: str, block_ms: int, name: str) -> dict[str, Any]:
    from redis.backoff import NoBackoff
    from redis.retry import Retry

    keepalive = {} if url.startswith("unix:") else {"socket_keepalive": True}  # that class does not know the word
    return {
        "socket_timeout": block_ms / 1000 + REPLY_S,
        "socket_connect_timeout": CONNECT_S,
        "client_name": name,
        "decode_responses": False,
        # RESP2 on the wire too: no HELLO, no push messages, and shapes that no later default can change.
        "protocol": 2,
        "legacy_responses": True,
        # CLIENT SETINFO does not exist in 7.0: two refused commands a connection, and two denials in the ACL log.
        "driver_info": None,
        "retry": Retry(NoBackoff(), 0),
        "health_check_interval": 0,
        **keepalive,
        **({"ssl_check_hostname": True} if url.startswith("rediss:") else {}),
    }


def _make_cluster_client(url: str, *, block_ms: int, name: str, password: str | None) -> redis.RedisCluster:
    """A client for all nodes; it follows MOVED and ASK (the call had no effect yet) and retries nothing else."""
    import redis

    parts = urlsplit(url)
    if parts.scheme == "unix" or parts.path.strip("/0") or parse_qs(parts.query).get("db", ["0"]) != ["0"]:
        raise ConfigError(f"{safe_url(url)} is a node of a cluster: give its host and port, and database 0")
    try:
        with redis_errors(url):
            # Slots of other partitions may be without a node; ours still work.
            return redis.RedisCluster.from_url(
                _with_password(url, password), require_full_coverage=False, **_options(url, block_ms, name)
            )
    except IndexError as error:  # how redis-py says that no slot at all has a node
        raise BusUnavailable(f"{safe_url(url)}: the cluster has no slots yet: wait, or add its nodes") from error


def primaries(client: Client) -> list[redis.Redis]:
    """A client for each server that takes writes: the one, or the primaries of a cluster."""
    import redis

    if isinstance(client, redis.Redis):
        return [client]
    nodes = client.get_primaries()  # redis-py leaves some untyped
    return [client.get_redis_connection(node) for node in nodes]


def _facts(client: redis.Redis) -> ServerInfo:
    from redis.exceptions import NoPermissionError

    try:
        info = client.info()
    except NoPermissionError:
        return _facts_of_hello(client)
    aof = info.get("aof_enabled")
    return ServerInfo(
        kind="valkey" if "valkey_version" in info else "redis",
        version=_numbers(info.get("valkey_version") or info.get("redis_version", "")),
        cluster=info.get("cluster_enabled") == 1,
        maxmemory=info.get("maxmemory"),
        maxmemory_policy=info.get("maxmemory_policy"),
        aof_enabled=None if aof is None else bool(aof),
    )


def _facts_of_hello(client: redis.Redis) -> ServerInfo:
    """The little that no ACL can forbid to know."""
    reply = client.execute_command("HELLO", 2)  # type: ignore[no-untyped-call]
    said = dict(zip(reply[::2], reply[1::2], strict=True))
    kind = "valkey" if said.get(b"server") == b"valkey" else "redis"
    return ServerInfo(kind, _numbers(said.get(b"version", b"").decode()), said.get(b"mode") == b"cluster")


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


__all__ = [
    "Client",
    "ServerInfo",
    "check_server",
    "connect",
    "make_client",
    "primaries",
    "redis_errors",
    "resolve_url",
    "safe_url",
    "translate",
]
