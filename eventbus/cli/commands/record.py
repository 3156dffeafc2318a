"""`eventbus record`: one event from a shell. Refuses input that the library repairs: users can type it again."""

from __future__ import annotations

import re
import socket
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import click

from eventbus.cli.completion import complete_objects
from eventbus.cli.input.lookup import not_stored
from eventbus.cli.input.options import instant_option, namespace_option
from eventbus.cli.session import open_session
from eventbus.errors import InvalidEvent
from eventbus.model.event import EventType
from eventbus.model.reference import reference_to
from eventbus.util.clock import SystemClock
from eventbus.util.text import is_clean

TYPES = [kind.value for kind in EventType]
_CAMEL = re.compile(r"[A-Z][A-Za-z0-9]*")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@click.command()
@click.argument("about", metavar="[NAMESPACE/]KIND/NAME", shell_complete=complete_objects)
@namespace_option("Of the object; '' is cluster-scoped.", may_be_empty=True)
@click.option(
    "--type",
    "kind",
    type=click.Choice(TYPES, case_sensitive=False),
    default="Normal",
    show_default=True,
    metavar=f"[{'|'.join(TYPES)}]",
    help="Type of the event; upper or lower case.",
)
@click.option("--reason", required=True, help="Reason in CamelCase, for machines; at most 128 bytes.")
@click.option("--message", required=True, help="Message for people; an event has at most 16 KiB.")
@click.option("--component", default="eventbus-cli", show_default=True, help="Source of the event.")
@click.option(
    "--annotation",
    "annotations",
    multiple=True,
    metavar="KEY=VALUE",
    help="An annotation; at most 16, with 4 KiB in total; may be repeated.",
)
@click.option(
    "--at",
    callback=instant_option,
    metavar="RFC3339",
    help="Time of the event; at most ten years from now.  [default: now]",
)
@click.option("-v", "--verbose", is_flag=True, help="Print a line when the event is recorded.")
@click.option("-q", "--quiet", is_flag=True, help="Print no hint if no sink worker stores the event.")
def record(
    about: str,
    namespace: str,
    kind: str,
    reason: str,
    message: str,
    component: str,
    annotations: Sequence[str],
    at: datetime | None,
    verbose: bool,
    quiet: bool,
) -> None:
    """Record one event about KIND/NAME, and wait until Redis has it.

    A sink worker then stores it. If none is alive, a line on standard error says so.

    pod, po and pods are Pod, and so on for the kinds of Kubernetes; objects of its cluster-scoped kinds, like Node, are
    in no namespace.

    \b
    Examples:
      eventbus record Backup/nightly --reason Completed --message "42 GiB in 7 min"
      eventbus record Pod/web-0 -n shop --type Warning --reason BackOff --message "restarting failed container"
      eventbus record shop/Order/7 --reason Paid --message "17.00 EUR by card"
      eventbus record Node/n1 --reason Rebooted --message "kernel update" --at 2024-01-01T12:00:00Z
    """
    from eventbus.cli.sending import send
    from eventbus.record.packing import Pending, prepare

    _refuse_unclean(about=about, namespace=namespace, reason=reason, message=message, component=component)
    about_object = reference_to(about, namespace)
    pending = Pending(
        (component, socket.gethostname()),
        about_object,
        str(kind),
        _required("reason", reason),
        message,
        SystemClock.time_ns(),
        past_ns=0 if at is None else _past_ns(at),
        annotations=_pairs(annotations) or None,
    )
    pending, cut = prepare(pending)  # an invalid event is refused before a connection to Redis
    if cut:
        click.echo("warning: the message has more bytes than an event can hold (16 KiB) and is cut", err=True)
    if not _CAMEL.fullmatch(reason):
        click.echo(f"warning: reason {reason[:80]!a} is not CamelCase, like BackOff; programs select by it", err=True)
    with open_session() as session:
        send(session, pending)
        hint = "" if quiet else not_stored(session, about_object)
    if verbose:
        click.echo("event recorded", err=True)
    if hint:
        click.echo(hint, err=True)


def _refuse_unclean(**texts: str) -> None:
    for name, text in texts.items():
        if not is_clean(text):
            raise InvalidEvent(name, "is not valid UTF-8, or has NUL in it")


def _required(name: str, text: str) -> str:
    if not text:
        raise InvalidEvent(name, "is empty")
    return text


def _pairs(annotations: Sequence[str]) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for annotation in annotations:
        key, equals, value = annotation.partition("=")
        _refuse_unclean(annotation=annotation)
        if not equals or not key:
            raise InvalidEvent("annotation", f"{annotation[:80]!r} is not of the form KEY=VALUE")
        if key in pairs:
            raise InvalidEvent("annotation", f"{key[:80]!r} is given twice")
        pairs[key] = value
    return pairs


def _past_ns(at: datetime) -> int:
    from eventbus.record.recorder import MOST_PAST

    if abs(datetime.now(UTC) - at) > MOST_PAST:
        raise InvalidEvent("at", f"{at.isoformat()} is more than ten years off")
    return (at - _EPOCH) // timedelta(microseconds=1) * 1000
