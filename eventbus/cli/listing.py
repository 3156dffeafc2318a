"""Lists, follows and prints objects: `eventbus get`, and the follower of `eventbus events`."""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

import click
import msgspec

from eventbus.cli.input.get_options import GetOptions
from eventbus.cli.printers.object_printer import PrintedChange, Printer, PrintOptions, make_printer
from eventbus.cli.printers.output import wants_colour, write
from eventbus.cli.printers.sort_by import Order, order_of
from eventbus.cli.session import Session, open_session
from eventbus.errors import BusUnavailable, Expired, NotFound
from eventbus.model.kinds import Kind
from eventbus.model.list_watch import HasMetadata, ListOptions, ObjectList, Watch, WatchEventType, list_all
from eventbus.util.text import printable

if TYPE_CHECKING:
    from eventbus.client.store import RemoteObjects
    from eventbus.store.writer import ObjectWriter


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """A `get` of one kind. *list_all* and *wanted* select objects where the store cannot.

    *hint* is printed to standard error, for data that may be missing; instead of an empty table *none* and *on_empty*.
    """

    kind: Kind[Any]
    query: GetOptions
    list_all: Callable[[Session], ObjectList[Any]] | None = None
    wanted: Callable[[Any], bool] = lambda item: True
    hint: Callable[[Session], str] = lambda session: ""
    on_empty: Callable[[Session], Sequence[str]] = lambda session: ()
    printer: Printer | None = None
    none: str = ""  #: "": kubectl's words for all kinds


def run_get(request: Request) -> None:
    """List, get the named objects, or watch until Ctrl-C, and print."""
    kind, query = request.kind, request.query
    options, printer = query.list_options(kind), request.printer or printer_option(kind, query)
    order = order_option(kind, query)
    with open_session() as session:
        objects: ObjectWriter[Any] | RemoteObjects[Any] = session.store.objects(kind)
        if query.names and not query.watches:
            _show_named(request, session, printer, order)
            return
        listing = request.list_all
        follower = ObjectFollower(
            list_all=lambda: list_all(objects, options)[0] if listing is None else listing(session),
            watch=lambda version: objects.watch(_watching(options, version)),
            wanted=request.wanted,
            tells_lost=query.watches and query.output_watch_events,
        )
        items = order(follower.fetch())
        if query.watches:
            if query.names and not items and not query.ignore_not_found:
                _say_missing([NotFound(f'{kind.resource} "{query.names_of(kind)[0]}" not found')])
            write(
                printer.watched([PrintedChange(WatchEventType.ADDED, item) for item in items if not query.watch_only])
            )
            _say(request.hint(session))
            _follow(follower, printer, query)
        shown = bool(items) or query.output not in ("", "wide")
        hints = [request.hint(session)] if shown else request.on_empty(session)
    if shown:
        write(printer.listed(items))
    elif not query.ignore_not_found:
        _say(request.none or _none(kind, query))
    _say(*hints)


def _show_named(request: Request, session: Session, printer: Printer, order: Order) -> None:
    """Print the named objects, one alone or several as a list, and say which do not exist."""
    kind, query = request.kind, request.query
    objects: ObjectWriter[Any] | RemoteObjects[Any] = session.store.objects(kind)
    items, missing = [], []
    for name in query.names_of(kind):
        try:
            items.append(objects.get(name, query.place(kind)))
        except NotFound as error:
            missing.append(error)
    items = [item for item in order(items) if request.wanted(item)]
    if items:
        alone = len(query.names) == 1
        write(printer.watched([PrintedChange("", items[0])]) if alone else printer.listed(items))
    _say(request.hint(session))
    if missing and not query.ignore_not_found:
        _say_missing(missing)


def _say_missing(missing: Sequence[NotFound]) -> NoReturn:
    for error in missing:
        click.echo(f"Error from server (NotFound): {printable(str(error))}", err=True)
    sys.exit(NotFound.exit_code)


def _follow(follower: ObjectFollower, printer: Printer, query: GetOptions) -> None:
    for changes in follower.follow():
        # kubectl prints deleted objects like changed ones. We print them only together with the type of the change.
        write(
            printer.watched(
                [change for change in changes if query.output_watch_events or change.type != WatchEventType.DELETED]
            )
        )


def _watching(options: ListOptions, version: str) -> ListOptions:
    return msgspec.structs.replace(options, resource_version=version, limit=0, allow_bookmarks=True)


def _none(kind: Kind[Any], query: GetOptions) -> str:
    place = query.place(kind)
    return f"No resources found in {place} namespace." if place else "No resources found"


def _say(*hints: str) -> None:
    for hint in filter(None, hints):
        click.echo(hint, err=True)


def printer_option(kind: Kind[Any], query: GetOptions) -> Printer:
    """Make the printer that -o asks for. Raises: BadParameter."""
    look = PrintOptions(
        form=query.output,
        namespaces=query.all_namespaces and kind.namespaced,
        no_headers=query.no_headers,
        colour=wants_colour(sys.stdout),
        watch_events=query.output_watch_events and query.watches,
        labels=query.label_columns,
        all_labels=query.show_labels,
    )
    try:
        return make_printer(kind, look)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--output") from None


def order_option(kind: Kind[Any], query: GetOptions) -> Order:
    """Return the order that --sort-by asks for. Raises: BadParameter."""
    try:
        return order_of(kind, query.sort_by)
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
        listing = self._list_all()
        self._version = listing.resource_version
        fresh = [item for item in listing.items if self._is_new(item)]
        self._shown = {_identity(item): _version(item) for item in listing.items}
        if self._tells_lost:
            self._objects = {_identity(item): item for item in listing.items if self._wanted(item)}
        return [item for item in fresh if self._wanted(item)]

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
                item = event.object
                if item is None or not self._is_new(item):
                    continue
                if event.type is WatchEventType.DELETED:
                    self._shown.pop(_identity(item), None)
                    self._objects.pop(_identity(item), None)
                else:
                    self._shown[_identity(item)] = _version(item)
                    if self._tells_lost and self._wanted(item):
                        self._objects[_identity(item)] = item
                if self._wanted(item):
                    yield [PrintedChange(event.type, item)]
        finally:
            watch.stop()

    def _list_again(self) -> list[PrintedChange]:
        while True:
            try:
                before = self._objects
                fresh = self.fetch()
                deleted = [item for identity, item in before.items() if identity not in self._shown]
                return [
                    *(PrintedChange(WatchEventType.DELETED, item) for item in deleted),
                    *(PrintedChange(WatchEventType.ADDED, item) for item in fresh),
                ]
            except BusUnavailable:
                _pause()

    def _is_new(self, item: HasMetadata) -> bool:
        return _version(item) > self._shown.get(_identity(item), -1)


def _pause() -> None:
    time.sleep(PAUSE_S * random.uniform(0.5, 1.5))


def _identity(item: HasMetadata) -> tuple[str, str, str]:
    # With several partitions two events may have one name; their uids differ.
    return item.metadata.namespace, item.metadata.name, item.metadata.uid


def _version(item: HasMetadata) -> int:
    return int(item.metadata.resource_version or 0)
