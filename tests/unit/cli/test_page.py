"""docs/cli.md is what the commands say."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import click
import pytest

from eventbus.cli.main import COMMANDS
from eventbus.workers.cli import WORKER_COMMANDS, main

ROOT = Path(__file__).resolve().parents[3]


def commands(command: click.Command, words: str = "eventbus") -> list[tuple[str, click.Command]]:
    """Every command and group, by the words that run it."""
    if not isinstance(command, click.Group):
        return [(words, command)]
    context = click.Context(command)
    inner = [(name, command.get_command(context, name)) for name in command.list_commands(context)]
    return [(words, command), *(pair for name, found in inner if found for pair in commands(found, f"{words} {name}"))]


def test_the_page_of_commands_is_current() -> None:
    ran = subprocess.run(
        [sys.executable, "docs/cli_page.py", "--check"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr


EVERY = commands(main)
#: What they print is for nobody to take apart: a program's own output, a script, lines; or nothing at all.
WITHOUT_JSON = {"completion", "down", "exec", "heartbeat", "help", "kubeconfig", "mcp", "record", "up", "watch-systemd"}
WITHOUT_JSON |= {"logs", "wait", "rules import", "config current-context", "postgres partition"}
WITHOUT_JSON |= {f"config {verb}-context" for verb in ("delete", "rename", "set", "use")}
WITHOUT_JSON |= {
    f"worker {kind}" for kind in ("agent", "api", "export", "import", "lifecycle", "log", "metrics", "notify", "sink")
}


def test_what_has_output_has_it_as_json() -> None:
    for words, command in EVERY:
        if isinstance(command, click.Group) or words.removeprefix("eventbus ") in WITHOUT_JSON:
            continue
        forms = [option for option in command.params if "--output" in option.opts]
        assert forms, f"{words}: no -o"
        form = forms[0].type
        assert not isinstance(form, click.Choice) or "json" in form.choices, words


@pytest.mark.parametrize("kind", ["agent", "api", "export", "lifecycle", "log", "metrics", "notify", "sink"])
def test_every_worker_tells_its_exit_codes(kind: str) -> None:
    (worker,) = [command for words, command in commands(main) if words == f"eventbus worker {kind}"]
    text = worker.get_help(click.Context(worker))
    assert "Exit codes:" in text
    assert "128+n" in text


def test_every_command_has_help_with_examples() -> None:
    assert {words.removeprefix("eventbus ") for words, _ in EVERY} >= {*COMMANDS, *WORKER_COMMANDS}
    for words, command in EVERY:
        assert command.help, words
        assert "Example" in command.help, words
        assert f"{words} " in f"{command.help} ".replace("\n", " "), words
