"""The option -n of every command with objects: the given namespace, else the context's, else `default`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from eventbus.cli.completion import complete_namespaces
from eventbus.cli.contexts import NAMESPACE_VARIABLE
from eventbus.model.names import is_dns_label

F = TypeVar("F", bound=Callable[..., Any])


def namespace_option(help: str, *, may_be_empty: bool = False) -> Callable[[F], F]:
    """Make the option. Its default is EVENTBUS_NAMESPACE, which a context sets too."""

    def check(_ctx: click.Context, _parameter: click.Parameter, given: str) -> str:
        if not is_dns_label(given) and not (may_be_empty and not given):
            raise click.BadParameter(f"{given!a} is not a DNS label", param_hint="--namespace")
        return given

    return click.option(
        "-n",
        "--namespace",
        default="default",
        show_default=True,
        envvar=NAMESPACE_VARIABLE,
        callback=check,
        help=help,
        shell_complete=complete_namespaces,
    )
