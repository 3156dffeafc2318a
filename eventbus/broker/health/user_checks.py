"""Checks the rights of users: those of the current user, command by command (ACL DRYRUN), and those without a name."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeAlias

import msgspec

from eventbus.broker.acl import (
    READS,
    Role,
    Use,
    functions_used,
    name_of,
    role_functions,
    role_uses,
)
from eventbus.broker.bus import Bus
from eventbus.broker.connection.address import parse_address
from eventbus.broker.connection.connect import Client, node_of
from eventbus.broker.connection.plain_client import plain_client
from eventbus.broker.health.findings import Finding, error, ok, warning
from eventbus.broker.health.status import execute
from eventbus.broker.keys import Keys, bus_key
from eventbus.broker.redis_errors import redis_errors
from eventbus.errors import BusRefused, ConfigError

#: The user of connections without a name; with `requirepass`, of all connections with the one password.
DEFAULT_USER = "default"


def check_users(bus: Bus) -> None:
    """Check that this process has a user of its own, and that the server refuses connections without a name.

    A socket in a folder that only this user may enter is as good: the kernel checks the user.

    Raises: ConfigError: one of them is wrong; with the cure.  BusUnavailable.
    Redis:  ACL WHOAMI; then as `accepts_nameless`.
    """
    if _is_private(parse_address(bus.url).socket):
        return
    client = bus.client(name="eventbus-users")
    try:
        with redis_errors(bus.url):
            user = node_of(client, bus.keys[0].meta).execute_command("ACL", "WHOAMI").decode()
    except BusRefused as error:
        raise ConfigError(f"{bus} does not report our user: {error}; give the user +acl|whoami") from error
    finally:
        client.close()
    if user == DEFAULT_USER:
        raise ConfigError(f"{bus} has us as the user {DEFAULT_USER}, like all connections without a name")
    if accepts_nameless(bus.url, bus.prefix):
        raise ConfigError(
            f"{bus} accepts connections without a name, as the user {DEFAULT_USER}: ACL SETUSER {DEFAULT_USER} off"
        )


def _is_private(socket: str) -> bool:
    try:
        folder = os.stat(os.path.dirname(socket)) if socket else None
    except OSError:
        return False
    return folder is not None and folder.st_uid == os.geteuid() and not stat.S_IMODE(folder.st_mode) & 0o077


def accepts_nameless(url: str, prefix: str) -> bool:
    """Return True if the server lets clients without user and password read a bus. Raises: BusUnavailable.

    Redis: EXISTS on the bus's key, by a connection without any credentials.
    """
    from redis.exceptions import MovedError

    address = msgspec.structs.replace(parse_address(url), username="", password="")
    nameless = plain_client(address, name="eventbus-nameless")
    try:
        # MOVED: another node of the cluster has the key. This one has checked the rights before.
        with redis_errors(url), suppress(MovedError):
            nameless.exists(bus_key(prefix))
    except BusRefused:
        return False
    finally:
        nameless.close()
    return True


#: Words after the key that make a call of the right length; the server checks that before the rights. K is the key.
_SHAPES: dict[str, str] = {
    **dict.fromkeys(("GET", "MGET", "DEL", "EXISTS", "HKEYS", "HLEN", "HGETALL", "XLEN", "ZCARD", "PTTL", "TYPE"), "K"),
    **dict.fromkeys(("XINFO|GROUPS", "WATCH"), "K"),
    **dict.fromkeys(("HGET", "HEXISTS", "ZSCORE", "XINFO|CONSUMERS", "XGROUP|DESTROY"), "K a"),
    "XADD": "K * a b",
    "XCLAIM": "K a b 0 0-1",
    "XREAD": "STREAMS K 0",
    "XREADGROUP": "GROUP a b STREAMS K >",
    "MSET": "K a",
}
_SHAPE = "K a b"
_KEYLESS_SHAPES = {
    "AUTH": "a",
    "SELECT": "0",
    "CLIENT|SETNAME": "a",
    "ACL|DRYRUN": "a PING",
    "FUNCTION|LOAD": "a",
    "FUNCTION|DELETE": "a",
    "CONFIG|GET": "a",
    "SCAN": "0",
}
#: A call: its command, keys and arguments.
_Words: TypeAlias = tuple[str | bytes, ...]

#: Missing rights named in one finding.
NAMED = 4


def check_rights(client: Client, prefix: str, role: Role | None) -> Finding:
    """Report the roles that the user of *client* fills, or the rights that it lacks for *role*."""
    try:
        with redis_errors():
            name = node_of(client, Keys(prefix, 0).meta).execute_command("ACL", "WHOAMI").decode()
        roles = read_lacking(client, prefix, name)
    except BusRefused:
        return warning(
            "acl", "this user may not ask for its rights", "give it +acl|whoami +acl|dryrun, as `eventbus acl` does"
        )
    user = f"user {name}"
    filled = [one for one, lacking in roles.items() if not lacking]
    if role is not None and role not in filled:
        return error("acl", f"{user} is no {role}: it may not {_named(roles[role])}", f"eventbus acl --role {role}")
    if not filled:
        nearest = min(roles, key=lambda one: len(roles[one]))
        return error(
            "acl",
            f"{user} fills no role; for {nearest} it may not {_named(roles[nearest])}",
            f"eventbus acl --role {nearest} prints the line that makes such a user",
        )
    return ok("acl", f"{user} may do all that is needed of: {', '.join(filled)}")


def check_replay(node: Any, prefix: str) -> list[Finding]:
    """Check that the user `default` may run the commands of the append-only file; no finding: it may, or has no file.

    When Redis 7.0 loads its file it checks each transaction against the rights of `default`, even if that user is off.
    It skips a transaction that `default` may not run, logs that, and goes on. Functions write in transactions. Later
    versions do not check (redis#14545, valkey#3984), but a server does not say which kind it is.
    """
    try:
        with redis_errors():
            if not node.info("persistence").get("aof_enabled"):
                return []
            uses = {use for function in functions_used().values() for use in function.uses if use.keys}
            writes = sorted(use for use in uses if use.command not in READS)
            denied = _denied(node, DEFAULT_USER, _calls_of(Keys(prefix, 0), prefix, writes))
    except BusRefused:  # `check_rights` names a user that may not ask
        return []
    if not denied:
        return []
    return [
        warning(
            "user",
            f"the user `{DEFAULT_USER}` lacks rights to this bus: Redis 7.0 loads its append-only file with the "
            "rights of that user, so a restart loses the events",
            f"write `user {DEFAULT_USER} off ~* &* +@all` into the ACL file (it permits no login), then ACL LOAD",
        )
    ]


def read_lacking(client: Client, prefix: str, user: str) -> dict[Role, list[str]]:
    """Return the rights that *user* lacks for each role. Raises: BusRefused: it may not ask.  BusUnavailable."""
    keys = Keys(prefix, 0)
    node = node_of(client, keys.meta)
    with redis_errors():
        node.execute_command("ACL", "DRYRUN", user, "PING")
    wanted: dict[Role, dict[str, _Words]] = {}
    for role in Role:
        wanted[role] = _calls_of(keys, prefix, role_uses(role))
        for function in role_functions(role):
            names = [_sample(keys, prefix, name) for name in function.keys]
            wanted[role][function.name] = ("FCALL", function.name, str(len(names)), *names)
    denied = _denied(node, user, {name: words for calls in wanted.values() for name, words in calls.items()})
    return {role: sorted(calls.keys() & denied) for role, calls in wanted.items()}


def _calls_of(keys: Keys, prefix: str, uses: Iterable[Use]) -> dict[str, _Words]:
    """Return a call of the right form for each use, by its name for people."""
    return {f"{use.command} {' '.join(use.keys)}".rstrip(): _words_of(keys, prefix, use) for use in uses}


def _words_of(keys: Keys, prefix: str, use: Use) -> _Words:
    command = use.command.split("|")
    if not use.keys:
        return (*command, *_KEYLESS_SHAPES.get(use.command, "").split())
    samples = [_sample(keys, prefix, key) for key in use.keys]
    # Commands of several keys are asked with all of them: one selector must give all.
    several = use.command in ("MGET", "DEL", "EXISTS")
    words: list[str | bytes] = [*command]
    for word in _SHAPES.get(use.command, _SHAPE).split():
        words += (samples if several else samples[:1]) if word == "K" else [word]
    if use.command == "MSET":
        words += [part for sample in samples[1:] for part in (sample, "a")]
    return tuple(words)


def _sample(keys: Keys, prefix: str, name: str) -> bytes:
    key = name_of(prefix, keys, name)
    return key + (b"x" if key.endswith(b":") else b"")


def _denied(node: Any, user: str, calls: Mapping[str, _Words]) -> set[str]:
    pipe = node.pipeline(transaction=False)
    for words in calls.values():
        pipe.execute_command("ACL", "DRYRUN", user, *words)
    return {name for name, reply in zip(calls, execute(pipe), strict=True) if reply not in (b"OK", True)}


def _named(lacking: Sequence[str]) -> str:
    more = f" and {len(lacking) - NAMED} more" if len(lacking) > NAMED else ""
    return ", ".join(lacking[:NAMED]) + more
