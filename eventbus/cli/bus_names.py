"""Reads names for a shell's completion from a bus that is up, quickly, without making, starting or logging anything."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from eventbus.settings import Settings

if TYPE_CHECKING:
    from eventbus.broker.connection.connect import Client
    from eventbus.broker.keys import Keys

#: Timeout of a completion, seconds. It also bounds waits without a socket timeout, like those for a name server.
TIMEOUT_S = 1.0
#: Variable with another timeout, for machines that are too busy to answer within a second.
TIMEOUT_VARIABLE = "EVENTBUS_COMPLETION_TIMEOUT_S"
#: Maximum number of useful names.
MOST = 100


class BusNames:
    """Reads names from the indexes of one bus. Raises the errors of Redis and its client."""

    def __init__(self, client: Client, partitions: Sequence[Keys]) -> None:
        self._client = client
        self._partitions = partitions

    def groups(self) -> list[str]:
        """Return the consumer groups.

        Redis: XINFO GROUPS on the first partition's stream; every group is on all of them."""
        return [_text(group["name"]) for group in self._client.xinfo_groups(self._partitions[0].incoming)]

    def sinks(self) -> list[str]:
        """Return `export:NAME` for each external sink that ever had a worker. Redis: HGETALL on meta."""
        fields = [field for keys in self._partitions for field in self._client.hgetall(keys.meta)]
        return sorted({_text(field) for field in fields if field.startswith(b"export:")})

    def notifier(self) -> list[str]:
        """Return `worker:notify` if there is a state of the notifier. Redis: HKEYS; a forgotten one leaves its term."""
        fields = set(self._client.hkeys(self._partitions[0].notify))
        return ["worker:notify"] if fields - {b"term"} else []

    def namespaces(self) -> list[str]:
        """Return the namespaces that hold events. Redis: ZRANGE on index:name, once a namespace."""
        return sorted({name for keys in self._partitions for name in self._namespaces(keys)})

    def _namespaces(self, keys: Keys) -> Iterator[str]:
        start = b""
        for _ in range(MOST):
            members = self._members(keys.index_name, start, 1)
            if not members:
                return
            namespace = members[0].partition(b"/")[0]
            yield _text(namespace)
            start = namespace + b"0"  # the character after the slash: later members are of another namespace

    def silences(self, begin: str) -> list[str]:
        """Return the names of silences that begin with *begin*. Redis: ZRANGE on index:name."""
        start = f"/{begin}".encode()
        members = self._members(self._partitions[0].index_name_of("silences"), start, MOST)
        return [_text(member[1:].partition(b"\0")[0]) for member in members if member.startswith(start)]

    def objects(self, namespace: str, begin: str) -> list[tuple[str, str]]:
        """Return kind, in lower case, and name of the objects of events, where `kind/name` begins with *begin*.

        Redis: ZRANGE on index:object.
        """
        kind, slash, name = begin.partition("/")
        start = f"{namespace}/{kind.lower()}{slash}{name}".encode()
        members = [member for keys in self._partitions for member in self._members(keys.index_object, start, MOST)]
        objects = [
            _text(member.partition(b"\0")[0]).split("/", 2)[1:] for member in members if member.startswith(start)
        ]
        return sorted({(kind, name) for kind, name in objects})

    def _members(self, index: bytes, start: bytes, most: int) -> list[bytes]:
        low = b"[" + start if start else b"-"
        members: list[bytes] = self._client.execute_command("ZRANGE", index, low, "+", "BYLEX", "LIMIT", 0, most)
        return members


def _timeout_s() -> float:
    try:
        return max(0.001, float(os.environ.get(TIMEOUT_VARIABLE, "")))
    except ValueError:
        return TIMEOUT_S


def ask_bus(question: Callable[[BusNames], list[Any]]) -> list[Any]:
    """Return the answer to *question*; [] if the bus is unreachable, slow, missing, or not readable. Main thread."""
    before = signal.signal(signal.SIGALRM, _on_timeout)
    signal.setitimer(signal.ITIMER_REAL, _timeout_s())
    try:
        with _open_names() as names:
            return question(names) if names else []
    except Exception:
        return []
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@contextmanager
def _open_names() -> Iterator[BusNames | None]:
    settings = Settings.from_environ(os.environ)
    url = _url(settings)
    if url is None:
        yield None
        return
    from eventbus.broker.connection.connect import connect
    from eventbus.broker.keys import Keys, bus_key

    client = connect(url, name="eventbus-completion")
    try:
        count = client.hget(bus_key(settings.prefix), "partitions")
        yield BusNames(client, [Keys(settings.prefix, number) for number in range(int(count))]) if count else None
    finally:
        client.close()


def _url(settings: Settings) -> str | None:
    """As `session.find_url`, but without starting a server."""
    if settings.url:
        return None  # the command will ask an API worker, so names in Redis would be wrong
    if settings.redis_url:
        from eventbus.broker.connection.connect import resolve_url

        return resolve_url(None, settings)
    from eventbus.broker.embedded.server import EmbeddedServer, default_directory

    server = EmbeddedServer(default_directory(os.environ))
    return server.url if server.running() else None


def _on_timeout(*_: object) -> None:
    raise TimeoutError


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")
