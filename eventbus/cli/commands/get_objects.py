"""`eventbus get nodes`, `get pods` and similar: stored kinds that are shown unchanged."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import click

from eventbus.cli.input.get_options import GetOptions, common_options
from eventbus.cli.input.options import namespace_option
from eventbus.cli.this_machine import up_lines
from eventbus.util.text import printable

Hints = Callable[[GetOptions], Sequence[str]]


def _hint_at_lines(query: GetOptions) -> Sequence[str]:
    """Name the lines of an `up` of this machine that the store does not have: it has no rights there, or no bus yet."""
    from eventbus.model.kinds import POD

    names = up_lines(query.place(POD))
    hint = f"The store does not have the lines of `eventbus up`. Here run: {', '.join(map(printable, names))}"
    return (hint, f"Look at one: eventbus logs {names[0]}; eventbus describe pod/{names[0]}") if names else ()


def _run(plural: str, options: dict[str, Any], hints: Hints = lambda _query: ()) -> None:
    from eventbus.cli.listing import Request, run_get
    from eventbus.model.kinds import KINDS

    kind, query = KINDS.get(plural), GetOptions(**options)
    assert kind is not None, plural
    run_get(Request(kind=kind, query=query, on_empty=lambda _session: hints(query)))


def _namespaced(title: str, summary: str, *examples: str, hints: Hints = lambda _query: ()) -> click.Command:
    """Make the command of a kind in namespaces. *title*: its plural.  *hints*: lines after an empty list."""

    @click.command(help="\n".join((summary, "", "\b", "Examples:", *(f"  {example}" for example in examples))))
    @namespace_option(f"{title} of this namespace.")
    @click.option("-A", "--all-namespaces", is_flag=True, help=f"{title} of every namespace.")
    @common_options
    def command(**options: Any) -> None:
        _run(title.lower(), options, hints)

    return command


def _cluster_scoped(plural: str, summary: str, *examples: str) -> click.Command:
    """Make the command of a kind without namespaces."""

    @click.command(help="\n".join((summary, "", "\b", "Examples:", *(f"  {example}" for example in examples))))
    @click.option("-n", "--namespace", hidden=True, help=f"{plural.title()} are in none.")
    @click.option("-A", "--all-namespaces", is_flag=True, hidden=True, help=f"{plural.title()} are in none.")
    @common_options
    def command(namespace: str | None, all_namespaces: bool, **options: Any) -> None:
        _run(plural, options)

    return command


get_nodes = _cluster_scoped(
    "nodes",
    "Show nodes, as kubectl does.",
    "eventbus get nodes",
    "eventbus get node node-1 -o yaml",
    "eventbus get nodes -l zone=a --field-selector spec.unschedulable=false",
    "eventbus get nodes -o jsonpath='{.items[*].metadata.name}'",
    "eventbus get nodes -w --output-watch-events",
)
get_silences = _cluster_scoped(
    "silences",
    "Show silences, as kubectl does; `eventbus silence list` leaves expired ones out.",
    "eventbus get silences -o wide",
    "eventbus get silences -w",
)
get_acknowledgements = _cluster_scoped(
    "acknowledgements",
    "Show the acknowledgements of `eventbus ack`.",
    "eventbus get acknowledgements -o wide",
)
get_leases = _namespaced(
    "Leases",
    "Show leases, as kubectl does.",
    "eventbus get leases -n kube-node-lease",
    "eventbus get leases -A -o jsonpath='{.items[*].spec.holderIdentity}'",
)
get_pods = _namespaced(
    "Pods",
    "Show pods, as kubectl does: of the bus, of the files of agents, and of `eventbus up`.",
    "eventbus get pods -o wide",
    "eventbus get pods -A -w",
    "eventbus get pods --field-selector spec.nodeName=db-1,status.phase=Running",
    hints=_hint_at_lines,
)
get_configmaps = _namespaced(
    "ConfigMaps",
    "Show ConfigMaps, as kubectl does.",
    "eventbus get configmaps",
    "eventbus get cm settings -o yaml",
)
get_secrets = _namespaced(
    "Secrets",
    "Show Secrets, as kubectl does; values only with -o json, yaml and the like.",
    "eventbus get secrets",
    "eventbus get secret keys -o jsonpath='{.type}'",
)
