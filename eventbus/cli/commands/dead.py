"""`eventbus dead list | show | replay | discard`: lists and resolves dead letters."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from eventbus.cli.completion import complete_groups
from eventbus.cli.input.options import ask_consent, together
from eventbus.cli.printers.output import core_of, dump_json, write, write_bytes
from eventbus.cli.session import open_session
from eventbus.errors import GroupMissing, NotFound
from eventbus.util.human_duration import human_duration
from eventbus.util.table import format_table
from eventbus.util.text import printable

if TYPE_CHECKING:
    from eventbus.consume.dead_letter import DeadEntry, DeadLetter

HEADERS = ("ID", "Age", "Group", "Cause", "Deaths", "Bytes", "Object", "Message")
#: bytes of an unreadable entry that `show` prints
SHOWN_BYTES = 256

_group = click.option("--group", metavar="NAME", help="Only entries of this group.", shell_complete=complete_groups)
_cause = click.option("--cause", metavar="WORD", help="Only entries with this cause, like unreadable.")


#: The arguments of a command that settles entries.
_choice = together(
    click.argument("ids", metavar="[ID]...", nargs=-1),
    click.option("--all", "everything", is_flag=True, help="All entries, or all with this --group and --cause."),
    _group,
    _cause,
    click.option("-y", "--yes", is_flag=True, help="Do not ask."),
    click.option("-o", "--output", type=click.Choice(["json"]), help="Print the result as JSON."),
)


@click.command()
@_group
@_cause
@click.option("-o", "--output", type=click.Choice(["json", "name"]), help="Output in another form.")
def list_dead(group: str | None, cause: str | None, output: str | None) -> None:
    """List dead letters, oldest first, with their group, cause, and number of dead workers.

    Only the poison event of a batch becomes a dead letter. `eventbus dead show` shows details.

    \b
    Causes:
      unreadable, unknown-version, unknown-codec, too-long   bytes that are not a valid event
      killed-worker    three workers died with its batch, a fourth with this event
      handler-failed   a watcher's handler raised three times
      no-line          it cannot be formatted as a log line
      rejected, unbuildable, retries   a sink rejected it, cannot send it, or failed too often

    \b
    Examples:
      eventbus dead list
      eventbus dead list --group sink --cause killed-worker
      eventbus dead list -o json
    """
    with _opened() as dead:
        entries = list(dead.list(group=group, cause=cause))
    if output == "json":
        write(dump_json([_plain(entry) for entry in entries]) + "\n")
    elif output == "name":
        write("".join(f"{entry.id}\n" for entry in entries))
    elif entries:
        write(format_table(HEADERS, [_row(entry) for entry in entries]))
    else:
        click.echo("There are no dead letters.", err=True)


@click.command()
@click.argument("id")
@click.option("-o", "--output", type=click.Choice(["json", "raw"]), help="Output as JSON, or the raw bytes.")
def show_dead(id: str, output: str | None) -> None:
    """Show one dead letter: its readable events, or its first bytes.

    \b
    Examples:
      eventbus dead show 0/1763700000000-0
      eventbus dead show 0/1763700000000-0 -o json
      eventbus dead show 0/1763700000000-0 -o raw | xxd
    """
    with _opened() as dead:
        entry = dead.get(id)
    if output == "raw":
        write_bytes(entry.body)
    elif output == "json":
        write(dump_json(_plain(entry)) + "\n")
    else:
        write(_described(entry))


@click.command()
@_choice
def replay_dead(output: str | None, **choice: Any) -> None:
    """Send dead letters to their group again; other groups do not receive them again.

    Use it when the cause is fixed, for example by an upgrade. The command is idempotent. An entry that fails again
    becomes a dead letter again.

    \b
    Examples:
      eventbus dead replay 0/1763700000000-0
      eventbus dead replay --all --group billing --cause handler-failed
    """
    with _opened() as dead:
        _each(_chosen(dead, "Replay", **choice), dead.replay, "replayed", output)


@click.command()
@_choice
def discard_dead(output: str | None, **choice: Any) -> None:
    """Delete dead letters permanently; they are counted as discarded.

    \b
    Examples:
      eventbus dead discard 0/1763700000000-0
      eventbus dead discard --all --cause unreadable --yes
    """
    with _opened() as dead:
        _each(_chosen(dead, "Discard", **choice), dead.discard, "discarded", output)


@contextmanager
def _opened() -> Iterator[DeadLetter]:
    """The dead letter of the configured bus, for the time of a block."""
    from eventbus.consume.dead_letter import DeadLetter

    with open_session() as session:
        yield DeadLetter(session.bus, session.client)


def _chosen(
    dead: DeadLetter,
    verb: str,
    *,
    ids: tuple[str, ...],
    everything: bool,
    group: str | None,
    cause: str | None,
    yes: bool,
) -> list[str]:
    if ids and (everything or group or cause):
        raise click.UsageError("give IDs, or --all with --group and --cause; not both")
    if ids:
        return list(ids)
    if not everything:
        raise click.UsageError("give the IDs that `eventbus dead list` shows, or --all")
    chosen = [entry.id for entry in dead.list(group=group, cause=cause)]
    if chosen and not yes:
        ask_consent(f"{verb} {len(chosen)} {'entry' if len(chosen) == 1 else 'entries'}?")
    return chosen


def _each(ids: list[str], act: Callable[[str], None], word: str, output: str | None) -> None:
    """Apply the change to each of *ids*, then report the ones that failed and exit with code 1."""
    done: list[str] = []
    missing: list[str] = []
    orphans: list[str] = []
    for dead_id in ids:
        try:
            act(dead_id)
        except NotFound:
            missing.append(dead_id)
        except GroupMissing as error:
            orphans.append(str(error))
        else:
            done.append(dead_id)
            if output is None:
                write(f"dead/{dead_id} {word}\n")
    if output == "json":
        write(dump_json({word: done, "notFound": missing}) + "\n")
    elif not ids:
        click.echo("There are no dead letters.", err=True)
    if missing:
        orphans.append(f"dead entries not found, so replayed or discarded before: {', '.join(missing)}")
    if orphans:
        raise NotFound("; ".join(orphans))


def _row(entry: DeadEntry) -> tuple[str, ...]:
    first = next(iter(entry.events()), None)
    about = f"{first.involved_object.kind.lower()}/{first.involved_object.name}" if first else "<unreadable>"
    age = human_duration(time.time() - entry.time_ms / 1000)
    message = first.message if first else ""
    return entry.id, age, entry.group, entry.cause, str(entry.deaths), str(len(entry.body)), about, message


def _plain(entry: DeadEntry) -> dict[str, Any]:
    return {
        "id": entry.id,
        "time": _time(entry),
        "group": entry.group,
        "cause": entry.cause,
        "deaths": entry.deaths,
        "why": entry.why,
        "bytes": entry.body.hex(),
        "events": [core_of(event) for event in entry.events()],
    }


def _described(entry: DeadEntry) -> str:
    return "".join(f"{line}\n" for line in _lines(entry))


def _lines(entry: DeadEntry) -> Iterator[str]:
    yield f"ID:      {entry.id}"
    yield f"Time:    {_time(entry)}"
    yield f"Group:   {printable(entry.group)}"
    yield f"Cause:   {printable(entry.cause)}"
    yield f"Deaths:  {entry.deaths}"
    if entry.why:
        yield f"Why:     {printable(entry.why)}"
    yield f"Bytes:   {len(entry.body)}"
    events = entry.events()
    for event in events:
        about = event.involved_object
        yield "Event:"
        for label, text in (
            ("UID", event.metadata.uid),
            ("Object", f"{about.kind.lower()}/{about.name}"),
            ("Namespace", event.metadata.namespace),
            ("Type", event.type),
            ("Reason", event.reason),
            ("From", event.source.component),
            ("Message", event.message),
        ):
            yield f"  {label + ':':<11}{printable(text)}"
    if not events:
        more = " …" if len(entry.body) > SHOWN_BYTES else ""
        yield f"Begins:  {entry.body[:SHOWN_BYTES].hex(' ')}{more}"


def _time(entry: DeadEntry) -> str:
    moment = datetime.fromtimestamp(entry.time_ms / 1000, UTC)
    return moment.replace(tzinfo=None).isoformat(timespec="milliseconds") + "Z"
