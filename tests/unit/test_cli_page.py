"""docs/cli.md is what the commands say."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import click
import pytest

from workers.cli import main

ROOT = Path(__file__).resolve().parents[2]


def commands(command: click.Command, words: str = "eventbus") -> list[tuple[str, click.Command]]:
    if not isinstance(command, click.Group):
        return [(words, command)]
    context = click.Context(command)
    inner = [(name, command.get_command(context, name)) for name in command.list_commands(context)]
    return [pair for name, found in inner if found for pair in commands(found, f"{words} {name}")]


def test_the_page_of_commands_is_current() -> None:
    ran = subprocess.run(
        [sys.executable, "docs/cli_page.py", "--check"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr


@pytest.mark.parametrize(("words", "command"), commands(main))
def test_every_command_has_help_with_examples(words: str, command: click.Command) -> None:
    assert command.help
    assert "Example" in command.help
    assert f"{words} " in command.help or command.help.rstrip().endswith(words) or f"{words}\n" in command.help
