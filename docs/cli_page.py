"""Write docs/cli.md from the commands themselves, as `make docs` does first; --check only says if it is out of date."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import click

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "cli.md"
WIDTH = 100
HEAD = """# Commands

Made by `make docs` from the `--help` of the commands; do not edit.

Every command has `-h`. Commands with output have `-o json`. Use it in scripts: its fields are stable, tables may
change. Colors are used only on a terminal, and not with `NO_COLOR`. `eventbus completion bash`, `zsh` or `fish`
prints a script that completes commands, options, and the groups, namespaces and objects on the bus.

| exit code | meaning |
|---|---|
| 0 | done; `doctor`: no problems; workers: stopped after they finished their work |
| 1 | failed, a retry may succeed: Redis is unavailable, no such object, no object with the \
field to sort by, output that cannot be written; `doctor`: \
warnings; workers: the drain timed out |
| 2 | failed permanently: wrong usage, invalid input, setting or server; `doctor`: errors |
| 130 | ended by Ctrl-C; workers: by the second one |
| 143 | workers: ended by a second SIGTERM |

`eventbus exec` exits with the exit code of its command.

"""


def main(arguments: list[str]) -> int:
    """Write the page, or with `--check` return 1 if it is out of date."""
    if "--check" in arguments:
        current = PAGE.exists() and PAGE.read_text(encoding="utf-8") == page()
        if not current:
            print("docs/cli.md is out of date: run make docs", file=sys.stderr)
        return 0 if current else 1
    PAGE.write_text(page(), encoding="utf-8")
    print(f"docs: {PAGE.relative_to(ROOT)} written")
    return 0


def page() -> str:
    """Return the page for the current commands."""
    from eventbus.workers.cli import main as program

    commands = list(walk(program, "eventbus"))
    index = [f"| [`{words}`](#{words.replace(' ', '-')}) | {short(command)} |" for words, command in commands]
    parts = [f"## {words}\n\n```text\n{help_of(words, command)}\n```\n" for words, command in commands]
    return HEAD + "\n".join(["| command | |", "|---|---|", *index]) + "\n\n" + "\n".join(parts)


def walk(command: click.Command, words: str) -> Iterator[tuple[str, click.Command]]:
    """Every command and group, by the words that run it; the program itself first."""
    yield words, command
    if not isinstance(command, click.Group):
        return
    context = click.Context(command, info_name=words)
    for name in command.list_commands(context):
        found = command.get_command(context, name)
        assert found is not None
        if not found.hidden:
            yield from walk(found, f"{words} {name}")


def help_of(words: str, command: click.Command) -> str:
    """Return the `--help` of a command on a terminal of WIDTH columns."""
    settings = {**command.context_settings, "terminal_width": WIDTH, "help_option_names": ["-h", "--help"]}
    context = click.Context(command, info_name=words, **settings)
    return "\n".join(line.rstrip() for line in command.get_help(context).splitlines())


def short(command: click.Command) -> str:
    """The first sentence of its help, for the index."""
    first = (command.help or "").strip().partition("\n\n")[0]
    return " ".join(first.split()).replace("|", "\\|")


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    sys.exit(main(sys.argv[1:]))
