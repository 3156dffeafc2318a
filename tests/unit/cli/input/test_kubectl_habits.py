"""Arguments that kubectl's users type become arguments that click knows, and nothing else is touched."""

from __future__ import annotations

import click
import pytest

from eventbus.cli.input.kubectl_habits import as_click_reads


@click.command()
@click.option("-o", "--output")
@click.option("-w", "--watch", is_flag=True)
@click.option("--colour/--no-colour", default=True)
@click.option("-m", "--message")
@click.argument("words", nargs=-1)
def get(**_options: object) -> None:
    """A command with options before and behind its words."""


@click.command(context_settings={"allow_interspersed_args": False})
@click.option("-w", "--watch", is_flag=True)
@click.argument("words", nargs=-1)
def execute(**_options: object) -> None:
    """A command that passes on its words."""


@pytest.mark.parametrize(
    ("typed", "read"),
    [
        ("-o=name", "-oname"),
        ("-oname", "-oname"),
        ("-o name", "-o name"),
        ("--output=name", "--output=name"),
        ("--watch=false pods", "pods"),
        ("--watch=true -w=t", "--watch -w"),
        ("-w=false", ""),
        ("--watch=maybe", "--watch=maybe"),
        ("--colour=false", "--no-colour"),
        ("--no-colour=false", "--colour"),
        ("-m -w=false", "-m -w=false"),
        ("-- -w=false", "-- -w=false"),
        ("--field-selector=type=Warning", "--field-selector=type=Warning"),
        ("pods -w=false x=y", "pods x=y"),
    ],
)
def test_kubectls_equals_signs_become_clicks(typed: str, read: str) -> None:
    assert as_click_reads(typed.split(), get) == read.split()


def test_the_words_of_another_program_are_left_alone() -> None:
    assert as_click_reads(["-w=false", "ls", "-w=false"], execute) == ["ls", "-w=false"]
