"""The rights that each kind of user needs, and no more: derived from `Keys`, the functions and this package's calls.

Each key pattern is a selector of its own, with only the commands that are used on it. So a user of `publish`, which
reads the meta of the partition, still cannot write that hash directly. SECURITY.md has the limits of ACLs.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from functools import cache
from hashlib import sha256

import msgspec

from eventbus.broker.build import build, function_name
from eventbus.broker.keys import EVENTS, OPERATED, Keys, bus_key, item_key
from eventbus.model.objects.cluster import LIFECYCLE_LEASE

#: The writes of a call: its note, and the corrupt values that it has found.
_NOTE = {"note": "EXISTS MGET MSET SET DEL", "corrupt": "TYPE HGET HSET"}
#: The same for a call that changes objects of a kind.
_CHANGE = {
    **_NOTE,
    "changes": "TYPE EXISTS XINFO|STREAM XREVRANGE XLEN XRANGE XADD XTRIM",
    "version object": "MGET",
    "version": "EXISTS SET",
    "object note": "MSET",
    "object": "EXISTS DEL",
}
#: A client's write of an event, with its copy in the stream.
_EVENT = {
    **_CHANGE,
    "index_expiry": "TYPE ZADD",
    "incoming": "EXISTS XLEN XRANGE XADD",
    "incoming_meta": "HGET HMGET HSET",
    "meta": "HGET",
}
_COUNT = {"meta": "TYPE HGET HMGET HSET"}
_BURY = {"dead": "TYPE EXISTS XINFO|STREAM XRANGE XREVRANGE XADD"}
_BY_SOURCE = {"suppressed": "TYPE HMGET HGETALL HSET HDEL"}
_MINUTE = {"occurrences": "TYPE HMGET HLEN HSET PEXPIRE"}
_REPAIR = {
    "incoming": (
        "TYPE EXISTS XLEN XRANGE XREVRANGE XPENDING XINFO|GROUPS XINFO|STREAM XADD XACK XDEL XSETID XGROUP|SETID XTRIM"
    ),
    "incoming_meta": "TYPE HGET HMGET HKEYS HLEN HSET HDEL",
}

_PUBLISH = {
    "incoming": "EXISTS XLEN XINFO|GROUPS XADD",  # no XRANGE: a producer reads nothing
    "incoming_meta": "HGET HMGET HSET HINCRBY",
    "producer": "HMGET HSET PEXPIRE DEL",
    "meta": "HGETALL",
}

#: function → keys (names of `Keys`, several where one command spans them) → commands.
#: `changes`, `version`, `note`, `object` and `index_name` are of every kind.
_COMMANDS: Mapping[str, Mapping[str, str]] = {
    "build": {},
    "open": {
        **_NOTE,
        "incoming": f"{_REPAIR['incoming']} XGROUP|CREATE",
        "incoming_meta": f"{_REPAIR['incoming_meta']} DEL",
        "meta": "TYPE HGET HMGET HGETALL HSET HSETNX",
        "changes": "TYPE EXISTS XINFO|STREAM XREVRANGE",
        "version": "EXISTS MGET",
        "version note": "MSET",
    },
    "publish": _PUBLISH,
    "publish_once": _PUBLISH,
    "correlate_and_store": {
        **_NOTE,
        **_COUNT,
        **_BURY,
        **_BY_SOURCE,
        **_MINUTE,
        "incoming": "TYPE XPENDING XACK",
        "index_name": "TYPE ZRANGEBYLEX ZADD ZREM",
        "index_object": "TYPE ZADD ZREM",
        "index_expiry": "TYPE ZADD ZREM",
        "index_forget": "TYPE ZADD ZREM",
        "index_refresh": "TYPE ZADD",
        "changes": _CHANGE["changes"],
        "attempts": "TYPE EXISTS HGET HSET HDEL",
        "correlation object": "MGET EXISTS",
        "correlation object note": "MSET",
        "correlation": "PEXPIRE",
        "note version": "MGET",
        "attempts note": "EXISTS",
        "version": "EXISTS SET",
    },
    "trim": {
        **_NOTE,
        **_REPAIR,
        "meta": "TYPE HGET HMGET HGETALL HSET",
        "changes": "TYPE EXISTS XINFO|STREAM XLEN XRANGE XREVRANGE XTRIM",
        "dead": "TYPE XLEN XRANGE XREVRANGE XDEL XTRIM",
        "workers": "HGETALL HDEL",
        "version": "EXISTS MGET",
        "version note": "MSET",
    },
    "bury": {
        **_NOTE,
        **_COUNT,
        **_BURY,
        "incoming": "TYPE XPENDING XACK",
        "attempts": "TYPE HGET HSET HDEL",
    },
    "replay": {
        **_NOTE,
        "incoming": "TYPE EXISTS XLEN XRANGE XINFO|GROUPS XINFO|STREAM XADD",
        "incoming_meta": "HGET HMGET HSET",
        "dead": "TYPE XRANGE XDEL",
        "meta": "TYPE HGET HMGET HGETALL HSET",
    },
    "discard": {**_NOTE, **_COUNT, "dead": "TYPE XRANGE XDEL"},
    "beat": {"workers": "HINCRBY"},
    "isolate": {"incoming": "XPENDING", "attempts": "HGET HSET"},
    "claim": {
        "incoming": "XPENDING XCLAIM XGROUP|DELCONSUMER",
        "workers": "HGET HDEL HINCRBY",
        "attempts": "HMGET HSET",
    },
    "expire": {
        **_CHANGE,
        **_COUNT,
        **_BY_SOURCE,
        "index_name": "TYPE ZREM",
        "index_object": "TYPE ZREM",
        "index_expiry": "TYPE ZCARD ZMSCORE ZADD ZREM",
        "index_forget": "TYPE ZCARD ZMSCORE ZADD ZREM",
    },
    "refresh": {**_CHANGE, **_COUNT, "index_refresh": "TYPE ZMSCORE ZADD ZREM", "index_expiry": "TYPE ZADD"},
    "forget": {
        **_NOTE,
        **_COUNT,
        "correlation": "PTTL EXISTS MGET DEL",
    },
    "finish": {  # of all kinds but events: interrupted calls of put and remove
        **_NOTE,
        "index_name": "TYPE ZADD ZREM",
        "changes": "TYPE EXISTS XINFO|STREAM XADD XTRIM",
        "object": "EXISTS MGET DEL",
        "version": "SET",
    },
    "put": {**_CHANGE, "index_name": "TYPE ZADD", "meta": "HGET"},
    "remove": {**_CHANGE, "index_name": "TYPE ZREM", "meta": "HGET"},
    "put_client_event": {
        **_EVENT,
        **_MINUTE,
        "index_name": "TYPE ZRANGEBYLEX ZADD",
        "index_object": "TYPE ZADD ZREM",
    },
    "overlay_event": _EVENT,
    "remove_event": {
        **_CHANGE,
        "index_name": "TYPE ZREM",
        "index_object": "TYPE ZREM",
        "index_expiry": "TYPE ZREM",
        "index_forget": "TYPE ZADD",
        "meta": "HGET",
    },
    "export_acquire": {
        **_NOTE,
        "export": "HGET HSET HSETNX",
        "workers": "TYPE HGET HDEL HINCRBY",
        "meta": "TYPE HGET HSET",
    },
    "export_release": {"export": "HGET HDEL", "workers": "TYPE HDEL"},
    "export_settle": {
        **_NOTE,
        **_COUNT,
        "export": "TYPE HMGET HSET",
        "later": "TYPE ZADD ZREM",
        "dead": f"{_BURY['dead']} XDEL",
        "exported": "EXISTS MGET PEXPIRE DEL",
        "exported note": "MSET",
    },
    "export_retry": {"dead": "XRANGE", "later": "TYPE ZADD"},
    "announce": {"builds": "HGETALL HDEL HSET"},
    "checkpoint": {"checkpoints": "TYPE EXISTS XINFO|STREAM XRANGE XREVRANGE XADD"},
    "notify_acquire": {
        **_NOTE,
        "notify": "TYPE HMGET HGETALL HSET HDEL",
        "meta": "HGET",
        "index_notify": "TYPE ZREMRANGEBYSCORE ZADD ZREM",
        "notify_state": "PEXPIRE DEL",
    },
    "notify_release": {"notify": "HGET HDEL"},
    "notify_settle": {
        **_NOTE,
        "notify": "TYPE HMGET HSET HDEL",
        "index_notify": "TYPE ZADD ZREM",
        "notify_state": "EXISTS MGET PEXPIRE DEL",
        "notify_state note": "MSET",
    },
}


class Use(msgspec.Struct, frozen=True, order=True):
    """One command, `XADD` or `XGROUP|CREATE`, and the attributes of `Keys` that are its keys; none: it has no key."""

    command: str
    keys: tuple[str, ...] = ()


class Function(msgspec.Struct, frozen=True):
    """One registered function: the names of the keys it works on, and all that it does, sorted."""

    verb: str
    keys: tuple[str, ...]
    uses: tuple[Use, ...]

    @property
    def name(self) -> str:
        """Return its name in Redis."""
        return function_name(self.verb)


@cache
def functions_used() -> Mapping[str, Function]:
    """Return every function of the library by its verb."""
    functions = {}
    for verb, commands in _COMMANDS.items():
        uses = tuple(sorted({*_uses(commands), *(_CLOCKED if commands else ())}))
        keys = tuple(sorted({key for use in uses for key in use.keys}))
        functions[verb] = Function(verb, keys, uses)
    return functions


#: The server's time, and how full its memory is.
_CLOCKED = (Use("TIME"), Use("INFO"))


def _uses(commands: Mapping[str, str]) -> Iterator[Use]:
    for keys, words in commands.items():
        for command in words.split():
            yield Use(command, tuple(keys.split()))


class Role(StrEnum):
    """A kind of user."""

    PRODUCER = "producer"  #: records events
    READER = "reader"  #: lists and watches them
    WORKER = "worker"  #: correlates, logs, exports; includes the two roles above
    NOTIFIER = "notifier"  #: reads events and silences, sends notifications, deletes expired silences
    IMPORTER = "importer"  #: writes the events of a cluster
    AGENT = "agent"  #: makes a machine, or anything, a node
    OPERATOR = "operator"  #: writes the desired state of agents: pods, config maps, secrets; and silences
    METRICS = "metrics"  #: reads the numbers of `status` and `doctor`
    DEPLOY = "deploy"  #: makes the bus, sets options, looks after groups and the dead letter
    ADMIN = "admin"  #: administers the whole server: loads functions, backs up, reloads users


#: Functions that only API workers call.
_OVER_HTTP = frozenset({"checkpoint", "publish_once"})

#: Which functions each role calls.
_FUNCTIONS: Mapping[Role, frozenset[str]] = {
    # Not open: it may destroy groups. Workers recreate a destroyed stream, and producers wait for that.
    Role.PRODUCER: frozenset({"publish", "announce"}),
    Role.READER: frozenset(),
    Role.WORKER: frozenset(
        {
            "open",
            "correlate_and_store",
            "trim",
            "bury",
            "beat",
            "isolate",
            "claim",
            "expire",
            "refresh",
            "forget",
            "finish",
            "put",
            "remove",
        }
        | {"remove_event", "put_client_event", "overlay_event", "export_acquire", "export_release", "export_settle"}
        | _OVER_HTTP
    ),
    Role.NOTIFIER: frozenset({"notify_acquire", "notify_release", "notify_settle", "remove"}),
    Role.IMPORTER: frozenset({"put", "put_client_event"}),
    Role.AGENT: frozenset({"put", "remove"}),
    Role.OPERATOR: frozenset({"put", "remove"}),
    Role.METRICS: frozenset(),
    Role.DEPLOY: frozenset(
        {
            "open",
            "put",
            "remove",
            "put_client_event",
            "overlay_event",
            "remove_event",
            "replay",
            "discard",
            "export_retry",
        }
        | _OVER_HTTP
    ),
    Role.ADMIN: frozenset(),
}

#: The direct commands of each role, without functions: those of `broker/`, `store/` and `cli/`, by key.
_DIRECT: Mapping[Role, Mapping[str, str]] = {
    Role.PRODUCER: {"producer": "HMGET PEXPIRE"},
    Role.READER: {
        "version": "GET",
        "index_name": "ZRANGE ZLEXCOUNT",
        "index_object": "ZRANGE ZLEXCOUNT",
        "index_expiry": "ZRANGE",
        "index_refresh": "ZRANGE",
        "object": "GET MGET",
        "changes": "XREAD",
        "suppressed": "HGETALL",
        "occurrences": "HGETALL HMGET",
        "incoming": "XREAD XREVRANGE",
        "notify": "HGETALL",
    },
    Role.WORKER: {
        "incoming": "XREADGROUP XACK XPENDING XRANGE XINFO|CONSUMERS XGROUP|DELCONSUMER",
        "workers": "HGETALL HDEL",
        "attempts": "HMGET",
        "problems": "HSET HDEL PEXPIRE",
        "changes": "XLEN XRANGE XREVRANGE",
        "meta": "HINCRBY HGETALL HDEL",
        "index_expiry": "ZCARD ZRANGE",
        "index_forget": "ZCARD ZRANGE",
        "index_refresh": "ZRANGE",
        "note": "EXISTS",
        "export": "HGET DEL",
        "exported": "MGET",
        "later": "ZRANGE DEL",
        "dead": "XRANGE",
        "idempotency": "SET",
        "started": "GET SET DEL",
        "index_notify": "ZRANGE",
        "notify_state": "MGET",
    },
    Role.NOTIFIER: {"index_notify": "ZRANGE", "notify_state": "MGET"},
    Role.IMPORTER: {},
    Role.AGENT: {"object:nodes": "GET", "object:leases": "GET"},
    Role.OPERATOR: {"index_notify": "ZRANGE", "notify_state": "MGET"}
    | {
        f"{key}:{kind}": commands
        for kind in sorted(OPERATED)
        for key, commands in {
            "version": "GET",
            "index_name": "ZRANGE ZLEXCOUNT",
            "object": "GET MGET",
            "changes": "XREAD",
        }.items()
    },
    Role.METRICS: {
        "lifecycle_lease": "GET",
        "bus": "TYPE",
        "incoming": "XLEN XRANGE XPENDING XINFO|GROUPS XINFO|CONSUMERS TYPE",
        "incoming_meta": "HGETALL TYPE",
        "meta": "HGETALL TYPE",
        "workers": "HGETALL TYPE",
        "builds": "HGETALL TYPE",
        "problems": "HGETALL TYPE",
        "changes": "XLEN XRANGE XREVRANGE TYPE",
        "dead": "XLEN XRANGE XREVRANGE TYPE",
        "version": "GET TYPE",
        "note": "TYPE",
        "index_name": "ZCARD TYPE",
        "index_object": "TYPE",
        "index_expiry": "ZCARD TYPE",
        "index_forget": "ZCARD TYPE",
        "index_refresh": "TYPE",
        "suppressed": "HGETALL TYPE",
        "occurrences": "HGETALL",
        "corrupt": "HGET HGETALL TYPE",
        "export": "HGETALL TYPE",
        "notify": "HGETALL TYPE",
        "index_notify": "ZCARD TYPE",
        "later": "ZCARD TYPE",
        "checkpoints": "TYPE",
        "attempts": "TYPE",
    },
    Role.DEPLOY: {
        "bus": "HSETNX HSET WATCH",
        "incoming": "XGROUP|DESTROY",
        "meta": "HDEL",
        "workers": "HDEL",
        "attempts": "DEL",
        "export": "DEL",
        "later": "DEL",
        "idempotency": "SET",
        "started": "GET SET DEL",
        "index_notify": "ZRANGE",
        "notify_state": "MGET",
    },
    Role.ADMIN: {"builds": "HGETALL"},
}

_INCLUDES: Mapping[Role, tuple[Role, ...]] = {
    Role.WORKER: (Role.PRODUCER, Role.READER),
    Role.NOTIFIER: (Role.PRODUCER, Role.READER),
    Role.IMPORTER: (Role.PRODUCER, Role.READER),
    Role.AGENT: (Role.PRODUCER,),
    Role.OPERATOR: (Role.PRODUCER, Role.READER, Role.AGENT),
    Role.DEPLOY: (Role.PRODUCER, Role.READER, Role.METRICS),
}

_SILENCES = ("acknowledgements", "silences")
#: Roles that write and remove objects of these kinds only.
_KINDS: Mapping[Role, tuple[str, ...]] = {
    Role.NOTIFIER: _SILENCES,
    Role.IMPORTER: ("leases",),
    Role.AGENT: ("nodes", "leases"),
    Role.OPERATOR: ("nodes", "leases", *sorted(OPERATED), *_SILENCES),
}
#: The functions that this is about.
_WRITERS = frozenset({"put", "remove"})
#: Keys that each kind has of its own. `object:nodes` is that of one kind.
_OF_A_KIND = frozenset({"object", "index_name", "changes", "version", "note"})

#: Opening an existing bus, with every role.
_OPENING: Mapping[str, str] = {"bus": "HMGET", "meta": "HMGET", "incoming": "EXISTS", "version": "EXISTS"}
#: Connecting, also to a cluster; INFO is how a server is judged, and how a function sees that memory is full.
_CONNECTING = "PING AUTH HELLO SELECT CLIENT|SETNAME INFO TIME ACL|WHOAMI ACL|DRYRUN CLUSTER|SLOTS CLUSTER|MYID ASKING"
_KEYLESS: Mapping[Role, str] = {
    Role.DEPLOY: "MULTI EXEC DISCARD UNWATCH",
    # Of the whole server, for all prefixes: a server has one set of functions, one file of users, one backup.
    # No ACL|SETUSER: users are made in the ACL file, which only the server's machine can write.
    Role.ADMIN: (
        "FUNCTION|LOAD FUNCTION|LIST FUNCTION|DELETE SCAN BGREWRITEAOF BGSAVE LASTSAVE CONFIG|GET ACL|LOAD ACL|USERS "
        "ACL|LOG"
    ),
}

#: Commands that only read; a key that sees nothing else is given for reading alone.
_READS = (
    "EXISTS GET MGET HGET HMGET HGETALL HEXISTS HLEN XLEN XRANGE XREVRANGE XREAD XREADGROUP XPENDING XINFO|GROUPS "
    "XINFO|STREAM XINFO|CONSUMERS TYPE PTTL ZCARD ZSCORE ZMSCORE ZRANGE ZRANGEBYLEX ZLEXCOUNT WATCH"
)
READS = frozenset(_READS.split())


def role_functions(role: Role) -> tuple[Function, ...]:
    """Return the functions that *role* calls, by verb."""
    verbs = frozenset[str]().union(*(_FUNCTIONS[one] for one in (role, *_INCLUDES.get(role, ()))))
    return tuple(function for verb, function in sorted(functions_used().items()) if verb in verbs)


def uses_of(role: Role, function: Function) -> frozenset[Use]:
    """Return the uses of *function* when *role* calls it; a role with kinds of its own writes only their keys."""
    kinds = _KINDS.get(role) if function.verb in _WRITERS else None
    if role in _KINDS and function.verb == "put_client_event":
        kinds = (EVENTS,)
    if kinds is None:
        return frozenset(function.uses)

    def of(kind: str, key: str) -> str:
        return f"{key}:{kind}" if key in _OF_A_KIND else key

    return frozenset(
        Use(use.command, tuple(of(kind, key) for key in use.keys)) for use in function.uses for kind in kinds
    )


def role_uses(role: Role) -> frozenset[Use]:
    """Every command that *role* issues, by itself or inside a function; FCALL is not among them."""
    uses = {use for function in role_functions(role) for use in uses_of(role, function)}
    for calls in (_OPENING, *(_DIRECT[one] for one in (role, *_INCLUDES.get(role, ())))):
        uses |= {Use(command, (key,)) for key, commands in calls.items() for command in commands.split()}
    keyless = (_CONNECTING, *(_KEYLESS.get(one, "") for one in (role, *_INCLUDES.get(role, ()))))
    uses |= {Use(command) for commands in keyless for command in commands.split()}
    return frozenset(uses)


def acl_rules(
    role: Role, prefix: str = "eb", *, also: Iterable[Role] = (), with_builds: Iterable[str] = (), add: bool = False
) -> tuple[str, ...]:
    """Return the rules of ACL SETUSER for *role*, without user and password; a selector is one item, with brackets.

    *also*: further roles of the user. *with_builds*: other builds with functions that it may call; an ACL names
    functions one by one, and a pattern matches none. *add*: rules that are added to the rights of the user.
    """
    roles = (role, *also)
    uses = frozenset[Use]().union(*map(role_uses, roles))
    keyless = sorted(use.command for use in uses if not use.keys)
    builds = dict.fromkeys((build(), *with_builds))
    rules = [] if add else ["resetkeys", "resetchannels", "clearselectors", "-@all"]
    rules += [f"+{_word(name)}" for name in keyless]
    rules += [f"+fcall|{function_name('build', of)}" for of in builds]
    if called := sorted({function.verb for one in roles for function in role_functions(one)}):
        # One pattern, since a call may have hundreds of keys. The other rules limit the commands of the function.
        words = [f"+fcall|{function_name(verb, of)}" for of in builds for verb in called]
        rules.append(f"(~{prefix}:{{*}}:* {' '.join(words)})")
    by_keys: dict[tuple[str, ...], set[str]] = defaultdict(set)
    for use in uses:
        if use.keys:
            by_keys[use.keys].add(use.command)
    # The server tries them in this order; correlate_and_store uses those of several keys most.
    for keys, commands in sorted(by_keys.items(), key=lambda item: (-len(item[0]), item[0])):
        rules.append(_selector(prefix, keys, map(_word, sorted(commands)), read_only=commands <= READS))
    if Role.ADMIN in roles:  # all prefixes use the same functions, and each bus has the builds in use
        rules.append("(%R~*:{*}:builds +hgetall)")
    return tuple(rules)


def acl_setuser(
    role: Role,
    *,
    user: str,
    password: str | None,
    prefix: str = "eb",
    also: Iterable[Role] = (),
    with_builds: Iterable[str] = (),
) -> tuple[str, ...]:
    """Return the words of ACL SETUSER that replace *user*. The password is included as its hash."""
    secret = "#" + (sha256(password.encode()).hexdigest() if password else "SHA256-OF-THE-PASSWORD")
    return (user, "reset", "on", secret, *acl_rules(role, prefix, also=also, with_builds=with_builds))


def key_patterns(prefix: str, keys: Iterable[str]) -> list[str]:
    """Return *keys*, names of `Keys`' attributes or `bus`, as patterns over all partitions."""
    # The number is put where the tag's star belongs, and stands in no other part of a key.
    sample = Keys(prefix, 987654321)
    patterns = []
    for key in keys:
        name = name_of(prefix, sample, key).replace(b"{987654321}", b"{*}")
        patterns.append(name.decode() + ("*" if name.endswith(b":") else ""))
    return patterns


def name_of(prefix: str, keys: Keys, key: str) -> bytes:
    """Return the key, or the beginning of its keys, which ends in a colon: users register kinds of their own."""
    key, _, kind = key.partition(":")
    match key:
        case "bus":
            return bus_key(prefix)
        case "object":
            return keys.object_of(kind) if kind else keys.object_of("").removesuffix(b":")
        case "index_name":
            return keys.index_name_of(kind)
        case "changes":
            return keys.changes_of(kind)
        case "version":
            return keys.version_of(kind)
        case "note":
            return keys.note_of(kind)
        case "lifecycle_lease":
            return keys.object_of("leases") + item_key(*LIFECYCLE_LEASE)
    attribute: bytes = getattr(keys, key)
    return attribute


def _selector(prefix: str, keys: Iterable[str], commands: Iterable[str], *, read_only: bool) -> str:
    patterns = [f"{'%R' if read_only else ''}~{pattern}" for pattern in key_patterns(prefix, keys)]
    return f"({' '.join([*patterns, *(f'+{command}' for command in commands)])})"


def _word(command: str) -> str:
    return command.lower()
