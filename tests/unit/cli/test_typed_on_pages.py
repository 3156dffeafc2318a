"""Every command that stands on a page is one that there is, with options that it has."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from eventbus.workers.cli import main

ROOT = Path(__file__).resolve().parents[3]
PAGES = [ROOT / "README.md", ROOT / "SECURITY.md", *sorted((ROOT / "docs").glob("*.md"))]
#: In a block: behind a prompt, variables or a folder; elsewhere: `in backquotes`.
_TYPED = re.compile(r"(?m)^(?:\$ |[ ]*|.*(?:[\w=/.-]+ |/bin/))eventbus ((?!import)[a-z-].*)$")
_BLOCK = re.compile(r"^```\w*\n(.*?)^```|^((?: {4}.*\n)+)", re.MULTILINE | re.DOTALL)
_INLINE = re.compile(r"`eventbus ([^`]+)`")
_ENDS = re.compile(r" (?:#|\||&|>|&&) ?.*$| &$")


def typed_on(page: Path) -> Iterator[str]:
    text = page.read_text("utf-8").replace("\\\n", " ")
    for block in _BLOCK.finditer(text):
        yield from _TYPED.findall(block[1] or block[2])
    yield from (" ".join(found.split()) for found in _INLINE.findall(_BLOCK.sub("", text)))


EVERY = {
    page.name: [
        line for line in dict.fromkeys(typed_on(page)) if line.split()[0] in main.list_commands(click.Context(main))
    ]
    for page in PAGES
    if page.name != "cli.md"  # made from the commands themselves
}


def test_commands_are_found_on_most_pages() -> None:
    assert sum(map(len, EVERY.values())) > 60


@pytest.mark.parametrize("page", [page for page, lines in EVERY.items() if lines])
def test_what_stands_on_it_can_be_typed(page: str) -> None:
    for line in EVERY[page]:
        check(line)


def check(line: str) -> None:
    """Assert that the commands and options of *line* exist."""
    command: click.Command = main
    words = shlex.split(_ENDS.sub("", line).replace("…", ""))
    options = {"-h", "--help", "--context", "-n", "--namespace"}
    while isinstance(command, click.Group) and words and not words[0].startswith("-"):
        found = command.get_command(click.Context(command), words.pop(0).partition("|")[0].lower())
        assert found is not None, line
        command = found
    options |= {name for one in command.params for name in (*one.opts, *one.secondary_opts)}
    for place, word in enumerate(words):
        behind = place and words[place - 1].startswith("-") and "=" not in words[place - 1]
        if word == "--" or (command.name == "exec" and not word.startswith("-") and not behind):
            break  # what follows is another program's
        if word.startswith("-"):
            name = word.partition("=")[0] if word.startswith("--") else word[:2]
            assert name in options, f"{line}: no option {name}"
