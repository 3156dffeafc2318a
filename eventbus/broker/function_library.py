"""The function libraries on the servers: loads the library of this build next to those of other builds, and prunes.

Processes announce their build on each bus, so that libraries in use are not deleted.
"""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from eventbus.broker.build import build, library, library_name
from eventbus.broker.calls import call_function
from eventbus.broker.connection.connect import Client, is_cluster, primaries
from eventbus.broker.keys import Keys
from eventbus.broker.redis_errors import redis_errors
from eventbus.errors import BusRefused, EventBusError, FunctionsForbidden, FunctionsMissing
from eventbus.model.formats import BASELINE_CODECS, FORMATS, parse_numbers
from eventbus.util.log import log

#: A process announces its build so often, seconds; a build that was announced in the last ten minutes is in use.
ANNOUNCE_EVERY_S = 30.0
IN_USE_S = 600.0
_LIBRARY = re.compile(r"eventbus_([0-9a-f]{8})\Z")
#: The keys of all buses in which processes announce.
_ANYWHERE = "*:{0}:builds"


class Announcement(msgspec.Struct, frozen=True, rename="camel"):
    """The last time that a process said which build it is."""

    build: str
    role: str  #: worker or recorder
    name: str
    age_s: float
    formats: tuple[int, ...] = ()
    codecs: tuple[int, ...] = ()
    prefix: str = ""  #: of its bus

    @property
    def in_use(self) -> bool:
        """Return True if the process was there a moment ago."""
        return self.age_s < IN_USE_S


class Library(msgspec.Struct, frozen=True):
    """The functions of one build on the servers of a bus."""

    name: str
    build: str
    functions: int
    servers: int  #: that have it, of those that take writes
    announced: tuple[Announcement, ...] = ()  #: the newest first

    @property
    def is_ours(self) -> bool:
        """Return True if it is that of this program."""
        return self.name == library_name()

    @property
    def in_use(self) -> bool:
        """Return True if processes use it."""
        return any(each.in_use for each in self.announced)


def process_name() -> str:
    """Return a name of this process for people."""
    return f"{socket.gethostname()}-{os.getpid()}"


def read_announcements(client: Client, prefix: str) -> list[Announcement]:
    """Read the announcements of one bus, the newest first. Redis: HGETALL on its builds, TIME."""
    keys = Keys(prefix, 0)
    with redis_errors():
        fields: Any = client.hgetall(keys.builds)
        now_s = _now_s(client)
    return sorted(_parse(fields, prefix, now_s), key=lambda each: each.age_s)


def read_libraries(client: Client) -> list[Library]:
    """Read the libraries of eventbus on all servers that take writes, and the processes of all buses that use them.

    Redis: FUNCTION LIST, SCAN, HGETALL; where there are several databases, in each.
    """
    servers_by_build: dict[str, list[int]] = {}
    announced: list[Announcement] = []
    for server in primaries(client):
        with redis_errors():
            for library in server.execute_command("FUNCTION", "LIST", "LIBRARYNAME", "eventbus_*"):
                fields = _fields(library)
                if match := _LIBRARY.match(fields[b"library_name"].decode()):
                    servers_by_build.setdefault(match[1], []).append(len(fields[b"functions"]))
        announced += _announced_on(server, one_database=is_cluster(client))
    announced.sort(key=lambda each: each.age_s)
    return [
        Library(library_name(of), of, max(sizes), len(sizes), tuple(each for each in announced if each.build == of))
        for of, sizes in sorted(servers_by_build.items())
    ]


def delete_library(client: Client, name: str) -> None:
    """Delete a library from every server that has it. Redis: FUNCTION DELETE."""
    from redis.exceptions import ResponseError

    for server in primaries(client):
        with redis_errors():
            try:
                server.execute_command("FUNCTION", "DELETE", name)
            except ResponseError as error:
                if "Library not found" not in str(error):
                    raise


def prune(client: Client) -> list[str]:
    """Delete the libraries of other builds that are not in use. Returns: their names."""
    gone = [each.name for each in read_libraries(client) if not each.is_ours and not each.in_use]
    for name in gone:
        delete_library(client, name)
    return gone


def cannot_read(announced: Iterable[Announcement], formats: Iterable[int], codecs: Iterable[int]) -> list[Announcement]:
    """Return those that are in use and lack one of *formats*, or, workers, one of *codecs*."""
    wanted_formats, wanted_codecs = set(formats), set(codecs)
    return [
        each
        for each in announced
        if each.in_use
        and (
            not wanted_formats <= set(each.formats) or (each.role == "worker" and not wanted_codecs <= set(each.codecs))
        )
    ]


def describe(announcement: Announcement) -> str:
    """Return the process and the time of an announcement, for one line."""
    bus = f" of bus {announcement.prefix}" if announcement.prefix else ""
    return f"{announcement.role} {announcement.name}{bus}, {announcement.age_s:.0f} s ago"


def _announced_on(server: Client, *, one_database: bool) -> Iterator[Announcement]:
    with redis_errors():
        if one_database:
            yield from _announced_here(server)
            return
        chosen = server.connection_pool.connection_kwargs.get("db", 0)
        databases = [int(name[2:]) for name in server.info("keyspace") if name[2:].isdigit()]
        try:
            for database in databases:
                server.execute_command("SELECT", database)
                yield from _announced_here(server)
        finally:
            server.execute_command("SELECT", chosen)


def _announced_here(server: Client) -> Iterator[Announcement]:
    now_s = _now_s(server)
    for key in server.scan_iter(match=_ANYWHERE, count=1000):
        prefix = key.decode("utf-8", "replace").partition(":")[0]
        yield from _parse(server.hgetall(key), prefix, now_s)


def _now_s(client: Client) -> float:
    seconds, microseconds = client.time()
    return float(seconds + microseconds / 1e6)


def _parse(fields: dict[bytes, bytes], prefix: str, now_s: float) -> Iterator[Announcement]:
    for field, value in fields.items():
        of, _, role = field.decode("utf-8", "replace").partition("/")
        words = value.decode("utf-8", "replace").split(" ", 3)
        if len(words) == 4 and words[0].isdigit():
            age_s = max(0.0, now_s - int(words[0]) / 1000)
            formats, codecs = parse_numbers(words[1], FORMATS), parse_numbers(words[2], BASELINE_CODECS)
            yield Announcement(of, role, words[3], age_s, formats, codecs, prefix)


def _fields(pairs: Any) -> dict[bytes, Any]:
    return pairs if isinstance(pairs, dict) else dict(zip(pairs[::2], pairs[1::2], strict=True))


#: The cure of every error that says that functions of this build are missing.
LOAD_CURE = "run `eventbus functions load` of this version as a user of role admin"


def load(client: Client) -> bool:
    """Load this build's library on every server that takes writes and lacks it. Returns whether any did.

    Nothing is replaced: libraries of other builds have other names.

    Raises: FunctionsMissing: this user may not load functions; the message has the role that may.  BusUnavailable.
    """
    loaded = False
    for server in primaries(client):
        try:
            with redis_errors():  # asked first: a user that may not load is refused without the whole source
                if server.execute_command("FUNCTION", "LIST", "LIBRARYNAME", library_name()):
                    continue
                server.function_load(library())
            loaded = True
            log.info("loaded the functions of build %s", build())
        except BusRefused as error:
            raise FunctionsMissing(
                f"the functions of build {build()} are not loaded, and this user may not load them: {LOAD_CURE}",
                cure=LOAD_CURE,
            ) from error
        except EventBusError as error:
            if "already exists" not in str(error):  # by another process, in this moment
                raise
    return loaded


def load_missing(client: Client) -> None:
    """Load this build's library unless it is there. Raises: FunctionsMissing: this user may not.  BusUnavailable."""
    try:
        call_function(client, "build", ())
    except FunctionsForbidden:
        raise
    except FunctionsMissing:
        load(client)


def refusal(client: Client, error: FunctionsForbidden) -> EventBusError:
    """Return *error*, or a BusRefused if the user may call functions of this build, only not that one.

    Redis: FCALL build, which every role may.
    """
    try:
        call_function(client, "build", ())
    except EventBusError:
        return error
    return BusRefused(
        "the server does not permit this to the user: its role lacks that function (`eventbus acl --role …` prints "
        "the rights of a role)"
    )
