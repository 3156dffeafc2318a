"""Lists, follows and prints objects: `eventbus get`, and the follower of `eventbus events`."""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

import click
import msgspec

from eventbus.cache.pager import list_all
from eventbus.cli.input.get_options import GetOptions
from eventbus.cli.printers.object_printer import PrintedChange, Printer, PrintOptions, make_printer
from eventbus.cli.printers.output import wants_colour, write
from eventbus.cli.printers.sort_by import Order, order_of
from eventbus.cli.session import Session, open_session
from eventbus.errors import BusUnavailable, Expired, NotFound
from eventbus.model.kinds import Kind
from eventbus.model.list_watch import HasMetadata, ListOptions, ObjectList, Watch, WatchEventType
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


#: A pause between two attempts, seconds.
PAUSE_S = 1.0


class ObjectFollower:
    """Follows objects, and remembers the versions that were shown.

    Args: list_all: everything that is asked for.  watch: the same, from a version.  wanted: whether to show it.
          tells_lost: keep the objects, to report as DELETED those that vanished while changes were lost.
    """

    def __init__(
        self,
        *,
        list_all: Callable[[], ObjectList[Any]],
        watch: Callable[[str], Watch[Any]],
        wanted: Callable[[Any], bool],
        tells_lost: bool = False,
    ) -> None:
        self._list_all = list_all
        self._watch = watch
        self._wanted = wanted
        self._shown: dict[tuple[str, str, str], int] = {}
        self._tells_lost = tells_lost
        self._objects: dict[tuple[str, str, str], Any] = {}
        self._version = ""

    def fetch(self) -> list[Any]:
        """Return all that is wanted and new since the last list or change, in the store's order."""
        found = self._list_all()
        self._version = found.resource_version
        fresh = [one for one in found.items if self._is_new(one)]
        self._shown = {_identity(one): _version(one) for one in found.items}
        if self._tells_lost:
            self._objects = {_identity(one): one for one in found.items if self._wanted(one)}
        return [one for one in fresh if self._wanted(one)]

    def follow(self) -> Iterator[Sequence[PrintedChange]]:
        """Yield changes and deletions, in order for each object; never ends. Waits while Redis is unreachable.

        Call `fetch` first. With *tells_lost* this includes objects that vanished while changes were lost.
        """
        while True:
            try:
                yield from self._follow_once()
            except Expired:
                yield self._list_again()
            except BusUnavailable:
                _pause()

    def _follow_once(self) -> Iterator[Sequence[PrintedChange]]:
        watch = self._watch(self._version)
        try:
            for event in watch:
                self._version = event.resource_version
                found = event.object
                if found is None or not self._is_new(found):
                    continue
                if event.type is WatchEventType.DELETED:
                    self._shown.pop(_identity(found), None)
                    self._objects.pop(_identity(found), None)
                else:
                    self._shown[_identity(found)] = _version(found)
                    if self._tells_lost and self._wanted(found):
                        self._objects[_identity(found)] = found
                if self._wanted(found):
                    yield [PrintedChange(event.type, found)]
        finally:
            watch.stop()

    def _list_again(self) -> list[PrintedChange]:
        while True:
            try:
                before = self._objects
                fresh = self.fetch()
                gone = [found for identity, found in before.items() if identity not in self._shown]
                return [
                    *(PrintedChange(WatchEventType.DELETED, found) for found in gone),
                    *(PrintedChange(WatchEventType.ADDED, found) for found in fresh),
                ]
            except BusUnavailable:
                _pause()

    def _is_new(self, found: HasMetadata) -> bool:
        return _version(found) > self._shown.get(_identity(found), -1)


def _pause() -> None:
    time.sleep(PAUSE_S * random.uniform(0.5, 1.5))


def _identity(found: HasMetadata) -> tuple[str, str, str]:
    # With several partitions two events may have one name; their uids differ.
    return found.metadata.namespace, found.metadata.name, found.metadata.uid


def _version(found: HasMetadata) -> int:
    return int(found.metadata.resource_version or 0)
