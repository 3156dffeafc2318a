"""Asks sentinels for the primary, again for every connection, so that a client survives a failover.

redis-py's own client waits for a sentinel without limit, and does not check that the named server is a primary.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import redis
from redis.connection import Connection, SSLConnection
from redis.exceptions import ReadOnlyError, RedisError
from redis.sentinel import MasterNotFoundError

from eventbus.broker.connection.address import Endpoint

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

        Raises: MasterNotFoundError: nobody says; call again.
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
        said = self.read_response()
        role = dict(zip(said[::2], said[1::2], strict=True)).get(b"role")
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


__all__ = ["SENTINEL_S", "Sentinels", "ToPrimary", "ToPrimaryByTls"]
