"""`eventbus wait`: waits for a condition of stored objects, as kubectl does."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

import click
import msgspec

from eventbus.cli.completion import complete_objects
from eventbus.cli.input.lookup import demanded_kind, objects_from_words
from eventbus.cli.input.options import namespace_option
from eventbus.cli.session import Session, open_session
from eventbus.errors import Expired, NotFound
from eventbus.model.list_watch import ListOptions, WatchEventType, list_all
from eventbus.util.human_duration import parse_duration
from eventbus.util.text import printable

if TYPE_CHECKING:
    from eventbus.model.kinds import Kind

#: kubectl's maximum wait, used for a negative timeout.
WEEK_S: Final = 7 * 86_400.0

FORMS: Final = "condition=TYPE[=STATUS], create, delete"

#: The object as JSON (None: missing) → True if the condition holds.
Condition = Callable[[dict[str, Any] | None], bool]


@click.command()
@click.argument("objects", nargs=-1, required=True, metavar="[NAMESPACE/]KIND/NAME...", shell_complete=complete_objects)
@namespace_option("Where the objects are.")
@click.option("--for", "wanted", required=True, metavar="CONDITION", help=f"{FORMS}.")
@click.option(
    "--timeout", default="30s", show_default=True, metavar="30s", help="Longest wait; 0s: check once; -1s: a week."
)
@click.option("-l", "--selector", default="", metavar="LABELS", help="All objects of a kind with these labels.")
@click.option("--all", "everything", is_flag=True, help="All objects of a kind.")
@click.option("-o", "--output", type=click.Choice(["name"]), help="Names only.")
def wait(
    objects: tuple[str, ...],
    namespace: str,
    wanted: str,
    timeout: str,
    selector: str,
    everything: bool,
    output: str | None,
) -> None:
    """Wait until stored objects, like pods, nodes or leases, meet a condition.

    Other objects have events only: `eventbus events --for KIND/NAME -w` shows them as they come.

    \b
    Examples:
      eventbus wait --for=condition=Ready node/n1 --timeout=60s
      eventbus wait --for=delete node/n1
      eventbus wait --for=condition=Ready nodes --all

    \b
    Exit codes:
      0  all of them meet the condition
      1  one did not in time, or does not exist
      2  wrong usage, or no such kind
    """
    from eventbus.model.columns.objects import object_name

    condition, timeout_s = _parse_condition(wanted), _timeout_s(timeout)
    deadline = time.monotonic() + timeout_s
    absent_is_fine = wanted in ("delete", "create")
    with open_session() as session:
        for kind, name, place in _chosen(session, objects, namespace, selector, everything=everything):
            place = place if kind.namespaced else ""
            if not _wait(session, kind, (name, place), condition, deadline, absent_is_fine=absent_is_fine):
                click.echo(f"error: timed out waiting for the condition on {kind.plural}/{printable(name)}", err=True)
                sys.exit(1)
            label = printable(object_name(kind, name))
            click.echo(label if output == "name" else f"{label} condition met")


def _parse_condition(text: str) -> Condition:
    """Parse the value of --for. Raises: BadParameter."""
    sort, _, rest = text.partition("=")
    if text == "delete":
        return lambda item: item is None
    if text == "create":
        return lambda item: item is not None
    if sort == "condition" and rest:
        name, _, status = rest.partition("=")
        return _has_condition(name.lower(), (status or "true").lower())
    if sort == "jsonpath":
        raise click.BadParameter(
            "jsonpath is not supported: use kubectl through `eventbus worker api`: "
            "kubectl wait lease/leader --for=jsonpath='{.spec.holderIdentity}'=n2",
            param_hint="--for",
        )
    raise click.BadParameter(f"{text!a} is none of {FORMS}", param_hint="--for")


def _has_condition(name: str, status: str) -> Condition:
    def holds(item: dict[str, Any] | None) -> bool:
        conditions = ((item or {}).get("status") or {}).get("conditions") or ()
        return any(
            (condition["type"].lower(), condition["status"].lower()) == (name, status) for condition in conditions
        )

    return holds


def _timeout_s(text: str) -> float:
    try:
        if text.startswith("-"):
            return WEEK_S
        return (timedelta(0) if text == "0" else parse_duration(text)).total_seconds()
    except ValueError as problem:
        raise click.BadParameter(str(problem), param_hint="--timeout") from None


def _chosen(
    session: Session, words: Sequence[str], namespace: str, selector: str, *, everything: bool
) -> list[tuple[Kind[Any], str, str]]:
    if not selector and not everything:
        return [(_kind(item.kind), item.name, item.namespace or namespace) for item in objects_from_words(tuple(words))]
    if len(words) != 1 or "/" in words[0]:
        raise click.UsageError("--all and -l need one kind, and no name")
    kind = _kind(words[0])
    options = ListOptions(namespace=namespace if kind.namespaced else "", label_selector=selector)
    items = list_all(session.store.objects(kind), options)[0].items
    if not items:
        raise NotFound("no matching resources found")
    return [(kind, item.metadata.name, namespace) for item in items]


def _kind(word: str) -> Kind[Any]:
    others = f". Events of others: eventbus events --for {printable(word)}/NAME -w"
    return demanded_kind(word, else_do=others)


def _wait(
    session: Session,
    kind: Kind[Any],
    named: tuple[str, str],
    condition: Condition,
    deadline: float,
    *,
    absent_is_fine: bool,
) -> bool:
    """Watch until *condition* holds; False: timeout. Raises: NotFound: the object is missing, but required."""
    from eventbus.cli.printers.object_printer import plain_of
    from eventbus.model.selectors import escape_value

    name, place = named
    objects = session.store.objects(kind)
    options = ListOptions(namespace=place, field_selector=f"metadata.name={escape_value(name)}")

    def holds(item: Any) -> bool:
        if item is None and not absent_is_fine:
            objects.get(name, place)  # raises NotFound, with the message of all commands
        return condition(None if item is None else plain_of(kind, item))

    while True:
        listed = objects.list(options)
        if holds(next(iter(listed.items), None)):
            return True
        left = deadline - time.monotonic()
        if left <= 0:
            return False
        again = msgspec.structs.replace(options, resource_version=listed.resource_version, timeout_s=left)
        with contextlib.suppress(Expired):
            watch = objects.watch(again)
            try:
                for event in watch:
                    deleted = event.type is WatchEventType.DELETED
                    if event.object is not None and holds(None if deleted else event.object):
                        return True
            finally:
                watch.stop()
