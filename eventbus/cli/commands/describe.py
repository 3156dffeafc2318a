"""`eventbus describe`: one stored object and its events, with kubectl's Events section."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from eventbus.cli.completion import complete_objects
from eventbus.cli.input.lookup import (
    elsewhere,
    find_stored,
    find_stored_beginning,
    list_about,
    object_from_words,
    readable_kind,
    waiting,
)
from eventbus.cli.input.options import namespace_option
from eventbus.cli.printers.output import dump_json, wants_colour, write
from eventbus.cli.session import Session, open_session
from eventbus.errors import BusRefused, NotFound
from eventbus.model.event import ObjectReference
from eventbus.model.reference import known_kinds, meant_kinds
from eventbus.util.text import printable

if TYPE_CHECKING:
    from eventbus.cli.printers.description import Description


@click.command()
@click.argument("object", nargs=-1, required=True, metavar="[NAMESPACE/]KIND/NAME", shell_complete=complete_objects)
@namespace_option("Where the object is.")
@click.option("-A", "--all-namespaces", is_flag=True, help="Search all namespaces.")
@click.option("--show-events/--hide-events", default=True, show_default=True, help="The Events section.")
@click.option("-o", "--output", type=click.Choice(["json", "yaml"]), help="Output as JSON or YAML.")
def describe(
    object: tuple[str, ...], namespace: str, all_namespaces: bool, show_events: bool, output: str | None
) -> None:
    """Show an object, if it is stored, and its events: since when, how often, and from which source.

    KIND NAME works as well, KIND alone for all of them, and kubectl's plurals and short names. If no object has that
    name, all objects with names that begin so are shown. Nodes and leases may be stored themselves (`eventbus get
    nodes`); everything else is known only from stored events, which expire, by default, an hour after they were last
    seen.

    \b
    Examples:
      eventbus describe pod/web-0
      eventbus describe pod web-0 -n shop
      eventbus describe shop/pod/web-0           # the same
      eventbus describe pods                     # all that events are about
      eventbus describe node n1
      eventbus describe deploy/web -o json
    """
    place = None if all_namespaces else namespace
    with open_session() as session:
        if len(object) == 1 and "/" not in object[0]:
            descriptions = _find_kind(session, object[0], place)
        else:
            reference = object_from_words(object)
            descriptions = _find(session, reference, reference.namespace or place)
        hints = [hint for hint in (_untaken(session, descriptions), waiting(session)) if hint]
    _write(descriptions, show_events=show_events, output=output)
    for hint in hints:
        click.echo(hint, err=True)


def _write(descriptions: Sequence[Description], *, show_events: bool, output: str | None) -> None:
    from eventbus.cli.printers.description import description_to_json, format_description
    from eventbus.util.yaml import dump_yaml

    if output:
        items = [description_to_json(description) for description in descriptions]
        data = items[0] if len(items) == 1 else {"kind": "List", "items": items}
        write(dump_json(data) + "\n" if output == "json" else dump_yaml(data))
        return
    now, colour = datetime.now(UTC), wants_colour(sys.stdout)
    pages = (
        format_description(description, now=now, show_events=show_events, colour=colour) for description in descriptions
    )
    write("\n\n".join(pages))


def _untaken(session: Session, descriptions: Sequence[Description]) -> str:
    """Return why a pod waits if no agent has taken it; "" if one has, or if several objects are shown."""
    from eventbus.model.kinds import NODE
    from eventbus.model.objects.pod import Pod

    pod = descriptions[0].stored.object if len(descriptions) == 1 and descriptions[0].stored else None
    if not isinstance(pod, Pod) or pod.status.phase != "Pending" or pod.status.start_time or pod.status.reason:
        return ""
    node, namespace = pod.spec.node_name, pod.metadata.namespace
    why = "it names no node (spec.nodeName), and nothing here chooses one"
    if node:
        try:
            session.store.objects(NODE).get(node)
            why = f"the agent of node {node} has not taken it: does it have --pods-from-bus {namespace}?"
        except NotFound:
            why = f"no node {node} is registered"
        except BusRefused:  # this user may read pods, but no nodes
            return ""
    return f"{printable(pod.metadata.name)} waits: {printable(why)}"


def _find_kind(session: Session, typed: str, namespace: str | None) -> list[Description]:
    """Find all objects of a kind, by their events and in the store. Raises: NotFound: none."""
    from eventbus.cli.printers.description import describe_objects

    store, kind = session.store, readable_kind(session.store, typed, namespace)
    kinds = frozenset(meant_kinds(typed))
    anywhere = kind is not None and not kind.namespaced
    events = store.list(None if anywhere else namespace).items
    itself = find_stored_beginning(store, kind, namespace, "") if kind else []
    descriptions = describe_objects((event for event in events if event.involved_object.kind.lower() in kinds), itself)
    if not descriptions:
        if kind is None and not kinds & frozenset(known_kinds()):
            object_from_words((typed,))  # a name without its kind
        place = "" if namespace is None else f" in namespace {namespace}"
        hint = f": {waiting(session)}" if waiting(session) else ""
        raise NotFound(f"no event about any {typed} is stored{place}{hint}; name one: {typed}/NAME")
    return descriptions


def _find(session: Session, reference: ObjectReference, namespace: str | None) -> list[Description]:
    """Find the object, else all with names that begin so. Raises: NotFound: none; the message has suggestions."""
    from eventbus.cli.printers.description import describe_objects

    store, kind = session.store, readable_kind(session.store, reference.kind, namespace)
    # Events about an object that is in no namespace lie in default.
    anywhere = kind is not None and not kind.namespaced and namespace is not None
    places = dict.fromkeys((namespace, "default")) if anywhere else (namespace,)
    exact = [event for place in places for event in list_about(store, place, reference).items]
    itself = find_stored(store, kind, namespace, reference.name) if kind else []
    if exact or itself:
        return describe_objects(exact, itself)
    kinds = frozenset(meant_kinds(reference.kind))
    try:
        everything, everywhere = store.list().items, True
    except BusRefused:  # this user may not look elsewhere
        everything, everywhere = store.list(namespace).items, False
    begun = [
        event
        for event in everything
        if event.involved_object.kind.lower() in kinds
        and event.involved_object.name.startswith(reference.name)
        and (namespace is None or event.metadata.namespace in places)
    ]
    itself = find_stored_beginning(store, kind, namespace, reference.name) if kind else []
    if begun or itself:
        return describe_objects(begun, itself)
    problem = f"{reference.kind}/{reference.name} not found"
    problem += "" if namespace is None else f" in namespace {namespace}"
    stored = find_stored(store, kind, None, reference.name) if kind and everywhere else []
    others = elsewhere(everything, kinds, reference.name, stored)
    cure = f"did you mean {' or '.join(others)}?" if others else waiting(session)
    raise NotFound(f"{problem}; {cure or 'no event about it is stored'}")
