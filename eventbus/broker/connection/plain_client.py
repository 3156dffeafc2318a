"""Makes all of redis-py's clients: each for one server, and none retries."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import redis
from redis.backoff import NoBackoff
from redis.connection import Connection, SSLConnection, UnixDomainSocketConnection
from redis.retry import Retry

from eventbus.broker.connection.address import Address, Endpoint
from eventbus.broker.connection.sentinel import SENTINEL_S, Sentinels, ToPrimary, ToPrimaryByTls
from eventbus.broker.connection.tls import tls_options

#: longest wait for a reply, seconds; a blocking read adds its block time
REPLY_S = 5.0
CONNECT_S = 5.0


def plain_client(
    address: Address,
    *,
    name: str,
    endpoint: Endpoint | None = None,
    block_ms: int = 0,
    timeout_s: float | None = None,
    on_connect: Callable[[Any], None] | None = None,
) -> redis.Redis:
    """Make a client that has not connected yet, for one server of *address*.

    Bytes in, bytes out, in the shapes of RESP2.

    Args:   endpoint: which of its servers; None: the primary of its sentinels, its socket, or the first.
            timeout_s: for reaching it and for a reply, instead of 5 s each.
            on_connect: greets the server, in the place of redis-py's own `connection.on_connect()`.
    Raises: ConfigError: an option or a file of TLS cannot be used.
    """
    options: dict[str, Any] = {
        "db": address.database,
        "username": address.username or None,
        "password": address.password or None,
        "socket_timeout": block_ms / 1000 + (timeout_s or REPLY_S),
        "socket_connect_timeout": timeout_s or CONNECT_S,
        "client_name": name,
        "decode_responses": False,
        # RESP2 on the wire, too: no HELLO, no push messages, and reply shapes that no later default changes.
        "protocol": 2,
        "legacy_responses": True,
        # CLIENT SETINFO does not exist in 7.0: two refused commands a connection, and two denials in the ACL log.
        "driver_info": None,
        "retry": Retry(NoBackoff(), 0),
        "health_check_interval": 0,
        "redis_connect_func": on_connect,
    }
    if address.socket:
        options |= {"connection_class": UnixDomainSocketConnection, "path": address.socket}
        return _from(options)
    options |= {"socket_keepalive": True, **(tls_options(address) if address.tls else {})}
    if address.primary and endpoint is None:
        sentinels = Sentinels(address.primary, address.endpoints, _sentinel_maker(address, name))
        kind: type = ToPrimaryByTls if address.tls else ToPrimary
        return _from(options | {"connection_class": kind, "sentinels": sentinels})
    host, port = endpoint or address.endpoints[0]
    kind = SSLConnection if address.tls else Connection
    return _from(options | {"connection_class": kind, "host": host, "port": port})


def _sentinel_maker(address: Address, name: str) -> Callable[[Endpoint], redis.Redis]:
    """Return a maker of clients for sentinels, which have users of their own, or none, and no databases."""
    plain = Address(
        scheme=address.scheme,
        endpoints=address.endpoints,
        options={name: value for name, value in address.options.items() if name.startswith("ssl_")},
        shown=address.shown,
        username=address.options.get("sentinel_username", ""),
        password=address.options.get("sentinel_password", ""),
    )
    return lambda endpoint: plain_client(plain, name=name, endpoint=endpoint, timeout_s=SENTINEL_S)


def _from(options: dict[str, Any]) -> redis.Redis:
    return redis.Redis.from_pool(redis.ConnectionPool(**options))


__all__ = ["CONNECT_S", "REPLY_S", "plain_client"]
