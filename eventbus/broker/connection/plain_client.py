"""Makes all clients of redis-py: each for one server, and none retries. With sentinels, that is the current primary.

The sentinel client of redis-py waits for a sentinel without limit, and does not check that the named server is a
primary. So each connection asks the sentinels itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import redis
from redis.backoff import NoBackoff
from redis.connection import Connection, SSLConnection, UnixDomainSocketConnection
from redis.exceptions import ReadOnlyError, RedisError
from redis.retry import Retry
from redis.sentinel import MasterNotFoundError

from eventbus.broker.connection.address import Address, Endpoint
from eventbus.broker.connection.tls import tls_options

#: seconds to connect to one sentinel, and for its answer
SENTINEL_S = 1.0


class Sentinels:
    """The sentinels of one primary; the last one that was right comes first. Shared by a client's connections.

    Args: name: of the primary, as the sentinels know it.  make: makes a client for one sentinel.
    """

    def __init__(self, name: str, endpoints: Sequence[Endpoint], make: Callable[[Endpoint], redis.Redis]) -> None:
        self._name = name
        self._order = list(endpoints)
        self._make = make

    def primary(self) -> Endpoint:
        """Ask the sentinels in turn, and return the address that the first one to answer gives for the primary.

        Blocks for up to 2 s a sentinel that is away.

        Raises: MasterNotFoundError: none of them has the address; call again.
        """
        problems = []
        for endpoint in list(self._order):
            try:
                with self._make(endpoint) as client:
                    reply: Any = client.execute_command("SENTINEL", "GET-MASTER-ADDR-BY-NAME", self._name)
            except RedisError as error:
                problems.append(f"{endpoint}: {error}")
                self.distrust(endpoint)
                continue
            if reply:
                self._trust(endpoint)
                return Endpoint(reply[0].decode(), int(reply[1]))
            problems.append(f"{endpoint} knows no primary of the name {self._name}")
        raise MasterNotFoundError("; ".join(problems))

    def distrust(self, endpoint: Endpoint | None = None) -> None:
        """From now on ask *endpoint*, by default the sentinel asked last, after all others."""
        last = endpoint or self._order[0]
        self._order = [*(each for each in self._order if each != last), last]

    def _trust(self, endpoint: Endpoint) -> None:
        self._order = [endpoint, *(each for each in self._order if each != endpoint)]


class _ToPrimary:
    """Connects to the server that the sentinels name, if it is a primary. A mixin for redis-py's connections."""

    host: str
    port: int

    def __init__(self, *, sentinels: Sentinels, **options: Any) -> None:
        self._sentinels = sentinels
        super().__init__(**options)

    def _connect(self) -> Any:
        self.host, self.port = self._sentinels.primary()
        return super()._connect()  # type: ignore[misc]

    def on_connect_check_health(self, check_health: bool = True) -> None:
        super().on_connect_check_health(check_health)  # type: ignore[misc]
        # No ACL can forbid HELLO, as it can ROLE.
        self.send_command("HELLO", 2)  # type: ignore[attr-defined]
        facts = self.read_response()
        role = dict(zip(facts[::2], facts[1::2], strict=True)).get(b"role")
        if role != b"master":
            self._sentinels.distrust()
            raise MasterNotFoundError(f"{Endpoint(self.host, self.port)}, named by a sentinel, is no primary")

    def read_response(self, *args: Any, **options: Any) -> Any:
        try:
            return super().read_response(*args, **options)  # type: ignore[misc]
        except ReadOnlyError as error:
            # It was the primary when we connected. Only a new connection asks the sentinels again.
            self.disconnect()  # type: ignore[attr-defined]
            raise MasterNotFoundError(f"{Endpoint(self.host, self.port)} has become a replica") from error


class ToPrimary(_ToPrimary, Connection):
    """A plain connection to the primary."""


class ToPrimaryByTls(_ToPrimary, SSLConnection):
    """A TLS connection to the primary."""


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
