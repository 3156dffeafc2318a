"""`eventbus get nodes`, `get pods` and similar: stored kinds that are shown unchanged."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import click

from eventbus.cli.input.get_options import GetOptions, common_options
from eventbus.cli.input.options import namespace_option
from eventbus.cli.this_machine import up_lines
from eventbus.util.text import printable


@click.command()
@click.option("-n", "--namespace", hidden=True, help="Nodes are in none.")
@click.option("-A", "--all-namespaces", is_flag=True, hidden=True, help="Nodes are in none.")
@common_options
def get_nodes(namespace: str | None, all_namespaces: bool, **query: Any) -> None:
    """Show nodes, as kubectl does.

    \b
    Examples:
      eventbus get nodes
      eventbus get node node-1 -o yaml
      eventbus get nodes -l zone=a --field-selector spec.unschedulable=false
      eventbus get nodes -o jsonpath='{.items[*].metadata.name}'
      eventbus get nodes -w --output-watch-events
    """
    _get("nodes", query)


@click.command()
@namespace_option("Leases of this namespace.")
@click.option("-A", "--all-namespaces", is_flag=True, help="Leases of every namespace.")
@common_options
def get_leases(**query: Any) -> None:
    """Show leases, as kubectl does.

    \b
    Examples:
      eventbus get leases -n kube-node-lease
      eventbus get leases -A -o jsonpath='{.items[*].spec.holderIdentity}'
    """
    _get("leases", query)


@click.command()
@namespace_option("Pods of this namespace.")
@click.option("-A", "--all-namespaces", is_flag=True, help="Pods of every namespace.")
@common_options
def get_pods(**query: Any) -> None:
    """Show pods, as kubectl does: of the bus, of the files of agents, and of `eventbus up`.

    \b
    Examples:
      eventbus get pods -o wide
      eventbus get pods -A -w
      eventbus get pods --field-selector spec.nodeName=db-1,status.phase=Running
    """
    _get("pods", query, _hint_at_lines)


@click.command()
@namespace_option("ConfigMaps of this namespace.")
@click.option("-A", "--all-namespaces", is_flag=True, help="ConfigMaps of every namespace.")
@common_options
def get_configmaps(**query: Any) -> None:
    """Show ConfigMaps, as kubectl does.

    \b
    Examples:
      eventbus get configmaps
      eventbus get cm settings -o yaml
    """
    _get("configmaps", query)


@click.command()
@namespace_option("Secrets of this namespace.")
@click.option("-A", "--all-namespaces", is_flag=True, help="Secrets of every namespace.")
@common_options
def get_secrets(**query: Any) -> None:
    """Show Secrets, as kubectl does; values only with -o json, yaml and the like.

    \b
    Examples:
      eventbus get secrets
      eventbus get secret keys -o jsonpath='{.type}'
    """
    _get("secrets", query)


def _hint_at_lines(query: GetOptions) -> Sequence[str]:
    """Name the lines of an `up` of this machine that the store does not have: it has no rights there, or no bus yet."""
    from eventbus.model.kinds import POD

    names = up_lines(query.place(POD))
    hint = f"The store does not have the lines of `eventbus up`. Here run: {', '.join(map(printable, names))}"
    return (hint, f"Look at one: eventbus logs {names[0]}; eventbus describe pod/{names[0]}") if names else ()


def _get(plural: str, query: dict[str, Any], on_empty: Callable[[GetOptions], Sequence[str]] = lambda _: ()) -> None:
    from eventbus.cli.listing import Request, run_get
    from eventbus.model.kinds import KINDS

    kind = KINDS.get(plural)
    assert kind is not None, plural
    options = GetOptions(**query)
    run_get(Request(kind=kind, query=options, on_empty=lambda _session: on_empty(options)))
