"""Options that every command accepts, before or after its name, as in kubectl: --context and -n."""

from __future__ import annotations

import os
from typing import Final

import click

from eventbus.cli.contexts import NAMESPACE_VARIABLE, read_contexts, use_context
from eventbus.errors import ConfigError

#: Key of the environment at the start of the program.
_STARTED: Final = "eventbus.environ"
#: Key of the namespace that was given before the command.
_GIVEN_NAMESPACE: Final = "eventbus.namespace"
#: Key of an invalid context, kept until the command is known, which may not need a context.
_PROBLEM: Final = "eventbus.context_problem"
#: Commands that need no bus; `config` repairs an invalid context.
_WITHOUT_BUS: Final = ("config", "completion", "help", "version")


def add_to_program(program: click.Group) -> None:
    """Add the options to the program. The context's bus is set in the environment before a command is resolved."""
    program.params += [
        click.Option(["--context"], metavar="NAME", help="The bus of that name; see `eventbus config`.", is_eager=True,
                     expose_value=False, callback=_context_of_program, shell_complete=complete_contexts),
        click.Option(["-n", "--namespace"], metavar="TEXT", help="Namespace for the command.",
                     expose_value=False, callback=_namespace, shell_complete=_complete_namespaces),
    ]  # fmt: skip


def add_to_command(command: click.Command) -> None:
    """Add a hidden option --context to a command, unless it has an option of the same name."""
    if any("--context" in param.opts for param in command.params):
        return
    command.params.append(
        click.Option(["--context"], hidden=True, is_eager=True, expose_value=False, callback=_context_of_command,
                     shell_complete=complete_contexts)
    )  # fmt: skip


def complete_contexts(_ctx: click.Context, _parameter: click.Parameter, begin: str) -> list[str]:
    """Offer the names of the contexts."""
    try:
        return [one.name for one in read_contexts(os.environ).contexts if one.name.startswith(begin)]
    except ConfigError:
        return []


def _complete_namespaces(ctx: click.Context, parameter: click.Parameter, begin: str) -> list[str]:
    from eventbus.cli.completion import complete_namespaces

    return complete_namespaces(ctx, parameter, begin)


def _context_of_program(ctx: click.Context, _parameter: click.Parameter, name: str | None) -> None:
    ctx.meta[_STARTED] = dict(os.environ)
    _use(ctx, name or "")


def _context_of_command(ctx: click.Context, _parameter: click.Parameter, name: str | None) -> None:
    if name:
        os.environ.clear()
        os.environ.update(ctx.meta.get(_STARTED, {}))
        _use(ctx, name)
        if _GIVEN_NAMESPACE in ctx.meta:
            os.environ[NAMESPACE_VARIABLE] = ctx.meta[_GIVEN_NAMESPACE]


def _use(ctx: click.Context, name: str) -> None:
    try:
        use_context(name, os.environ)
    except ConfigError as problem:
        if name and not ctx.resilient_parsing:
            raise click.BadParameter(str(problem), param_hint="--context") from None
        ctx.meta[_PROBLEM] = problem


def check_context(ctx: click.Context, word: str) -> None:
    """Refuse an invalid context, unless the command *word* needs none. Raises: ConfigError."""
    problem: ConfigError | None = ctx.meta.get(_PROBLEM)
    if problem and word not in _WITHOUT_BUS and not ctx.resilient_parsing:
        raise problem


def _namespace(ctx: click.Context, _parameter: click.Parameter, given: str | None) -> None:
    if given is not None:
        ctx.meta[_GIVEN_NAMESPACE] = os.environ[NAMESPACE_VARIABLE] = given
