"""Runs `eventbus get` for one kind: lists or watches objects, and prints them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

import click
import msgspec

from eventbus.cache.pager import list_all
from eventbus.cli.input.get_options import GetOptions
from eventbus.cli.object_follower import ObjectFollower
from eventbus.cli.printers.object_printer import PrintedChange, Printer, PrintOptions, make_printer
from eventbus.cli.printers.output import wants_colour, write
from eventbus.cli.printers.sort_by import Order, order_of
from eventbus.cli.session import Session, open_session
from eventbus.errors import NotFound
from eventbus.model.kinds import Kind
from eventbus.model.list_watch import ListOptions, ObjectList, WatchEventType
from eventbus.util.text import printable

if TYPE_CHECKING:
    from eventbus.client.objects import RemoteObjects
    from eventbus.store.writer import ObjectWriter


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """A `get` of one kind. *list_all* and *wanted* select objects where the store cannot.

    *hint* is printed to standard error, for data that may be missing; after an empty table *on_empty* instead.
    """

    kind: Kind[Any]
    asked: GetOptions
    list_all: Callable[[Session], ObjectList[Any]] | None = None
    wanted: Callable[[Any], bool] = lambda found: True
    hint: Callable[[Session], str] = lambda session: ""
    on_empty: Callable[[Session], Sequence[str]] = lambda session: ()
    printer: Printer | None = None


def run_get(request: Request) -> None:
    """List, get the named objects, or watch until Ctrl-C, and print."""
    kind, asked = request.kind, request.asked
    options, printer = asked.list_options(kind), request.printer or printer_option(kind, asked)
    order = order_option(kind, asked)
    with open_session() as session:
        objects: ObjectWriter[Any] | RemoteObjects[Any] = session.store.objects(kind)
        if asked.names and not asked.watches:
            _show_named(request, session, printer, order)
            return
        listing = request.list_all
        follower = ObjectFollower(
            list_all=lambda: list_all(objects, options)[0] if listing is None else listing(session),
            watch=lambda version: objects.watch(_watching(options, version)),
            wanted=request.wanted,
            tells_lost=asked.watches and asked.output_watch_events,
        )
        found = order(follower.fetch())
        if asked.watches:
            if asked.names and not found and not asked.ignore_not_found:
                _say_missing([NotFound(f'{kind.resource} "{asked.names_of(kind)[0]}" not found')])
            write(printer.watched([PrintedChange(WatchEventType.ADDED, one) for one in found if not asked.watch_only]))
            _say(request.hint(session))
            _follow(follower, printer, asked)
        shown = bool(found) or asked.output not in ("", "wide")
        hints = [request.hint(session)] if shown else request.on_empty(session)
    if shown:
        write(printer.listed(found))
    elif not asked.ignore_not_found:
        _say_none(kind, asked)
    _say(*hints)


def _show_named(request: Request, session: Session, printer: Printer, order: Order) -> None:
    """Print the named objects, one alone or several as a list, and say which do not exist."""
    kind, asked = request.kind, request.asked
    objects: ObjectWriter[Any] | RemoteObjects[Any] = session.store.objects(kind)
    found, missing = [], []
    for name in asked.names_of(kind):
        try:
            found.append(objects.get(name, asked.place(kind)))
        except NotFound as error:
            missing.append(error)
    found = [one for one in order(found) if request.wanted(one)]
    if found:
        alone = len(asked.names) == 1
        write(printer.watched([PrintedChange("", found[0])]) if alone else printer.listed(found))
    _say(request.hint(session))
    if missing and not asked.ignore_not_found:
        _say_missing(missing)


def _say_missing(missing: Sequence[NotFound]) -> NoReturn:
    for error in missing:
        click.echo(f"Error from server (NotFound): {printable(str(error))}", err=True)
    sys.exit(NotFound.exit_code)


def _follow(follower: ObjectFollower, printer: Printer, asked: GetOptions) -> None:
    for told in follower.follow():
        # kubectl prints deleted objects like changed ones. We print them only together with the type of the change.
        write(printer.watched([one for one in told if asked.output_watch_events or one.type != WatchEventType.DELETED]))


def _watching(options: ListOptions, version: str) -> ListOptions:
    return msgspec.structs.replace(options, resource_version=version, limit=0, allow_bookmarks=True)


def _say_none(kind: Kind[Any], asked: GetOptions) -> None:
    place = asked.place(kind)
    click.echo(f"No resources found in {place} namespace." if place else "No resources found", err=True)


def _say(*hints: str) -> None:
    for hint in filter(None, hints):
        click.echo(hint, err=True)


def printer_option(kind: Kind[Any], asked: GetOptions) -> Printer:
    """Make the printer that -o asks for. Raises: BadParameter."""
    look = PrintOptions(
        form=asked.output,
        namespaces=asked.all_namespaces and kind.namespaced,
        no_headers=asked.no_headers,
        colour=wants_colour(sys.stdout),
        watch_events=asked.output_watch_events and asked.watches,
        labels=asked.label_columns,
        all_labels=asked.show_labels,
    )
    try:
        return make_printer(kind, look)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--output") from None


def order_option(kind: Kind[Any], asked: GetOptions) -> Order:
    """Return the order that --sort-by asks for. Raises: BadParameter."""
    try:
        return order_of(kind, asked.sort_by)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--sort-by") from None
