"""Groups of commands that are imported when they are run, so that help and completion stay quick."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any, NamedTuple

import click
from click.shell_completion import CompletionItem

from eventbus.cli.input.global_options import add_to_command, add_to_program, check_context
from eventbus.cli.input.kubectl_habits import as_click_reads
from eventbus.errors import EventBusError
from eventbus.util.text import printable

#: The exit code of shells for a program that ended by Ctrl-C.
INTERRUPTED = 130


class Lazy(NamedTuple):
    """A command that is not imported yet: `module:attribute`, and the line of its group's help."""

    target: str
    help: str


class LazyGroup(click.Group):
    """A click group of `Lazy` commands; also of plain ones. Some may be called by other words too: *aliases*.

    *unknown* may say more of a word that is no command, given the commands there are; '' where it has nothing to say.
    *reworded* returns the words of a command that is typed in another way.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.lazy: dict[str, Lazy] = {}
        self.aliases: dict[str, str] = {}
        self.unknown: Callable[[str, Sequence[str]], str] | None = None
        self.reworded: Callable[[list[str]], list[str]] = list

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted({*super().list_commands(ctx), *self.lazy})

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, self.reworded(args))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Split `node/n1` into the command `node` and its argument `n1`, as kubectl does."""
        word, slash, name = args[0].partition("/")
        if slash and self.get_command(ctx, word) is not None:
            args = [word, name, *args[1:]]
        if self.get_command(ctx, args[0]) is None and not args[0].startswith("-") and not ctx.resilient_parsing:
            raise click.UsageError(self._unknown(ctx, args[0]), ctx)
        resolved = super().resolve_command(ctx, args)
        _, command, rest = resolved
        if command is not None and not isinstance(command, click.Group) and not ctx.resilient_parsing:
            return resolved[0], command, as_click_reads(rest, command)
        return resolved

    def _unknown(self, ctx: click.Context, word: str) -> str:
        """Suggest a command for *word*: click looks only among imported ones, and only in its later versions."""
        names = self.list_commands(ctx)
        if self.unknown and (hint := self.unknown(word, names)):
            return hint
        from difflib import get_close_matches

        near = get_close_matches(word, names)
        meant = f" Did you mean {' or '.join(map(repr, near))}?" if near else ""
        return f"No such command {word!r}.{meant}"

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the command's module now, once, and return the command; None: there is none."""
        cmd_name = self.aliases.get(cmd_name, cmd_name)
        if cmd_name in self.lazy and cmd_name not in self.commands:
            module, _, attribute = self.lazy[cmd_name].target.partition(":")
            command = getattr(import_module(module), attribute)
            assert isinstance(command, click.Command), f"{self.lazy[cmd_name].target} is not a command"
            add_to_command(command)
            self.add_command(command, cmd_name)
        return super().get_command(ctx, cmd_name)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem[Any]]:
        """Complete as click does, without importing the commands for their help."""
        names = [name for name in self.list_commands(ctx) if name.startswith(incomplete)]
        options = super(click.Group, self).shell_complete(ctx, incomplete)
        return [*(CompletionItem(name, help=self._help_of(name)) for name in names), *options]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands of a help text without importing them."""
        rows = [(name, self._help_of(name)) for name in self.list_commands(ctx)]
        if rows:
            with formatter.section("Commands"):
                formatter.write_dl(rows)

    def _help_of(self, name: str) -> str:
        return self.lazy[name].help if name in self.lazy else self.commands[name].get_short_help_str(limit=80)


class Program(LazyGroup):
    """The outermost group: errors of the bus end a command with one line and their exit code, Ctrl-C with none.

    So does a file or terminal that cannot be written or read; a closed pipe ends it silently, as click does that.
    """

    def main(self, *args: Any, **kwargs: Any) -> Any:
        """Run the program; a file or terminal that fails ends it with one line and exit code 1."""
        try:
            return super().main(*args, **kwargs)
        except OSError as error:
            problem = f"{error.filename}: {error.strerror}" if error.filename else error.strerror or str(error)
            with contextlib.suppress(OSError):
                click.echo(f"error: {printable(problem)}", err=True)
            _forget_output()
            sys.exit(1)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command, as click does, once it is certain that its context can be used."""
        check_context(ctx, args[0])
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command; its error becomes one line and its exit code."""
        try:
            return super().invoke(ctx)
        except EventBusError as error:
            click.echo(f"error: {printable(str(error))}", err=True)
            ctx.exit(error.exit_code)
        except KeyboardInterrupt:
            ctx.exit(INTERRUPTED)


def _forget_output() -> None:
    """Drop the unwritten buffer, or Python would fail again on it at its end."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None:
                stream.flush()
        except OSError:
            os.dup2(nowhere, stream.fileno())


def command_tree(
    name: str,
    groups: Mapping[str, str],
    commands: Mapping[str, Lazy],
    *,
    help: str,
    aliases: Mapping[str, str],
    unknown: Mapping[str, Callable[[str, Sequence[str]], str]],
    reworded: Mapping[str, Callable[[list[str]], list[str]]],
) -> Program:
    """Build the program from two tables keyed by the words a person types, like `get events`.

    Args: groups: words → help.  commands: words → `Lazy`; all words but the last are a group of the table.
          aliases: other words → the words of a command in the same group.  unknown: group → its `LazyGroup.unknown`.
          reworded: group → its `LazyGroup.reworded`.
    """
    program = Program(
        name, help=help, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110}
    )
    click.version_option(package_name="eventbus", prog_name=name, message="%(prog)s %(version)s")(program)
    add_to_program(program)
    tree: dict[str, LazyGroup] = {"": program}
    for words, group_help in sorted(groups.items()):
        above, _, last = words.rpartition(" ")
        tree[words] = LazyGroup(last, help=group_help)
        tree[above].add_command(tree[words])
    for words, lazy in commands.items():
        above, _, last = words.rpartition(" ")
        tree[above].lazy[last] = lazy
    for words, target in aliases.items():
        above, _, last = words.rpartition(" ")
        tree[above].aliases[last] = target.rpartition(" ")[2]
    for words, suggest in unknown.items():
        tree[words].unknown = suggest
    for words, reword in reworded.items():
        tree[words].reworded = reword
    return program
