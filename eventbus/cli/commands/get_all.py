"""`eventbus get all` and `get events,nodes`: objects of several kinds, one table for each kind, or one list."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, cast

import click
import msgspec

from eventbus.cli.input.get_options import GetOptions, common_options
from eventbus.cli.input.lookup import demanded_kind, waiting
from eventbus.cli.input.options import namespace_option
from eventbus.cli.printers.output import write
from eventbus.cli.session import Session, open_session
from eventbus.errors import NotFound
from eventbus.model.list_watch import list_all
from eventbus.model.reference import meant_kinds
from eventbus.util.text import printable

if TYPE_CHECKING:
    from eventbus.model.kinds import Kind

#: Output forms that differ for each kind.
_TABLES: Final = ("", "wide", "name")


@click.command()
@namespace_option("Objects of this namespace, and those in none.")
@click.option("-A", "--all-namespaces", is_flag=True, help="Objects of every namespace.")
@click.option("--kinds", default="", metavar="KIND,…", help="Only these, as in `eventbus get events,nodes`.")
@common_options
def get_all(kinds: str, **common: Any) -> None:
    """Show objects of all kinds that the store holds, or of those named; a table for each.

    \b
    Examples:
      eventbus get all
      eventbus get events,nodes -A
      eventbus get node/n1 lease/n1 -n kube-node-lease -o json
    """
    from eventbus.model.kinds import KINDS

    query = GetOptions(**common)
    if query.watches:
        raise click.UsageError("you may only specify a single resource type with -w")
    chosen = [_kind(word) for word in kinds.split(",") if word] or list(KINDS)
    requests = _named(query, chosen) if query.names else [(kind, ()) for kind in chosen]
    with open_session() as session:
        # Kinds that the user named are always requested, so that the store reports the reason for a refusal.
        if not kinds and not any("/" in name for name in query.names):
            requests = _permitted(session, query, requests)
        results, missing = _find(session, query, requests)
        hint = waiting(session)
    _print(results, query)
    missing = [] if query.ignore_not_found else missing
    nothing = not missing and not any(items for _, items in results)
    if nothing and query.output in ("", "wide") and not query.ignore_not_found:
        place = "" if query.all_namespaces else f" in {query.namespace} namespace."
        click.echo(f"No resources found{place}", err=True)
    if hint:
        click.echo(hint, err=True)
    for problem in missing:
        click.echo(f"Error from server (NotFound): {printable(str(problem))}", err=True)
    sys.exit(NotFound.exit_code if missing else 0)


def _kind(word: str) -> Kind[Any]:
    about = printable(next(meant_kinds(word)))
    return demanded_kind(word, else_do=f". Events of one: eventbus get events --for {about}/NAME")


def _named(query: GetOptions, kinds: Sequence[Kind[Any]]) -> list[tuple[Kind[Any], tuple[str, ...]]]:
    """`node/n1 lease/n1`, or names that are looked for among each of *kinds*."""
    by_kind: dict[str, tuple[Kind[Any], list[str]]] = {}
    for word in query.names:
        typed, slash, name = word.partition("/")
        for kind in [_kind(typed)] if slash else kinds:
            by_kind.setdefault(kind.plural, (kind, []))[1].append(name if slash else word)
    return [(kind, tuple(names)) for kind, names in by_kind.values()]


def _permitted(
    session: Session, query: GetOptions, requests: Sequence[tuple[Kind[Any], tuple[str, ...]]]
) -> list[tuple[Kind[Any], tuple[str, ...]]]:
    """Skip kinds that this user may not read, with a line on stderr."""
    from eventbus.store.object_store import may_read

    place = "" if query.all_namespaces else query.namespace
    permitted = [request for request in requests if may_read(session.store, request[0], place)]
    hidden = ", ".join(kind.plural for kind, names in requests if (kind, names) not in permitted)
    if hidden:
        click.echo(f"left out: {hidden}: this user lacks the role operator", err=True)
    return permitted


def _find(
    session: Session, query: GetOptions, requests: Sequence[tuple[Kind[Any], tuple[str, ...]]]
) -> tuple[list[tuple[Kind[Any], list[Any]]], list[NotFound]]:
    from eventbus.cli.listing import order_option

    results: list[tuple[Kind[Any], list[Any]]] = []
    missing: list[NotFound] = []
    for kind, names in requests:
        objects = session.store.objects(kind)
        query_of_kind = msgspec.structs.replace(query, names=names)
        items: list[Any] = []
        if names:
            for name in query_of_kind.names_of(kind):
                try:
                    items.append(objects.get(name, query_of_kind.place(kind)))
                except NotFound as problem:
                    missing.append(problem)
        else:
            items = list(list_all(objects, query_of_kind.list_options(kind))[0].items)
        results.append((kind, order_option(kind, query)(items) if items else []))
    return results, missing


def _print(results: Sequence[tuple[Kind[Any], list[Any]]], query: GetOptions) -> None:
    from eventbus.cli.listing import printer_option
    from eventbus.cli.printers.object_printer import plain_of

    filled = [(kind, items) for kind, items in results if items]
    if query.output in _TABLES:
        between = "\n" if query.output != "name" else ""
        write(between.join(printer_option(kind, query).listed(items) for kind, items in filled))
        return
    plain = [plain_of(kind, item) for kind, items in results for item in items]
    write(printer_option(cast("Kind[Any]", _AsItIs()), query).listed(plain))


class _AsItIs:
    """A kind of objects that are JSON already."""

    namespaced = True

    def encode(self, plain: dict[str, Any]) -> dict[str, Any]:
        return plain
