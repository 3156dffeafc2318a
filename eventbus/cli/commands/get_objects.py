"""The common part of every `eventbus get`; `get nodes` and `get leases`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import click
import msgspec

from eventbus.cache.pager import list_all
from eventbus.cli.completion import complete_forms, complete_namespaces
from eventbus.cli.object_follower import ObjectFollower
from eventbus.cli.session import Session, open_session
from eventbus.errors import NotFound
from eventbus.kinds import KINDS, LEASE, NODE, Kind
from eventbus.list_watch import ListOptions, ObjectList, WatchEventType
from eventbus.names import is_dns_label
from eventbus.printers.object_printer import FORMS, PrintedChange, Printer, PrintOptions, make_printer
from eventbus.printers.output import wants_colour, write
from eventbus.printers.sort_by import Order, order_of
from eventbus.selectors.fields import escape_value
from eventbus.text import printable

if TYPE_CHECKING:
    from eventbus.remote.objects import RemoteObjects
    from eventbus.store.writer import ObjectWriter

F = TypeVar("F", bound=Callable[..., Any])

#: Objects of a list that kubectl asks for at once.
CHUNK = 500


class GetOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The names and options that every kind has, as they were typed."""

    names: tuple[str, ...] = ()
    namespace: str = ""
    all_namespaces: bool = False
    selector: str = ""
    field_selector: str = ""
    sort_by: str | None = None
    watch: bool = False
    watch_only: bool = False
    output_watch_events: bool = False
    output: str = ""
    no_headers: bool = False
    chunk_size: int = CHUNK
    label_columns: tuple[str, ...] = ()
    show_labels: bool = False

    @property
    def watches(self) -> bool:
        """Return True if the command goes on until Ctrl-C."""
        return self.watch or self.watch_only

    def names_of(self, kind: Kind[Any]) -> tuple[str, ...]:
        """Return the names; the kind may stand before each. Raises: UsageError: they do not go with other options."""
        if not self.names:
            return ()
        if self.all_namespaces:
            raise click.UsageError("a resource cannot be retrieved by name across all namespaces")
        if self.selector or self.field_selector:
            raise click.UsageError("name cannot be provided when a selector is specified")
        if self.watches and len(self.names) > 1:
            raise click.UsageError("watch is only supported on individual resources and resource collections")
        return tuple(_without_kind(kind, name) for name in self.names)

    def place(self, kind: Kind[Any]) -> str:
        """Return the namespace; "": all, or none. Raises: BadParameter."""
        if self.all_namespaces or not kind.namespaced:
            return ""
        if not is_dns_label(self.namespace):
            raise click.BadParameter(f"{self.namespace!a} is not a DNS label", param_hint="--namespace")
        return self.namespace

    def list_options(self, kind: Kind[Any]) -> ListOptions:
        """Return the options of the list that the store is asked for."""
        name = "".join(f"metadata.name={escape_value(name)}" for name in self.names_of(kind)[:1])
        return ListOptions(
            namespace=self.place(kind),
            label_selector=self.selector,
            field_selector=name or self.field_selector,
            limit=self.chunk_size,
        )


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """A `get` of one kind. What the store cannot select is in *list_all* and *wanted*.

    On standard error goes *hint*, what any answer may lack; after an empty table *on_empty* instead.
    """

    kind: Kind[Any]
    asked: GetOptions
    list_all: Callable[[Session], ObjectList[Any]] | None = None
    wanted: Callable[[Any], bool] = lambda found: True
    hint: Callable[[Session], str] = lambda session: ""
    on_empty: Callable[[Session], Sequence[str]] = lambda session: ()
    printer: Printer | None = None


def common_options(command: F) -> F:
    """Add the names and options of `GetOptions` to a command, in kubectl's words."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


_OPTIONS: tuple[Callable[[F], F], ...] = (
    click.argument("names", nargs=-1, metavar="[NAME]..."),
    click.option("-l", "--selector", default="", metavar="LABELS", help="Labels: a=b,a!=b,a in (x,y),!a."),
    click.option("--field-selector", default="", metavar="FIELDS", help="Fields: type=Warning,reason!=Pulled."),
    click.option("--sort-by", metavar="JSONPATH|none", help="Order of the list; none: the store's, as kubectl's."),
    click.option("-w", "--watch", is_flag=True, help="After the list, show what is written, until Ctrl-C."),
    click.option("--watch-only", is_flag=True, help="As -w, without the list."),
    click.option("--output-watch-events", is_flag=True, help="With -w: say ADDED, MODIFIED, DELETED."),
    click.option("-o", "--output", default="", metavar="FORM", help=f"Another form than the table: {FORMS}.",
                 shell_complete=complete_forms),
    click.option("--no-headers", is_flag=True, help="A table without its first line."),
    click.option("--chunk-size", type=click.IntRange(min=0), default=CHUNK, show_default=True,
                 help="Objects to read at once; 0: all."),
    click.option("-L", "--label-columns", multiple=True, metavar="LABEL,…", callback=lambda _ctx, _param, given: tuple(
        label for one in given for label in one.split(",") if label), help="A column for each of these labels."),
    click.option("--show-labels", is_flag=True, help="All labels in the last column."),
)  # fmt: skip


def run_get(request: Request) -> None:
    """List, or watch until Ctrl-C, and print; or get what is named."""
    kind, asked = request.kind, request.asked
    options, printer = asked.list_options(kind), request.printer or _printer(kind, asked)
    order = _order(kind, asked)
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
        )
        found = order(follower.fetch())
        if asked.watches:
            if asked.names and not found:
                _say_missing([NotFound(f'{kind.resource} "{asked.names_of(kind)[0]}" not found')])
            write(printer.watched([PrintedChange(WatchEventType.ADDED, one) for one in found if not asked.watch_only]))
            _say(request.hint(session))
            _follow(follower, printer, asked)
        shown = bool(found) or asked.output not in ("", "wide")
        hints = [request.hint(session)] if shown else request.on_empty(session)
    if shown:
        write(printer.listed(found))
    else:
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
    if missing:
        _say_missing(missing)


def _say_missing(missing: Sequence[NotFound]) -> NoReturn:
    for error in missing:
        click.echo(f"Error from server (NotFound): {printable(str(error))}", err=True)
    sys.exit(NotFound.exit_code)


def _without_kind(kind: Kind[Any], name: str) -> str:
    word, slash, rest = name.partition("/")
    return rest if slash and KINDS.named(word) is kind else name


def _follow(follower: ObjectFollower, printer: Printer, asked: GetOptions) -> None:
    for told in follower.follow():
        # kubectl prints what is deleted as if it had just happened; whoever wants that asks for the word as well.
        write(printer.watched([one for one in told if asked.output_watch_events or one.type != WatchEventType.DELETED]))


def _watching(options: ListOptions, version: str) -> ListOptions:
    return msgspec.structs.replace(options, resource_version=version, limit=0, allow_bookmarks=True)


def _say_none(kind: Kind[Any], asked: GetOptions) -> None:
    place = asked.place(kind)
    click.echo(f"No resources found in {place} namespace." if place else "No resources found", err=True)


def _say(*hints: str) -> None:
    for hint in filter(None, hints):
        click.echo(hint, err=True)


def _printer(kind: Kind[Any], asked: GetOptions) -> Printer:
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


def _order(kind: Kind[Any], asked: GetOptions) -> Order:
    try:
        return order_of(kind, asked.sort_by)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--sort-by") from None


@click.command()
@common_options
def get_nodes(**asked: Any) -> None:
    """Show nodes, as kubectl does.

    \b
    Examples:
      eventbus get nodes
      eventbus get node node-1 -o yaml
      eventbus get nodes -l zone=a --field-selector spec.unschedulable=false
      eventbus get nodes -o jsonpath='{.items[*].metadata.name}'
      eventbus get nodes -w --output-watch-events
    """
    run_get(Request(kind=NODE, asked=_asked(asked)))


@click.command()
@click.option(
    "-n",
    "--namespace",
    default="default",
    show_default=True,
    help="Leases of this namespace.",
    shell_complete=complete_namespaces,
)
@click.option("-A", "--all-namespaces", is_flag=True, help="Leases of every namespace.")
@common_options
def get_leases(**asked: Any) -> None:
    """Show leases, as kubectl does.

    \b
    Examples:
      eventbus get leases -n kube-node-lease
      eventbus get leases -A -o custom-columns=NAME:.metadata.name,RENEWED:.spec.renewTime
    """
    run_get(Request(kind=LEASE, asked=_asked(asked)))


def _asked(asked: dict[str, Any]) -> GetOptions:
    return GetOptions(**asked)
