"""Translates the errors of redis-py, only here: each becomes an `EventBusError` of one line with its cure.

Imports redis only when there is an error to translate.
"""

from __future__ import annotations

from types import TracebackType

from eventbus.broker.build import build
from eventbus.broker.connection.address import safe_url
from eventbus.broker.connection.tls import explain
from eventbus.errors import (
    BusRefused,
    BusUnavailable,
    EventBusError,
    FunctionsForbidden,
    FunctionsMissing,
    GroupMissing,
    OtherBus,
    PasswordRefused,
)

#: longest quote of a server's own words
QUOTE_CHARS = 300

#: first word of a reply → the error, and its words with the cure
_BY_CODE: dict[str, tuple[type[EventBusError], str]] = {
    "LOADING": (BusUnavailable, "is still loading its data: wait and try again"),
    "READONLY": (BusUnavailable, "is a replica: wait for the failover, or point EVENTBUS_REDIS_URL at the primary"),
    "MASTERDOWN": (BusUnavailable, "is a replica without its primary: wait and try again"),
    "CLUSTERDOWN": (BusUnavailable, "says the cluster is down: wait for the failover and try again"),
    "TRYAGAIN": (BusUnavailable, "is moving the slot: try again"),
    "MOVED": (BusUnavailable, "has moved the slot: try again"),
    "ASK": (BusUnavailable, "is moving the slot: try again"),
    "BUSY": (BusUnavailable, "is busy in a script: wait and try again"),
    "MISCONF": (BusUnavailable, "cannot write to its disk: free some space there, then try again"),
    "NOREPLICAS": (BusUnavailable, "has too few replicas (min-replicas-to-write): wait and try again"),
    "OOM": (BusUnavailable, "is out of memory: raise its maxmemory, or let the workers drain it"),
    "NOAUTH": (PasswordRefused, "wants a password: set EVENTBUS_REDIS_PASSWORD or EVENTBUS_REDIS_PASSWORD_FILE"),
    "WRONGPASS": (
        PasswordRefused,
        "refused the user or the password: correct the url (a password alone: redis://:PASSWORD@host), or set "
        "EVENTBUS_REDIS_PASSWORD",
    ),
    "NOPERM": (
        BusRefused,
        "does not permit this to the user: extend its ACL (`eventbus acl --role …` prints a whole one)",
    ),
    "DENIED": (BusRefused, "is in protected mode: set a password there, or connect from its own machine"),
    "WRONGTYPE": (
        EventBusError,
        "has something else under a key of the bus: rename the key that this error or `eventbus doctor` names, or take "
        "another EVENTBUS_PREFIX",
    ),
    "OTHERBUS": (OtherBus, "has another bus there than was opened: look which, and go on or restart"),
    "NOGROUP": (GroupMissing, "has no such stream or group: recreate it at its floor"),
    "UNBLOCKED": (GroupMissing, "lost the stream while we waited: recreate it at its floor"),
}

#: part of a reply that has no code of its own → the same
_BY_TEXT: dict[str, tuple[type[EventBusError], str]] = {
    "Function not found": (
        FunctionsMissing,
        "has no functions of build {build}: run `eventbus functions load` of this version as a user of role admin",
    ),
    # as Redis and Valkey say it of a function that the ACL does not name; of a function's commands they name another
    "run the 'fcall' command": (
        FunctionsForbidden,
        "does not permit this user to call a function of build {build}: add the rights that `eventbus acl --add` of "
        "this version prints for the role that it needs",
    ),
    "max number of clients reached": (BusUnavailable, "has no free connection: wait, or raise its maxclients"),
    "without any password configured": (BusRefused, "has no password, but one was given: take it out"),
    "script can't run this command": (BusRefused, "does not permit the function's commands: extend the user's ACL"),
    # as Redis says UNBLOCKED to a blocked read when it becomes a replica
    "instance state changed": (
        BusUnavailable,
        "has become a replica: wait for the failover, or point EVENTBUS_REDIS_URL at the primary",
    ),
    "ACL failure in script": (BusRefused, "does not permit the function's commands: extend the user's ACL"),
    # as Redis 7.0 says it of keys
    "can't access at least one of the keys": (
        BusRefused,
        "does not permit the function's keys: extend the user's ACL",
    ),
    "unknown command 'FCALL": (BusRefused, "has no functions: eventbus needs Redis >= 7.0 or Valkey >= 8"),
    "unknown command 'FUNCTION": (BusRefused, "has no functions: eventbus needs Redis >= 7.0 or Valkey >= 8"),
    "unknown command `F": (BusRefused, "has no functions: eventbus needs Redis >= 7.0 or Valkey >= 8"),
    "DB index is out of range": (BusRefused, "has no such database: correct the number at the end of the url"),
}

#: class, or base class, of an error of the operating system while connecting → the same (TLS: `tls.explain`). By name,
#: because importing socket takes time
_BY_CAUSE: dict[str, tuple[type[EventBusError], str]] = {
    "gaierror": (BusUnavailable, "the host's name cannot be resolved: check it, and the DNS"),
    "ConnectionRefusedError": (
        BusUnavailable,
        "nothing listens there: start the server or correct EVENTBUS_REDIS_URL",
    ),
    "FileNotFoundError": (BusUnavailable, "there is no such socket: start the server or correct EVENTBUS_REDIS_URL"),
    "PermissionError": (BusRefused, "the socket belongs to another user: use your own, or change its mode"),
}

#: reply type byte of a TLS alert, as hiredis and redis-py's own parser quote it
_TLS_ALERT = ("\\x15", "\x15")


class redis_errors:
    """Translates errors of redis raised inside the block into an `EventBusError`, with the original as its cause.

    Used like a function, hence its name. Costs about 0.2 µs when nothing is raised. *url* only serves the message, and
    its password never shows.

    Raises: BusUnavailable, BusRefused, FunctionsMissing, GroupMissing, OtherBus, else EventBusError: see `translate`.
    """

    __slots__ = ("_url",)

    def __init__(self, url: str = "") -> None:
        self._url = url

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if kind is None or not isinstance(error, Exception):
            return
        from redis.exceptions import RedisError

        if isinstance(error, RedisError):
            raise translate(error, self._url) from error


def translate(error: Exception, url: str = "") -> EventBusError:
    """Return the bus's error for an error of redis, worded in one line with its cure.

    No reply, or one that passes (loading, replica, failover, busy, disk or memory full) → BusUnavailable: the call may
    or may not have had its effect. Refused for good → BusRefused. A reply we do not know → EventBusError itself.
    """
    from redis.exceptions import ClusterError, ConnectionError, InvalidResponse, TimeoutError

    server = safe_url(url) if url else "the server"
    if meaning := _by_reply(error):
        leaf, words = meaning
        return leaf(f"{server} {words} ({_quote(error)})", cure=_cure(words))
    if isinstance(error, InvalidResponse):
        tls = any(sign in str(error) for sign in _TLS_ALERT)
        words = "the server wants TLS: use rediss://" if tls else "that is not a Redis: check host and port"
        return BusRefused(f"{server}: {words} ({_quote(error)})", cure=_cure(words))
    if type(error).__name__ == "MasterNotFoundError":  # by name: its module is imported only where there are sentinels
        words = "no primary: wait for the failover, try again; if it never comes, correct the url"
        return BusUnavailable(f"{server}: {words} ({_quote(error)})", cure=_cure(words))
    if meaning := _by_cause(error):
        leaf, words = meaning
        return leaf(f"{server}: {words} ({_quote(error)})", cure=_cure(words))
    if isinstance(error, TimeoutError):
        words = "does not answer in time: check host, port, firewall, TLS; try again"
        return BusUnavailable(f"{server} {words}", cure=_cure(words))
    if isinstance(error, ConnectionError):
        hint = "; if it never succeeds, the server may want TLS: rediss://" if url.startswith("redis:") else ""
        words = f"connection lost: try again{hint}"
        return BusUnavailable(f"{server}: {words} ({_quote(error)})", cure=_cure(words))
    if isinstance(error, ClusterError):
        words = "no way to the slot's node: wait for the failover, try again"
        return BusUnavailable(f"{server}: {words} ({_quote(error)})", cure=_cure(words))
    return EventBusError(f"{server}: {_quote(error)}")


def _by_reply(error: Exception) -> tuple[type[EventBusError], str] | None:
    # A pipeline puts the command in front of the reply.
    text = str(error).rpartition(" of pipeline caused error: ")[2]
    # redis-py cuts the code off the words it has a class for, and keeps it in status_code
    code = getattr(error, "status_code", None) or text.partition(" ")[0]
    if found := next((meaning for part, meaning in _BY_TEXT.items() if part in text), None):
        leaf, words = found
        return leaf, words.format(build=build()) if issubclass(leaf, FunctionsMissing) else words
    return _BY_CODE.get(code)


def _by_cause(error: Exception) -> tuple[type[EventBusError], str] | None:
    cause = error.__cause__ or error.__context__
    if meaning := explain(cause):
        return meaning
    return next((_BY_CAUSE[kind.__name__] for kind in type(cause).__mro__ if kind.__name__ in _BY_CAUSE), None)


def _cure(words: str) -> str:
    """Return the text after the problem and its colon."""
    return words.partition(": ")[2]


def _quote(error: Exception) -> str:
    return " ".join(str(error).split())[:QUOTE_CHARS] or type(error).__name__
