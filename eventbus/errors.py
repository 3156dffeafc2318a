"""Defines every error that leaves the package: one base, a few leaves, each with a cure in its docstring."""

from __future__ import annotations

import re
from enum import StrEnum


class EventBusError(Exception):
    """The base of all errors of this package. *exit_code* is the exit code of a command that fails with the error.

    *cure* is the part of the message with the remedy; empty if the class alone implies it.
    """

    exit_code = 1

    def __init__(self, *args: object, cure: str = "") -> None:
        super().__init__(*args)
        self.cure = cure


class InvalidEvent(EventBusError, ValueError):
    """The event breaks a rule of core/v1. Cure: fix the caller; *field* names the invalid field."""

    exit_code = 2

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(f"{field}: {problem}")
        self.field = field
        self.problem = problem

    @property
    def kind(self) -> str:
        """The kind of mistake, independent of the caller's values: the field, and the problem's first plain words."""
        words = re.sub(r"(?<!\w)(['\"]).*?\1", " ", self.problem).split()
        return " ".join([self.field, *[word for word in words if word.isalpha()][:3]])


class ConfigError(EventBusError):
    """A setting, an option or the server's configuration cannot be used. Cure: see the message."""

    exit_code = 2


class BusUnavailable(EventBusError):
    """Redis, or the API, does not answer (refused, reset, timed out, loading). Cure: wait and call again.

    *retry_after_s* is the API's Retry-After in seconds, None if it sent none.
    """

    def __init__(self, *args: object, cure: str = "", retry_after_s: float | None = None) -> None:
        super().__init__(*args, cure=cure)
        self.retry_after_s = retry_after_s


class BusFull(BusUnavailable):
    """The bus is full, and nothing was written. Cure: let the bus drain, then call again."""


class BusRefused(EventBusError):
    """Redis answered and refused (wrong password, no permission, too old). Cure: see the message."""

    exit_code = 2


class PasswordRefused(BusRefused):
    """Redis refused the user or the password. Cure: correct the user in Redis, or the password here."""


class FunctionsMissing(BusUnavailable):
    """The functions of this build are not loaded on this server. Cure: `eventbus functions load`; then call again.

    The call had no effect.
    """

    exit_code = 2


class FunctionsForbidden(FunctionsMissing):
    """The user may not call a function of this build. Cure: `eventbus acl --add`; then call again."""


class GroupMissing(EventBusError):
    """The stream or the consumer group is gone. Cure: create it again at the group's floor."""


class OtherBus(EventBusError):
    """There is another bus now than was opened. Cure: look which, and call again; the call had no effect."""


class BusReplaced(ConfigError):
    """The bus was created again, with other partitions than this process knows. Cure: restart the process."""

    def __init__(self, known: int, found: int) -> None:
        cure = "restart this process"
        super().__init__(
            f"the bus was created again with {found} partitions, and this process knows {known}: {cure}", cure=cure
        )


class DeadCause(StrEnum):
    """The reason why an entry is a dead letter. Other builds may know more causes."""

    UNREADABLE = "unreadable"
    UNKNOWN_VERSION = "unknown-version"
    UNKNOWN_CODEC = "unknown-codec"
    TOO_LONG = "too-long"
    KILLED_WORKER = "killed-worker"
    HANDLER_FAILED = "handler-failed"
    NO_LINE = "no-line"  #: the event cannot be encoded as a log line
    REJECTED = "rejected"  #: by an external sink
    UNBUILDABLE = "unbuildable"  #: the event cannot be encoded as a request to the sink
    RETRIES = "retries"  #: the sink has failed too often


class PoisonBatch(EventBusError):
    """A stream entry cannot be decoded. Cure: move it to the dead letters; it will never become readable."""

    def __init__(self, cause: DeadCause) -> None:
        super().__init__(cause)
        self.cause = cause


class ObjectError(EventBusError):
    """The base of errors about one object: *resource* as `leases.coordination.k8s.io`, and *name*; "" if unknown."""

    def __init__(self, message: str = "", *, resource: str = "", name: str = "") -> None:
        super().__init__(message)
        self.resource = resource
        self.name = name


class NotFound(ObjectError):
    """No such object. The message is worded as the API server does."""


class AlreadyExists(ObjectError):
    """The store, or an external sink, has one of that name already. Cure: none is needed, or another name."""


class Conflict(ObjectError):
    """The object has changed since it was read. Cure: read it again, and apply the change to its current state."""


class InvalidObject(EventBusError, ValueError):
    """The object, patch or question breaks a rule of its kind. Cure: fix the caller; *field* names the invalid field.

    *kind*, *group* and *name* are those of the object. A field that is unknown is "".
    """

    exit_code = 2

    def __init__(
        self, message: str = "", *, kind: str = "", group: str = "", name: str = "", field: str = "", problem: str = ""
    ) -> None:
        super().__init__(message)
        self.kind = kind
        self.group = group
        self.name = name
        self.field = field
        self.problem = problem


class Expired(EventBusError):
    """The changes no longer reach back to the asked version. Cure: list again and watch from there."""


class ClientWatchDecoding(EventBusError):
    """A watch delivered an unreadable change; the name is client-go's reason for it. Cure: list again."""


class SinkError(EventBusError):
    """The base of the errors of external sinks, except NotFound. The export worker handles them.

    *status* is the HTTP status of the system's answer; 0: there was no answer, or not an HTTP answer.
    """

    def __init__(self, message: str = "", *, status: int = 0) -> None:
        super().__init__(message)
        self.status = status


class SinkUnreachable(SinkError):
    """No answer, or one that concerns every event: refused, reset, timed out, TLS, 401, 403, 503. Cure: wait."""


class SinkGone(SinkError):
    """The sink's reader is gone permanently, as with a closed pipe. Cure: end the worker."""


class Throttled(SinkError):
    """The system asks for a pause; *retry_after_s* is how long, None where it did not say. Cure: wait, then again."""

    def __init__(self, message: str = "throttled", retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class EventRejected(SinkError):
    """The system rejects this event permanently. Cure: none; it becomes a dead letter."""


class EventUnbuildable(SinkError):
    """The event cannot be encoded as a request to this system. Cure: none; it becomes a dead letter."""


class UnexpectedReply(SinkError):
    """The system sent an unexpected answer. Cure: retry a few times."""


class NotSent(SinkError):
    """A write that its sink has not sent: one about the same object failed, or the call had its time. Cure: again."""


class BroadcasterStopped(EventBusError):
    """The broadcaster has been shut down. Cure: none; make a new one."""

    def __init__(self) -> None:
        super().__init__("broadcaster already stopped")
