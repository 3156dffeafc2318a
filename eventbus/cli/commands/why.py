"""`eventbus why`: the story of one object, and related events."""

from __future__ import annotations

import sys
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

import click
import msgspec

from eventbus.cli.completion import complete_objects
from eventbus.cli.input.lookup import HINTS, object_from_words, waiting
from eventbus.cli.input.options import namespace_option, seconds_option
from eventbus.cli.printers.output import dump_json, wants_colour, write
from eventbus.cli.session import Session, open_session
from eventbus.errors import NotFound
from eventbus.model.event import EventType, ObjectReference
from eventbus.model.reference import meant_kinds, reference_to, spelled_kind

if TYPE_CHECKING:
    from eventbus.store.story.story import Story

#: Longest time before the first Warning that is searched.
_MOST_BEFORE_S: Final = 14 * 86_400


@click.command()
@click.argument("object", nargs=-1, required=True, metavar="[NAMESPACE/]KIND/NAME", shell_complete=complete_objects)
@namespace_option("Where the object is.")
@click.option(
    "--before",
    "before_s",
    callback=seconds_option,
    default="10m",
    show_default=True,
    help="Period before the first Warning from which related events are shown.",
)
@click.option("--system", is_flag=True, help="Also events of eventbus's own workers and of processes that `up` starts.")
@click.option("-o", "--output", type=click.Choice(["json", "yaml"]), help="Output as JSON or YAML.")
def why(object: tuple[str, ...], namespace: str, before_s: float, system: bool, output: str | None) -> None:
    """Show why an object fails, since when, how often, if it still fails, and related events.

    Related events are about its node and owner, starts, installs and changes on the same host, other Warnings there,
    and other objects that failed for the same reason at the same time. Objects that were started together are one line.
    The workers of eventbus (namespace eventbus-system) and the processes of `up` are omitted, unless the object is in
    that namespace. The web page shows the same.

    \b
    Examples:
      eventbus why pod/web-0
      eventbus why deploy/web -n shop --before 1h
      eventbus why job backup -o json

    \b
    Exit codes:
      0  shown
      1  the object is unknown, or the bus does not answer
      2  wrong usage
    """
    from eventbus.cli.printers.story_page import format_story
    from eventbus.model.kinds import KINDS
    from eventbus.store.story.story import story_to_json
    from eventbus.util.yaml import dump_yaml

    typed = object_from_words(object)
    about = reference_to(msgspec.structs.replace(typed, kind=spelled_kind(typed.kind)), namespace)
    kind = KINDS.named(about.kind)
    if kind is not None and not kind.namespaced:
        about = msgspec.structs.replace(about, namespace="")
    with open_session() as session:
        story, others = session.read_story(about, _before(before_s), system=system), []
        if not _is_known(story) and len(others := _beginning(session, about)) == 1:  # a pod without its node's name
            story = session.read_story(msgspec.structs.replace(about, name=others[0]), _before(before_s), system=system)
        hint = waiting(session)
    if not _is_known(story):
        place = f" in namespace {about.namespace}" if about.namespace else ""
        meant = " or ".join(f"{typed.kind}/{name}" for name in others[:HINTS])
        cure = f"did you mean {meant}?" if meant else hint or "no event about it is stored"
        raise NotFound(f"{typed.kind}/{typed.name} not found{place}; {cure}")
    if output:
        plain = msgspec.to_builtins(story_to_json(story, datetime.now(UTC)))
        write(dump_json(plain) + "\n" if output == "json" else dump_yaml(plain))
        return
    write(format_story(story, now=datetime.now(UTC), colour=wants_colour(sys.stdout)))
    if not any(event.type == EventType.WARNING for event in (*story.events, *story.of_owned)):
        click.echo("It has no Warning; the related events are those before its first event.", err=True)
    if hint:
        click.echo(hint, err=True)


def _is_known(story: Story) -> bool:
    return bool(story.events or story.of_owned) or story.stored is not None


def _beginning(session: Session, about: ObjectReference) -> list[str]:
    """Return the names of the same kind and namespace that start with the name of *about* and a hyphen."""
    begin, kinds = f"{about.name}-", frozenset(meant_kinds(about.kind))
    objects = (event.involved_object for event in session.store.list(about.namespace or None).items)
    return sorted(
        {
            about_object.name
            for about_object in objects
            if about_object.kind.lower() in kinds and about_object.name.startswith(begin)
        }
    )


def _before(seconds: float) -> timedelta:
    if not 1 <= seconds <= _MOST_BEFORE_S:
        raise click.BadParameter("it is not between 1s and 14d", param_hint="--before")
    return timedelta(seconds=seconds)
