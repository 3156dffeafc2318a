"""Options of several commands: the namespace, durations, times and numbers; and the question before data are lost."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from datetime import datetime
from typing import Any, TypeVar

import click

from eventbus.cli.completion import complete_namespaces
from eventbus.cli.contexts import NAMESPACE_VARIABLE
from eventbus.model.names import is_dns_label
from eventbus.util.human_duration import parse_duration, parse_instant, parse_since

F = TypeVar("F", bound=Callable[..., Any])


def together(*options: Callable[[F], F]) -> Callable[[F], F]:
    """Return a decorator that adds all *options* to a command, in this order."""

    def add(command: F) -> F:
        for option in reversed(options):
            command = option(command)
        return command

    return add


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


def seconds_option(_ctx: click.Context, _param: click.Parameter, text: str | None) -> float | None:
    """Parse an option that is a duration, into seconds: a callback for click."""
    try:
        return None if text is None else parse_duration(text).total_seconds()
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


def instant_option(_ctx: click.Context, _param: click.Parameter, text: str | None) -> datetime | None:
    """Parse an option that is a point in time: a callback for click."""
    try:
        return None if text is None else parse_instant(text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


def since_option(_ctx: click.Context, _param: click.Parameter, text: str | None) -> datetime | None:
    """Parse an option that is a duration before now, or a point in time: a callback for click."""
    try:
        return None if text is None else parse_since(text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


class Finite(click.FloatRange):
    """A `click.FloatRange` that refuses `inf` and `nan`, which passes every range check."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Parse the number. Fails as click does if it is not a number, out of range, or not finite."""
        number: float = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value!r} is no number that can be counted to.", param, ctx)
        return number


def ask_consent(question: str) -> None:
    """Return if the answer to *question* is yes. Raises: Abort: it is no.  ClickException: no terminal."""
    try:
        agreed = click.confirm(question, err=True)
    except click.Abort:
        if sys.stdin.isatty():
            raise
        click.echo(err=True)
        raise click.ClickException("this needs an answer, and standard input is not a terminal: add --yes") from None
    if not agreed:
        raise click.Abort
