"""`eventbus help COMMAND…`: the text of `eventbus COMMAND… --help`."""

from __future__ import annotations

import click


def _complete_commands(ctx: click.Context, parameter: click.Parameter, begin: str) -> list[str]:
    """Offer the commands of the group that is named so far."""
    command: click.Command | None = ctx.find_root().command
    for word in ctx.params.get("words") or ():
        command = command.get_command(ctx, word) if isinstance(command, click.Group) else None
    names = command.list_commands(ctx) if isinstance(command, click.Group) else []
    return [name for name in names if name.startswith(begin)]


@click.command(name="help", context_settings={"ignore_unknown_options": True})
@click.argument("words", metavar="[COMMAND]…", nargs=-1, shell_complete=_complete_commands)
@click.pass_context
def help_(ctx: click.Context, words: tuple[str, ...]) -> None:
    """Show the help of a command, as its --help does.

    \b
    Examples:
      eventbus help
      eventbus help get events
    """
    ctx.find_root().command.main([*words, "--help"], prog_name=ctx.find_root().info_name)
