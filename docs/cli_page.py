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

Made by `make docs` from the commands' own `--help`; do not edit.

Every command takes `-h`. `-o json` is there wherever there is output, and is the form for scripts: its fields stay,
tables may change. Colours come only on a terminal, and never with `NO_COLOR` set. `eventbus completion bash`, `zsh` or
`fish` prints what makes a shell complete commands, options, and groups, namespaces and objects on the bus.

| exit code | meaning |
|---|---|
| 0 | done; of `doctor`: nothing is wrong; of workers: asked to end, and what was begun is finished |
| 1 | it could not be done now: Redis does not answer, no such object, no object with the \
field to sort by, output that cannot be written; of `doctor`: \
warnings; of workers: the drain was cut off |
| 2 | it can never be done so: wrong usage, bad input, a setting or server that will not do; of `doctor`: errors |
| 130 | ended by Ctrl-C; of workers: by a second one |
| 143 | of workers: ended by a second SIGTERM |

`eventbus exec` ends as its command does.

"""


def main(arguments: list[str]) -> int:
    """Write the page, or with `--check` return 1 if it is out of date."""
    if "--check" in arguments:
        current = PAGE.exists() and PAGE.read_text(encoding="utf-8") == page()
        if not current:
            print("docs/cli.md is not what the commands say now: make docs", file=sys.stderr)
        return 0 if current else 1
    PAGE.write_text(page(), encoding="utf-8")
    print(f"docs: {PAGE.relative_to(ROOT)} written")
    return 0


def page() -> str:
    """The whole page, as the commands are now."""
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
    """Return what `--help` prints on a terminal of WIDTH columns."""
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
