"""`eventbus silence add | list | expire`, and `eventbus ack`."""

from __future__ import annotations

import getpass
import sys
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import click

from eventbus.cli.completion import complete_forms, complete_objects, complete_silences
from eventbus.cli.input.get_options import GetOptions
from eventbus.cli.input.lookup import elsewhere, list_about, object_from_words, stored_kind
from eventbus.cli.input.options import namespace_option
from eventbus.cli.printers.output import FORMS, dump_json, write
from eventbus.cli.session import Session, open_session
from eventbus.errors import BusRefused, ConfigError, NotFound
from eventbus.util.human_duration import parse_duration, parse_instant
from eventbus.util.text import printable

if TYPE_CHECKING:
    from eventbus.model.kinds import Kind
    from eventbus.model.objects.silence import AcknowledgedObject, Acknowledgement, Silence

_output = click.option(
    "-o", "--output", default="", metavar="FORM", help=f"Print the object: {FORMS}.", shell_complete=complete_forms
)
_comment = click.option("--comment", default="", help="Why, for colleagues.")


def _duration(_ctx: click.Context, _param: click.Parameter, text: str) -> timedelta:
    try:
        return parse_duration(text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


def _start(_ctx: click.Context, _param: click.Parameter, text: str | None) -> datetime:
    """Parse a time, or a duration from now."""
    now = datetime.now(UTC).replace(microsecond=0)
    if text is None:
        return now
    try:
        return now + parse_duration(text)
    except OverflowError:
        raise click.BadParameter(f"in {text} is after the year 9999") from None
    except ValueError:
        pass
    try:
        return parse_instant(text)
    except ValueError:
        problem = f"{text!r} is neither a duration like 30m nor a time like 2026-01-31T22:00:00Z"
        raise click.BadParameter(problem) from None


@click.command()
@click.argument("matchers", nargs=-1, required=True, metavar="MATCHER...")
@click.option("--for", "length", required=True, callback=_duration, metavar="DURATION", help="How long: 30m, 2h, 7d.")
@click.option("--start", callback=_start, metavar="TIME|DURATION", help="A time, or how long from now.  [default: now]")
@_comment
@_output
def add_silence(matchers: tuple[str, ...], length: timedelta, start: datetime, comment: str, output: str) -> None:
    """Silence all alerts that match every MATCHER, and print the silence's ID.

    A matcher is a label, an operator (=, !=, =~, !~) and a value, as in a rules file. The labels are type, reason,
    kind, namespace, name, component, host, controller, message, and label_NAME for a label of the event. A user with
    the role edit in one namespace needs a matcher namespace=… of it.

    An alert that ends while it is silenced is still reported as resolved where it was reported as firing.

    \b
    Examples:
      eventbus silence add namespace=shop --for 2h --comment "upgrade of the database"
      eventbus silence add 'reason=~"BackOff|Unhealthy"' kind=Pod name=web-0 --for 30m
      eventbus silence add host=node-7 --start 2026-01-31T22:00:00Z --for 4h
      eventbus silence add namespace=shop --start 1h --for 30m -o yaml

    \b
    Exit codes:
      0  it is stored
      1  Redis or the API worker is unavailable
      2  a matcher is wrong, or this user may not
    """
    from eventbus.model.kinds import SILENCE
    from eventbus.model.matchers import likely_mistake, matcher_problem, parse_matchers
    from eventbus.model.objects.silence import Silence, SilenceMatcher, SilenceSpec

    parsed = [each for text in matchers for each in parse_matchers(text)]
    for matcher in parsed:
        if problem := matcher_problem(matcher):
            raise ConfigError(problem)
        if mistake := likely_mistake(matcher):
            click.echo(f"Warning: {printable(mistake)}", err=True)
    found = tuple(
        SilenceMatcher(each.name, each.value, each.type.endswith("~"), not each.type.startswith("!")) for each in parsed
    )
    try:
        ends_at = start + length
    except OverflowError:
        raise click.BadParameter("the silence ends after the year 9999", param_hint="--for") from None
    if timedelta() < length and ends_at <= datetime.now(UTC):
        raise click.BadParameter(f"the silence would have ended at {ends_at:%Y-%m-%dT%H:%M:%SZ}", param_hint="--start")
    with open_session() as session:
        by = _author(session)
        silence = Silence(spec=SilenceSpec(found, start, ends_at, by, comment))
        made: Silence = session.store.objects(SILENCE).create(silence)
    if not _print(SILENCE, made, output):
        write(f"{made.metadata.name}\n")


@click.command()
@click.option("--expired", is_flag=True, help="Also expired ones, which are kept for five days.")
@_output
def list_silences(expired: bool, output: str) -> None:
    """Show the silences that are active or pending. `-o wide` shows their comments.

    \b
    Examples:
      eventbus silence list
      eventbus silence list --expired -o wide
      eventbus silence list -o json
    """
    from eventbus.cli.listing import Request, run_get
    from eventbus.model.kinds import SILENCE
    from eventbus.model.objects.silence import EXPIRED

    now = datetime.now(UTC)

    def wanted(silence: Silence) -> bool:
        return expired or silence.spec.state(now) != EXPIRED

    none = "No silences" if expired else "No silences are active or pending"
    run_get(Request(kind=SILENCE, query=GetOptions(output=output), wanted=wanted, none=none))


@click.command()
@click.argument("ids", nargs=-1, required=True, metavar="ID...", shell_complete=complete_silences)
@click.option("-o", "--output", type=click.Choice(["name", "json"]), help="Only names, or the expired IDs as JSON.")
def expire_silences(ids: tuple[str, ...], output: str | None) -> None:
    """End silences now. They stay stored for five days.

    \b
    Examples:
      eventbus silence expire 16c07010-bd85-474d-acde-6636a1045961
      eventbus silence expire $(eventbus silence list -o jsonpath='{.items[*].metadata.name}')

    \b
    Exit codes:
      0  all have ended
      1  one does not exist, or Redis or the API worker is unavailable
      2  this user may not
    """
    from eventbus.model.columns.objects import object_name
    from eventbus.model.encoding.event_json import micros_to_json
    from eventbus.model.kinds import SILENCE
    from eventbus.model.objects.silence import EXPIRED

    missing, expired = 0, []
    with open_session() as session:
        objects = session.store.objects(SILENCE)
        for name in ids:
            try:
                spec = objects.get(name).spec
                now = datetime.now(UTC)
                if spec.state(now) != EXPIRED:
                    ended = spec.ended(now)
                    times = {"startsAt": micros_to_json(ended.starts_at), "endsAt": micros_to_json(ended.ends_at)}
                    objects.patch(name, {"spec": times})
            except NotFound as error:
                missing += 1
                click.echo(f"Error from server (NotFound): {printable(str(error))}", err=True)
                continue
            expired.append(name)
            if output != "json":
                click.echo(object_name(SILENCE, name) if output == "name" else f'silence "{name}" expired')
    if output == "json":
        write(dump_json({"expired": expired}) + "\n")
    sys.exit(NotFound.exit_code if missing else 0)


@click.command()
@click.argument("object", nargs=-1, required=True, metavar="[NAMESPACE/]KIND/NAME", shell_complete=complete_objects)
@namespace_option("Where the object is.")
@_comment
@click.option("--remove", is_flag=True, help="Delete the acknowledgements of the object, so that repeats go on.")
@_output
def ack(object: tuple[str, ...], namespace: str, comment: str, remove: bool, output: str) -> None:
    """Acknowledge the open groups that contain alerts about an object, so that they are not repeated.

    A group is repeated again when another object or reason joins it, and notified as usual after it has resolved.
    PagerDuty and Slack (with a bot token) show the acknowledgement.

    \b
    Examples:
      eventbus ack pod/web-0 -n shop
      eventbus ack shop/Pod/web-0 --comment "I am on it"
      eventbus ack pod/web-0 -n shop --remove

    \b
    Exit codes:
      0  it is acknowledged, or removed
      1  no open group contains alerts about the object, or there is no acknowledgement to remove
      2  wrong usage, or this user may not
    """
    from eventbus.model.kinds import ACKNOWLEDGEMENT
    from eventbus.model.objects.silence import Acknowledgement, AcknowledgementSpec

    with open_session() as session:
        about = _acknowledged(session, object, namespace)
        if remove:
            _remove(session, about, output)
            return
        _require_open_group(session, about)
        spec = AcknowledgementSpec(object=about, created_by=_author(session), comment=comment)
        made = session.store.objects(ACKNOWLEDGEMENT).create(Acknowledgement(spec=spec))
    if not _print(ACKNOWLEDGEMENT, made, output):
        click.echo(f"{printable(str(about))} acknowledged")


def _acknowledged(session: Session, words: tuple[str, ...], namespace: str) -> AcknowledgedObject:
    """Return the object as alerts about it name it. Raises: ClickException: there are no events about it."""
    from eventbus.model.matchers import labels_of
    from eventbus.model.objects.silence import AcknowledgedObject

    reference = object_from_words(words)
    kind = stored_kind(reference.kind)
    place = None if kind is not None and not kind.namespaced else reference.namespace or namespace
    events = list_about(session.store, place, reference).items
    if not events:
        kinds = frozenset({reference.kind.lower()})
        others = elsewhere(session.store.list().items, kinds, reference.name, ())
        hint = f"; there are of {', '.join(map(printable, others))}" if others else ""
        shown = printable(f"{reference.kind}/{reference.name}")
        raise click.ClickException(f"there are no events about {shown} in namespace {place or 'default'}{hint}")
    labels = labels_of(events[-1])
    return AcknowledgedObject(labels.get("kind", ""), labels.get("namespace", ""), labels.get("name", ""))


def _require_open_group(session: Session, about: AcknowledgedObject) -> None:
    """Raises: ClickException: no open group contains a firing alert about the object."""
    try:
        found, all_read = session.fires(about)
    except BusRefused as error:
        found, all_read, why = False, False, f": {printable(str(error))}"
    else:
        why = ", because there are too many"
    shown = printable(str(about))
    if not found and all_read:
        raise click.ClickException(f"no open group contains {shown}: no alert about it fires and is notified")
    if not found:
        click.echo(f"Warning: it is not known whether an open group contains {shown}{why}", err=True)


def _remove(session: Session, about: AcknowledgedObject, output: str) -> None:
    from eventbus.cli.listing import printer_option
    from eventbus.model.kinds import ACKNOWLEDGEMENT
    from eventbus.model.list_watch import ListOptions, list_all

    objects = session.store.objects(ACKNOWLEDGEMENT)
    listed: tuple[Acknowledgement, ...] = list_all(objects, ListOptions(limit=500))[0].items
    found = [each for each in listed if str(each.spec.object).lower() == str(about).lower()]
    if not found:
        raise click.ClickException(f"{printable(str(about))} is not acknowledged")
    for each in found:
        objects.delete(each.metadata.name)
    if output:
        write(printer_option(ACKNOWLEDGEMENT, GetOptions(output=output)).listed(found))
    else:
        click.echo(f"{printable(str(about))} is not acknowledged any more")


def _author(session: Session) -> str:
    """Return the user of this machine; an API worker sets the authenticated user instead."""
    if session.remote is not None:
        return ""
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # no such user, in a container
        return ""


def _print(kind: Kind[Any], made: Any, output: str) -> bool:
    """Print the object in the form of --output; return False without one."""
    from eventbus.cli.listing import printer_option
    from eventbus.cli.printers.object_printer import PrintedChange

    if not output:
        return False
    write(printer_option(kind, GetOptions(output=output)).watched([PrintedChange("", made)]))
    return True
